# `make demo` and `make test` do everything; each sets up .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
STAMP := $(VENV)/.installed
SETUP := $(BIN)/python pipeline/demo/installing.py
export PATH := $(CURDIR)/$(BIN):$(PATH)
export MLFLOW_DISABLE_TELEMETRY := true
# Tests start hundreds of processes: none is to compile what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test lint unit mlflow docs benchmark mutants walks wheel wheel-test why clean
help: ## Show this help
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

install: $(STAMP) ## Set up .venv with the pinned dependencies

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Pellucid needs Python 3.11 or newer; set PYTHON=...")'
	@echo "Making $(VENV) by $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# What a login node needs, without training libraries: enough for a first page.
$(BASE): pyproject.toml constraints.txt | $(BIN)/python
	@$(SETUP) -e .
	@touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@$(SETUP) -e '.[dev]'
	@touch $(BASE) $@

demo: $(BASE) ## Run the whole pipeline on the embedded trace; a first page after a minute, then data/report.html
	@python -m pipeline.demo.first
	@$(MAKE) --no-print-directory $(STAMP)
	dvc repro
	@echo "Open data/report.html. Ask about one job: $(BIN)/pellucid explain JOB --run data/runs/pellucid"

test: lint unit ## Linters, type checker, import rule, every test

lint: install
	ruff check .
	ruff format --check .
	mypy
	lint-imports

# three workers on two cores: tests of services wait more than they compute
unit: install
	python -m pytest -n 3

walks: install ## Do what the documentation says, as written, and kill and move a service; for minutes
	PELLUCID_WALKS=1 python -m pytest -n 2 tests/docs tests/test_units.py tests/benchmarks/test_moves.py \
	  tests/benchmarks/test_chaos.py

mlflow: install ## Serve the MLflow UI on http://127.0.0.1:5000
	@echo "Open http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=errors&workflowType=machine_learning"
	mlflow server --backend-store-uri sqlite:///mlflow.db --default-artifact-root mlartifacts --host 127.0.0.1 --port 5000 --workers 1

docs: install ## Build docs/ as a site, and the man page, into docs/_build
	@$(SETUP) -e '.[docs]'
	mkdir -p docs/_build
	$(BIN)/python -m typer pipeline.app utils docs --name pellucid --title Commands --output docs/_build/commands.md
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -b html . docs/_build/html
	$(BIN)/python -m sphinx -q -c docs -b man . docs/_build/man
	@echo "Open docs/_build/html/index.html; man -l docs/_build/man/pellucid.1"

benchmark: install ## Run the benchmarks that have budgets
	python -m benchmarks.simulator --json
	python -m benchmarks.ingest --json
	python -m benchmarks.printed --json
	python -m benchmarks.size --json --waiting 1000,10000
	python -m benchmarks.load --json
	python -m benchmarks.front_door --json --quick

mutants: install ## Plant bugs, one at a time: would the tests notice? And chaos? For a night
	python -m benchmarks.mutants --json
	python -m benchmarks.mutants --json --chaos

wheel: install ## Build the wheel, into dist/; twice, to the same bytes
	$(BIN)/python -m benchmarks.wheel dist

why: install ## Build dist/pellucid.pyz: why, eta and queue as one file that asks Slurm itself
	$(BIN)/python -m pipeline.onefile.build dist

PYTHONS ?=
wheel-test: install ## Install the wheel by itself, outside the repository, and use it; PYTHONS="...": for these, too
	PELLUCID_WHEEL=1 PELLUCID_PYTHONS="$(PYTHONS)" $(BIN)/python -m pytest tests/wheel

clean: ## Remove what the pipeline made (not .venv)
	rm -rf data/first data/code data/trace data/draws data/features.parquet data/candidate data/bundle data/runs data/metrics data/plots data/report.html mlflow.db mlartifacts

-include profiler.mk
-include service.mk
-include slurm.mk
-include release.mk
