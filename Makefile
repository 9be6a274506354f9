# Every target sets up what it needs: `make demo` and `make test` work from a fresh clone (see tools/bootstrap.py).
SHELL := /bin/bash
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
WORKERS := 2
RESOLVE := tools/bootstrap uv pip compile --quiet --generate-hashes --only-binary :all: \
	--python-version 3.10 --python-platform x86_64-manylinux_2_28 --custom-compile-command "make lock" $(UPGRADE)
unexport PYTHONPATH PYTHONHOME
export PYTHONNOUSERSITE := 1

.PHONY: help demo test test-slow lint types format bench docs site venv lock clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo: venv ## compile and run a small model, and show what there is to see
	@$(BIN)/epu demo

test: lint types ## lint, type check and all tests but the slow ones
	@$(PYTEST) -n $(WORKERS)

test-slow: venv ## the slow tests alone
	@$(PYTEST) -n $(WORKERS) -m slow

lint: venv ## ruff: rules and format
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .

types: venv ## mypy, strict
	@$(BIN)/python tools/check_types.py

format: venv ## rewrite the sources in the house format
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

bench: venv ## the benchmarks
	@$(BIN)/python -m benchmarks

docs: venv ## rewrite the generated pages of docs/
	@$(BIN)/python tools/generate_docs.py

site: venv ## build the documentation into build/site, to be opened from disk
	@$(BIN)/python -m mkdocs build --quiet --clean

venv: ## the environment: CPython 3.10, pinned requirements, the project
	@tools/bootstrap

lock: ## resolve requirements.txt anew (UPGRADE=--upgrade for new releases)
	@$(RESOLVE) requirements.in requirements-relay.in requirements-notebooks.in requirements-dev.in -o requirements.txt
	@$(RESOLVE) tools/uv.in -o tools/uv.txt

clean: ## remove all that the targets made
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
