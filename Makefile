# `make demo` shows the main job end to end, `make test` checks everything. Both set up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup browser compiler network demo test lint types kernels unit test-exports engines coverage docs bench picture clean

help:
	@echo "make demo      measure, plan and train a small GPT on this computer; predicted against measured"
	@echo "make test      lint, strict types and all tests"
	@echo "make test-exports  exports, checked by the training engines themselves"
	@echo "make docs      build the documentation site into build/site; warnings are errors"
	@echo "make coverage  all tests except timing tests, with coverage of subprocesses"
	@echo "make picture   redraw the pictures of README and docs"
	@echo "make bench     quick benchmarks (benchmarks/NAME/main.py runs one in full)"

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt scripts/setup.sh
	@sh scripts/setup.sh "$(PYTHON)" "$(VENV)"

browser:
	@sh scripts/browser.sh

network:
	@sh scripts/iproute2.sh

compiler: setup
	@sh scripts/compiler.sh "$(BIN)/python"

demo: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

# The kernels' tests use one core, as do the checks beside them.
test: setup compiler
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target kernels checks
	@$(MAKE) --no-print-directory unit engines

.PHONY: checks
checks: lint types
	$(BIN)/python -m tests.support.late_device.build

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# Numba checks no array bounds, so an index that is out of them reads or writes other memory, or ends the process. Here
# it raises. The compiled code differs, so it has its own cache.
KERNEL_TESTS := tests/simulate tests/timeline/test_causes.py tests/schedules/ordering/test_weight_filling.py \
	tests/schedules/search tests/schedules/methods/test_pe.py tests/planners/bounds tests/planners/costs \
	tests/planners/auto/test_memory_stages.py \
	tests/program/proof/test_restrictions.py $(addprefix tests/planners/methods/,test_bipartition.py test_dapple.py test_pipedream.py test_spp.py) \
	tests/support/every_kernel.py

kernels: setup
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR="$(CURDIR)/build/numba-boundscheck" $(BIN)/pytest -m "not timed" $(KERNEL_TESTS)

# The files that have timing tests (tests/support/test_undisturbed.py). Collecting all others would take some seconds.
TIMED_TESTS = $(shell grep -rlw --include='test_*.py' undisturbed tests)

unit: setup browser network compiler
	$(BIN)/pytest -m timed $(TIMED_TESTS)
	$(BIN)/pytest -m "not timed" -n 2

# Tests that use the training engines themselves, in an environment of their own on top of .venv.
test-exports: setup compiler
	@mkdir -p build
	@sh scripts/exports.sh "$(BIN)" build/exports-venv

# The same as a part of `make test`: skipped, with a line that says so, where the engines are not installed. Installing them
# and these tests take some minutes.
engines: setup compiler
	@if [ -f build/exports-venv/ready ]; then sh scripts/exports.sh "$(BIN)" build/exports-venv; \
	else echo "skipped: exports are not checked by the training engines, which are not installed (make test-exports)"; fi

coverage: setup browser network compiler
	mkdir -p build/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not timed"
	$(BIN)/coverage combine -q
	$(BIN)/coverage html -q
	$(BIN)/coverage report

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote build/site/index.html"

bench: setup browser
	$(BIN)/python benchmarks/spine/main.py --quick
	$(BIN)/python benchmarks/report/main.py --quick

picture: setup browser
	@sh scripts/picture.sh "$(BIN)"

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output
