# Every target builds .venv from the pinned constraints when it is missing or out of date, and not otherwise.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One process per core, each with one thread.
PYTEST := $(BIN)/python -m pytest -q -n auto --dist worksteal
# The libraries' paths for other processors, with one and with two threads: together every value that changes numbers.
PLAIN := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1
WIDE := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX512_CORE OMP_NUM_THREADS=2

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full test-processors lint benchmark docs dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## build .venv (done by every other target too)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Equimetric needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(READY) ## compare five methods on real glyphs, print the table, write the report (five to ten minutes)
	$(BIN)/equimetric demo

test: lint ## lint, types and the tests that fit into minutes
	OMP_NUM_THREADS=1 $(PYTEST) -m "not slow"

test-full: lint test-processors ## everything, the long checks and other processors included
	OMP_NUM_THREADS=1 $(PYTEST)

test-processors: $(READY) ## the tests that compute numbers, as on other processors, with one thread and with two
	$(PLAIN) $(PYTEST) -m "numbers and not slow"
	$(WIDE) $(PYTEST) -m "numbers and not slow"

lint: $(READY) ## ruff, mypy and oxlint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/oxlint --quiet --deny-warnings src/equimetric/report/assets src/equimetric/service/assets

benchmark: $(READY) ## speed and memory beside a plain reference
	@for script in $(filter-out benchmarks/record.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(READY) ## build the documentation site into site/, and the pages and typed stubs that are made from the registry
	$(BIN)/python -m equimetric.report.catalogue_page docs/methods.md
	$(BIN)/python -m equimetric.constructors.stubs
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

dist: $(READY) ## build sdist and wheel into dist/
	$(BIN)/python -m build --no-isolation

clean: ## remove the environment and all caches
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
