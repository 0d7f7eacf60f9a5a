# Two commands matter: `make demo` shows the main job end to end, `make test` checks everything. Both set up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test lint types unit bench clean

help:
	@echo "make demo   set up, then measure, plan and train a small GPT here; predicted against measured"
	@echo "make test   set up, then lint, strict types and all tests"
	@echo "make bench  the benchmarks, quick (benchmarks/NAME/main.py runs one in full)"

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt scripts/setup.sh
	@sh scripts/setup.sh "$(PYTHON)" "$(VENV)"

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

test: lint types unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

unit: setup
	$(BIN)/pytest -n 2

bench: setup
	$(BIN)/python benchmarks/spine/main.py --quick

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output
