# Two commands matter: `make demo` shows the main job end to end, `make test` checks everything. Both set up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup browser demo test lint types unit bench picture clean

help:
	@echo "make demo   set up, then measure, plan and train a small GPT here; predicted against measured"
	@echo "make test   set up, then lint, strict types and all tests"
	@echo "make picture  set up, then draw the pictures of README and docs again"
	@echo "make bench  the benchmarks, quick (benchmarks/NAME/main.py runs one in full)"

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt scripts/setup.sh
	@sh scripts/setup.sh "$(PYTHON)" "$(VENV)"

browser:
	@sh scripts/browser.sh

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

test: lint types unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

unit: setup browser
	$(BIN)/pytest -m timed
	$(BIN)/pytest -m "not timed" -n 2

bench: setup browser
	$(BIN)/python benchmarks/spine/main.py --quick
	$(BIN)/python benchmarks/report/main.py --quick

picture: setup browser
	@sh scripts/picture.sh "$(BIN)"

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output
