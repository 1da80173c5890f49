# `make run`, `make check`, `make test` and `make proof` do all the set-up. They work in .venv, which they make and keep up to date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

PINS := requirements
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run check test proof lint tools unit test-deploy-files test-deploy faults bench peers golden dashboards demo size picture picture-report constraints dist image clean

# A command in ARGS, such as `make run ARGS=check`, comes first and has no interval.
run: $(VENV)/run.stamp
	@$(BIN)/agent $(if $(filter-out -%,$(firstword $(ARGS))),,--interval 1) $(ARGS)

# Every check of the program that needs no server but moto: six minutes of CPU time. If a deployed file has changed on this
# branch, the checks of deployed files follow; DEPLOY_FILES=yes runs them always, as .ci/run does.
test: lint unit
	@if [ "$(DEPLOY_FILES)" = yes ] || $(BIN)/python tests/changed.py --deploy-files; then $(MAKE) test-deploy-files; \
	  else echo 'no file that is deployed has changed; `make test-deploy-files` checks them all the same'; fi

# Comparisons with real programs, each in its environment below .proof. One that cannot be installed is skipped with its reason.
proof: $(VENV)/dev.stamp tools
	$(BIN)/python -m tests.proof.parts $(EXPECT_WORDS)
	$(BIN)/pytest -n auto --dist loadgroup -m proof $(PYTEST_ARGS)

# Charts, modules, task definitions, units and packages, checked by the programs that will read them.
test-deploy-files: $(VENV)/dev.stamp tools
	$(BIN)/pytest $(PARALLEL) -m deploy_files tests/deploy $(PYTEST_ARGS)

# A developer's loop: the whole lint, the tests of changed files, and quick tests of each room.
QUICK ?= $(addprefix tests/agent/,config logs net naming/test_rename.py naming/test_rename_cwagent.py pipeline/test_window.py \
  spool/test_codec.py spool/test_ledger.py host/test_counters.py test_datapoint.py) \
  tests/agent/test_public_face.py $(filter-out %/test_commands.py %/test_screens.py %/test_tutorial.py,$(wildcard tests/docs/test_*.py)) tests/golden tests/test_english.py tests/test_names.py tests/sinks/test_stdout.py
check: lint
	$(BIN)/pytest -n 2 --quiet $(QUICK) $$($(BIN)/python tests/changed.py) $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Checkers of deployed files, in .tools. One that cannot be installed is left out, and its checks are skipped;
# `make test-deploy-files TOOLS=no` does without them all. EXPECT names a file with the checkers that must be there, as .ci/run does.
TOOLS ?= yes
EXPECT_WORDS := $(if $(EXPECT),--expect $(EXPECT))
tools: $(VENV)/dev.stamp
ifneq ($(TOOLS),no)
	@$(BIN)/python tests/deploy/tools.py $(EXPECT_WORDS)
endif

# Most tests wait for a process: two workers a core. A worker takes one test at a time, since the slowest come first.
PARALLEL = -n $$($(BIN)/python -c 'import os; print(2 * min(os.cpu_count(), 8))') --maxschedchunk 1
unit: $(VENV)/dev.stamp
	$(BIN)/pytest $(PARALLEL) -m "not deploy and not proof and not deploy_files" $(PYTEST_ARGS)

# Needs root: the image built and run by buildah, podman and runc, a unit under a real systemd.
test-deploy: $(VENV)/dev.stamp tools
	$(BIN)/pytest -m deploy -s tests/deploy $(PYTEST_ARGS)

# Ten minutes of faults; FULL=1 for all of them, SEED=n to repeat, PARTS="soak inputs" for some.
faults: $(VENV)/dev.stamp
	$(BIN)/python -m tests.faults

# Costs beside what is asked and what the last release had; fails where one is more than 25 % worse. ARGS="--only beside" for some.
bench: $(VENV)/dev.stamp
	$(BIN)/python -m tests.bench $(ARGS)

# Other programs beside the agent, in .peers and .venv: writes docs/benchmarks.md and README's figures. ARGS="--seconds 20 --runs 1 --only psutil,stdout" only prints.
peers: $(VENV)/dev.stamp
	$(BIN)/python -m tests.peers $(ARGS)

golden: $(VENV)/dev.stamp
	$(BIN)/python -m tools.golden

# A fleet in a browser: agents of invented nodes, a Prometheus and a page, on loopback; Ctrl-C stops all. ARGS="--nodes 1" for less.
demo: $(VENV)/run.stamp
	@exec $(BIN)/python -m tools.demo $(ARGS)

# The files in dashboards/, which `make golden` writes too.
dashboards: $(VENV)/dev.stamp
	$(BIN)/python -m tools.dashboards

# The table of lines of code in CONTRIBUTING.md.
size: $(VENV)/dev.stamp
	$(BIN)/python -m tools.size

# The pictures and the outputs in README: a node with eight GPUs of a fake driver.
picture: $(VENV)/dev.stamp
	$(BIN)/python -m tools.picture .

# The picture of docs/report.md: the same node, recorded and shown in Chromium (`apt-get install chromium`).
picture-report: $(VENV)/dev.stamp
	$(BIN)/python -m tools.report_picture .

# Dependencies are pinned with hashes; the project itself comes from this folder, and needs no network.
$(VENV)/run.stamp: $(PINS)/constraints.txt pyproject.toml | $(VENV)/made.stamp
	@echo 'installing into $(VENV), about 30 s'
	@$(PIP) --require-hashes -r $<
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: $(PINS)/constraints-dev.txt pyproject.toml | $(VENV)/made.stamp
	$(PIP) --require-hashes -r $<
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/run.stamp

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "chipwatch needs Python 3.11 or later; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo 'making $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Renews the pins of every dependency, for every platform and Python that is supported; needs uv and an index.
COMPILE := uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade --python-version
constraints:
	$(COMPILE) 3.11 --extra all pyproject.toml $(PINS)/build.in --output-file $(PINS)/constraints.txt
	$(COMPILE) 3.11 --extra dev pyproject.toml $(PINS)/build.in --constraints $(PINS)/constraints.txt --output-file $(PINS)/constraints-dev.txt
	$(COMPILE) 3.12 $(PINS)/tools-helm4.in --output-file $(PINS)/constraints-tools-helm4.txt
	@set -e; for part in tools peers proof-wandb proof-mlflow proof-otlp proof-grafana proof-notebook; do \
	  $(COMPILE) 3.11 $(PINS)/$$part.in --output-file $(PINS)/constraints-$$part.txt; done

# Wheel and sdist, reproducible; and a folder for machines without an index, with all that EXTRAS needs, by hash:
#   (cd dist && sha256sum --check SHA256SUMS) && pip install --no-index --find-links dist/wheelhouse 'chipwatch[cloudwatch]'
EXTRAS ?= cloudwatch
PYTHONS ?= 3.11 3.12 3.13
PLATFORMS ?= x86_64 aarch64
DOWNLOAD := $(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary :all:

dist: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),1577836800)
dist: $(VENV)/dev.stamp
	rm -rf dist build/wheels
	$(BIN)/python -m hatchling build --directory dist
	@set -e; for python in $(PYTHONS); do for platform in $(PLATFORMS); do \
	  echo "wheels for Python $$python on $$platform"; \
	  for_them="--python-version $$python --platform manylinux_2_28_$$platform --platform manylinux_2_17_$$platform"; \
	  $(DOWNLOAD) $$for_them --no-deps --require-hashes --requirement $(PINS)/constraints.txt --dest build/wheels; \
	  $(DOWNLOAD) $$for_them --no-index --find-links build/wheels --dest dist/wheelhouse "$$(echo dist/*.whl)[$(EXTRAS)]"; \
	done; done
	@$(BIN)/python -c 'import hashlib, pathlib; top = pathlib.Path("dist"); print(*(f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.relative_to(top)}" \
	  for f in sorted(top.rglob("*")) if f.suffix in (".whl", ".gz")), sep="\n")' > build/SHA256SUMS && mv build/SHA256SUMS dist/

# The container's image; see ecs-sidecar/README.md.
DOCKER ?= docker
TARGET ?= image
image:
	@test -n "$(IMAGE)" || { echo "IMAGE is missing: the name of the image, as in IMAGE=chipwatch:0.1.0" >&2; exit 2; }
	@echo "$(BUILD_BASE)" | grep -Eq '@sha256:[0-9a-f]{64}$$' || { echo "BUILD_BASE is to end with a digest (see ecs-sidecar/README.md), not: '$(BUILD_BASE)'" >&2; exit 2; }
	@echo "$(RUN_BASE)" | grep -Eq '@sha256:[0-9a-f]{64}$$' || { echo "RUN_BASE is to end with a digest (see ecs-sidecar/README.md), not: '$(RUN_BASE)'" >&2; exit 2; }
	$(DOCKER) build --file ecs-sidecar/Dockerfile --target $(TARGET) --tag $(IMAGE) --build-arg EXTRAS=$(EXTRAS) \
	  --build-arg BUILD_BASE=$(BUILD_BASE) --build-arg RUN_BASE=$(RUN_BASE) $(if $(NEURON_BASE),--build-arg NEURON_BASE=$(NEURON_BASE)) \
	  --build-arg VERSION=$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' agent/chipwatch/contract/version.py) \
	  --build-arg REVISION=$(or $(shell git rev-parse HEAD 2>/dev/null),unknown) \
	  --build-arg CREATED=$(shell date -u +%Y-%m-%dT%H:%M:%SZ) .

clean:
	rm -rf $(VENV) .tools .proof .peers build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
