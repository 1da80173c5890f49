# Two commands do all the set-up: `make run` and `make test`. Both work in .venv, which they make and keep up to date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint unit bench golden constraints dist clean

run: $(VENV)/run.stamp
	@$(BIN)/agent $(or $(ARGS),--interval 1)

test: lint unit

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/dev.stamp
	$(BIN)/pytest -n auto $(PYTEST_ARGS)

bench: $(VENV)/dev.stamp
	$(BIN)/python -m tests.bench $(ARGS)

golden: $(VENV)/dev.stamp
	$(BIN)/python -m tests.golden.update

# What is installed is pinned with hashes; the project itself comes from this folder, and needs no network.
$(VENV)/run.stamp: constraints.txt pyproject.toml | $(VENV)/made.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: constraints-dev.txt pyproject.toml | $(VENV)/made.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/run.stamp

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "chipwatch needs Python 3.11 or later; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Pins every dependency anew, for every platform and Python that is supported; needs uv and an index.
constraints:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --upgrade --extra all pyproject.toml constraints.in --output-file constraints.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --no-annotate --upgrade --extra dev pyproject.toml constraints.in --constraints constraints.txt \
	  --output-file constraints-dev.txt

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
