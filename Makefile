# `make run`, `make check`, `make test` and `make proof` do all the set-up. They work in .venv, which they make and keep up to date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

PINS := requirements
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
PIP_RELEASE = $(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check

RELEASE := .release
SITE := .site
.PHONY: run check test proof lint tools unit test-pythons test-deploy-files test-deploy test-rollout search bench peers perturb scale golden size picture picture-report constraints dist wheelhouse packages sums chart sbom site release-check release-forms release-tag publish-draft publish-index publish-image publish-chart try image images dashboards demo demo-node clean

# A command in ARGS, such as `make run ARGS=check`, comes first and has no interval.
run: $(VENV)/run.stamp
	@$(BIN)/agent $(if $(filter-out -%,$(firstword $(ARGS))),,--interval 1) $(ARGS)

# A first run, for systems where not all tests can run.
try: $(VENV)/run.stamp
	$(BIN)/chipwatch --version
	$(BIN)/chipwatch check
	$(BIN)/chipwatch --once

# Every check of the program that needs no server but moto: six minutes of CPU time. If a deployed file has changed on this
# branch, the checks of deployed files follow; DEPLOY_FILES=yes runs them always, as .ci/run does.
test: lint unit
	@if [ "$(DEPLOY_FILES)" = yes ] || $(BIN)/python tests/changed.py --deploy-files; then $(MAKE) test-deploy-files; \
	  else echo 'no file that is deployed has changed; `make test-deploy-files` checks them all the same'; fi

# Comparisons with real programs, each in its environment below .proof; one that cannot be installed is skipped with its reason.
proof: $(VENV)/dev.stamp tools
	$(BIN)/python -m tests.proof.parts $(EXPECT_WORDS)
	$(BIN)/pytest -n auto --dist loadgroup -m proof $(PYTEST_ARGS)

# Charts, modules, task definitions, units and packages, checked by the programs that will read them.
test-deploy-files: $(VENV)/dev.stamp tools
	$(BIN)/pytest $(PARALLEL) -m deploy_files tests/deploy $(PYTEST_ARGS)

# A developer's loop: the whole lint, the tests of changed files, and quick tests of each room.
QUICK ?= $(addprefix tests/agent/,config net engine/test_window.py \
  engine/spool/test_ledger.py host/test_counters.py contract/test_datapoint.py) \
  tests/agent/test_public_face.py $(filter-out %/test_commands.py %/test_screens.py %/test_tutorial.py,$(wildcard tests/docs/test_*.py)) tests/golden tests/test_english.py tests/test_names.py tests/sinks/test_stdout.py
check: lint
	$(BIN)/pytest -n 2 --quiet $(QUICK) $$($(BIN)/python tests/changed.py) $(PYTEST_ARGS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory -j2 mypy-linux mypy-darwin
	$(BIN)/lint-imports

# Each takes one core for half a minute where its cache is new.
mypy-%:
	$(BIN)/mypy --platform $* --cache-dir .mypy_cache/$*

# Checkers of deployed files, in .tools. One that cannot be installed is left out, and its checks are skipped;
# `make test-deploy-files TOOLS=no` does without them all. EXPECT names a file with the checkers that must be there, as .ci/run does.
TOOLS ?= yes
EXPECT_WORDS := $(if $(EXPECT),--expect $(EXPECT))
tools: $(VENV)/dev.stamp
ifneq ($(TOOLS),no)
	@$(BIN)/python tests/deploy/tools.py $(EXPECT_WORDS)
endif

# Most tests wait for a process: two workers a core. A worker takes four tests at a time, since the slowest come first; one
# at a time takes a tenth more CPU.
PARALLEL = -n $$($(BIN)/python -c 'import os; print(2 * min(os.cpu_count(), 8))') --maxschedchunk 4
unit: $(VENV)/dev.stamp
	$(BIN)/pytest $(PARALLEL) -m "not deploy and not proof and not deploy_files" $(PYTEST_ARGS)

# The same on each other Python that is on PATH, in an environment each; one that is missing is named, and in CI an error.
test-pythons:
	@set -e; for python in $(or $(PYTHON_VERSIONS),3.12 3.13 3.14); do \
	  if python$$python --version >/dev/null 2>&1; then $(MAKE) unit VENV=.pythons/$$python PYTHON=python$$python; \
	  else echo "python$$python is not on PATH: nothing was tested on it" >&2; test -z "$$CI"; fi; done

# Needs root: the image built and run by buildah, podman and runc, a unit under a real systemd.
test-deploy: $(VENV)/dev.stamp tools
	$(BIN)/pytest -m deploy -s tests/deploy $(PYTEST_ARGS)

# The same for install.sh on Debian 12 and 13 and Ubuntu 24.04: install, update, broken updates, downgrade, removal; 20 minutes.
test-rollout: $(VENV)/dev.stamp
	$(BIN)/pytest -m deploy -s tests/deploy/test_rollout.py $(PYTEST_ARGS)

# Lives of the agent in a world that misbehaves, and odd input: docs/maintain/properties.md. SECONDS=60, SEED=n to repeat, PARTS="lives inputs" for some.
search: $(VENV)/dev.stamp
	@env SECONDS=$(or $(SECONDS),600) $(BIN)/python -m tests.search

# Costs beside what is asked and what the last release had; fails where one is more than 25 % worse. ARGS="--only beside" for some.
bench: $(VENV)/dev.stamp
	$(BIN)/python -m tests.bench $(ARGS)

# Other programs beside the agent, in .peers and .venv: writes docs/benchmarks.md and README's figures. ARGS="--seconds 20 --runs 1 --only psutil,stdout" only prints.
peers: $(VENV)/dev.stamp
	$(BIN)/python -m tests.peers $(ARGS)

# What a computing loop feels of each program on its core; writes docs/benchmarks.md. ARGS="--training 1000" for a training.
perturb: $(VENV)/dev.stamp
	$(BIN)/python -m tests.perturb $(ARGS)

# Many series, a large machine, the recorder: five minutes; writes docs/benchmarks.md. ARGS="--rounds 1 --only large" for some.
scale: $(VENV)/dev.stamp
	$(BIN)/python -m tests.scale $(ARGS)

golden: $(VENV)/dev.stamp
	$(BIN)/python -m tools.golden

# A fleet in a browser: agents of invented nodes, a Prometheus and a page, on loopback; Ctrl-C stops all. ARGS="--nodes 1" for less.
demo: $(VENV)/run.stamp
	@exec $(BIN)/python -m tools.demo $(ARGS)

# A shell whose chipwatch reads an invented node with eight GPUs of a fake driver, so that README's commands can be typed.
demo-node: $(VENV)/run.stamp
	@exec $(BIN)/python -m tools.demo --shell

# The files in dashboards/, which `make golden` writes too.
dashboards: $(VENV)/dev.stamp
	$(BIN)/python -m tools.dashboards

# The table of lines of code in CONTRIBUTING.md, and what is over its budget in tools/size_budgets.json; ARGS=--lower lowers the budgets.
size: $(VENV)/dev.stamp
	$(BIN)/python -m tools.size $(ARGS)

# The pictures and the outputs in README: a node with eight GPUs of a fake driver.
picture: $(VENV)/dev.stamp
	$(BIN)/python -m tools.picture .

# The picture of docs/report.md: the same node, recorded and shown in Chromium (`apt-get install chromium`).
picture-report: $(VENV)/dev.stamp
	$(BIN)/python -m tools.report_picture .

# Dependencies are pinned with hashes; the project itself comes from this folder, and needs no network. While pip is silent, a dot
# every two seconds shows that it works; the loop of dots ends with its shell, too.
$(VENV)/run.stamp: $(PINS)/constraints.txt pyproject.toml | $(VENV)/made.stamp
	@printf 'installing %d libraries and chipwatch into $(VENV), about 25 s ' $$(grep -c '^[a-z]' $<); \
	  (while sleep 2 && kill -0 $$$$ 2>&-; do printf .; done) & dots=$$!; \
	  $(PIP) --require-hashes -r $< && $(PIP) --no-deps --no-build-isolation --editable .; code=$$?; kill $$dots; echo; exit $$code
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

# Renews the pins of every dependency, for every platform and Python that is supported; needs uv and an index. What one extra needs is
# in a file with its name (base.txt: no extra; build.txt: the build of this folder), as pinned in constraints.txt.
COMPILE := uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version
ALL_EXTRAS := cloudwatch google kubernetes prometheus tpu
constraints:
	$(COMPILE) 3.11 --upgrade --extra all pyproject.toml $(PINS)/build.in --output-file $(PINS)/constraints.txt
	$(COMPILE) 3.11 --upgrade --extra dev pyproject.toml $(PINS)/build.in --constraints $(PINS)/constraints.txt --output-file $(PINS)/constraints-dev.txt
	$(COMPILE) 3.11 --upgrade --no-strip-extras $(PINS)/release.in --constraints $(PINS)/constraints.txt --output-file $(PINS)/constraints-release.txt
	$(COMPILE) 3.12 --upgrade $(PINS)/tools-helm4.in --output-file $(PINS)/constraints-tools-helm4.txt
	@set -e; for part in tools peers proof-wandb proof-mlflow proof-otlp proof-grafana proof-notebook proof-mocknvml proof-site; do \
	  $(COMPILE) 3.11 --upgrade $(PINS)/$$part.in --output-file $(PINS)/constraints-$$part.txt; done
	@set -e; for extra in base $(ALL_EXTRAS); do \
	  $(COMPILE) 3.11 --upgrade $$(test $$extra = base || echo --extra $$extra) pyproject.toml $(PINS)/install.in --constraints $(PINS)/constraints.txt --output-file $(PINS)/$$extra.txt; done
	$(COMPILE) 3.11 --upgrade $(PINS)/build.in --constraints $(PINS)/constraints.txt --output-file $(PINS)/build.txt

# Wheel and sdist, reproducible; install.sh; and a folder for machines without an index, with all that EXTRAS needs, by hash:
#   (cd dist && sha256sum --check SHA256SUMS) && pip install --no-index --find-links dist/wheelhouse 'chipwatch[cloudwatch]'
EXTRAS ?= cloudwatch
PYTHONS ?= 3.11 3.12 3.13 3.14
PLATFORMS ?= x86_64 aarch64
DOWNLOAD := $(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary :all: --no-deps --require-hashes
SUMS = $(PYTHON) -m tools.release sums
comma := ,
OF_EXTRAS = $(addprefix --requirement ,$(patsubst %,$(PINS)/%.txt,$(or $(subst all,$(ALL_EXTRAS),$(subst $(comma), ,$(EXTRAS))),base)))

dist packages image: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),1577836800)
dist: $(VENV)/run.stamp
	rm -rf dist build/wheels
	$(BIN)/python -m hatchling build --directory dist
	@echo 'wheels for Python $(PYTHONS) on $(PLATFORMS)'
	@for python in $(PYTHONS); do for platform in $(PLATFORMS); do echo $$python $$platform; done; done | xargs -P 4 -n 2 sh -c \
	  '$(DOWNLOAD) --python-version $$0 --platform manylinux_2_28_$$1 --platform manylinux_2_17_$$1 $(OF_EXTRAS) --dest build/wheels/$$0-$$1'
	@mkdir dist/wheelhouse && find build/wheels -name '*.whl' -exec cp {} dist/wheelhouse/ \; && cp install.sh dist/
	@$(SUMS)

# Forms that need no Python: one file, an archive for install.sh, a deb (dpkg-deb) and an rpm (rpmbuild). They need the glibc that PYTHON was built with, so a
# release takes one of uv's, which needs an old one only: make packages PYTHON="$$(uv python find --managed-python 3.13)"
FORMS ?= onefile archive deb rpm
packages: $(RELEASE)/stamp
	$(PIP_RELEASE) --no-deps --force-reinstall --no-build-isolation .
	$(RELEASE)/bin/python deploy/packages/build.py $(FORMS)
	@$(SUMS)

# What `make dist` made as one file, for the page of a release, which has no folders.
wheelhouse: dist
	@$(PYTHON) -m tools.release wheelhouse

# The SHA-256 of every file in dist/.
sums:
	@$(SUMS)

# What is in the program, as CycloneDX: every dependency with its version and hashes.
sbom: $(RELEASE)/stamp
	@mkdir -p dist
	$(RELEASE)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON $(PINS)/constraints.txt > dist/sbom.cdx.json

# The chart as a file for a registry.
chart: $(VENV)/dev.stamp tools
	.tools/bin/helm package helm/chipwatch --destination dist

# What only the workflow of a release runs, with its identity. Each target may run again: what is out already stays as it is.
# The page of the release as a draft; the files of a draft are replaced, those of a published page are not.
publish-draft:
	@case "$$(gh release view "$(TAG)" --json isDraft --jq .isDraft)" in true) ;; \
	  '') gh release create "$(TAG)" --verify-tag --draft --generate-notes ;; \
	  *) echo "the page of $(TAG) is out, and its files stay: make the next number" >&2; exit 1 ;; esac
	gh release upload "$(TAG)" --clobber dist/chipwatch* dist/install.sh dist/SHA256SUMS dist/sbom.cdx.json

# The index takes a file that it has already in silence.
publish-index: $(RELEASE)/stamp
	$(RELEASE)/bin/python -m pypi_attestations sign dist/chipwatch-*.whl dist/chipwatch-*.tar.gz
	$(RELEASE)/bin/uv publish --trusted-publishing always dist/chipwatch-*.whl dist/chipwatch-*.tar.gz

# The images that each machine built, as one manifest, which is signed with both: of chipwatch, or of chipwatch-demo.
publish-image:
	@set -e; $(DOCKER) buildx imagetools inspect $(IMAGE) >/dev/null || { for arch in $(ARCHS); do $(DOCKER) load --input image-$$arch.tar; \
	  $(DOCKER) tag $(firstword $(subst :, ,$(notdir $(IMAGE)))):$$arch $(IMAGE)-$$arch; $(DOCKER) push $(IMAGE)-$$arch; done; \
	  $(DOCKER) buildx imagetools create --tag $(IMAGE) $(addprefix $(IMAGE)-,$(ARCHS)); }
	cosign sign --yes --recursive "$(IMAGE)@$$($(DOCKER) buildx imagetools inspect --format '{{.Manifest.Digest}}' $(IMAGE))"

# Helm would give the same chart another digest at each push.
publish-chart:
	@mkdir -p build; helm pull oci://$(CHARTS)/chipwatch --version $(VERSION) --destination build >build/chart 2>&1 \
	  || helm push dist/chipwatch-$(VERSION).tgz oci://$(CHARTS) >build/chart 2>&1; code=$$?; cat build/chart; exit $$code
	cosign sign --yes "$(CHARTS)/chipwatch@$$(sed -n 's/^Digest: //p' build/chart)"

# The pages of docs/ as a site in build/site; `make site ARGS=serve` shows it while you write.
site: $(SITE)/stamp
	$(SITE)/bin/python -m tools.site $(ARGS)

# All that a release needs but publishing, and the seconds of each step. docs/maintain/releasing.md says what a person does then.
release-check:
	@set -e; for step in lint unit test-deploy-files proof wheelhouse sbom chart packages site; do begun=$$(date +%s); \
	  $(MAKE) --no-print-directory $$step; took="$$took $$step $$(($$(date +%s) - begun)) s,"; done; \
	  $(MAKE) --no-print-directory release-forms PYTHON=$(BIN)/python; echo "took   $${took%,}"

# The forms in dist/ as a machine without a network sees them, each with its first datapoint.
release-forms:
	@$(PYTHON) -m tools.release

# The first step of a release: its tag, the program, the chart and the changelog name one version.
release-tag:
	@$(PYTHON) -m tools.release tag $(TAG)

$(RELEASE)/stamp: $(PINS)/constraints.txt $(PINS)/constraints-release.txt
	@$(PYTHON) -m venv $(RELEASE)
	@$(PIP_RELEASE) --require-hashes -r $(PINS)/constraints-release.txt
	@$(PIP_RELEASE) --require-hashes -r $<
	@touch $@

$(SITE)/stamp: $(PINS)/constraints-proof-site.txt
	@$(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# The container's image; see ecs-sidecar/README.md.
DOCKER ?= docker
TARGET ?= image
image:
	@test -n "$(IMAGE)" || { echo "IMAGE is missing: the name of the image, as in IMAGE=chipwatch:0.1.0" >&2; exit 2; }
	@echo "$(BUILD_BASE)" | grep -Eq '@sha256:[0-9a-f]{64}$$' || { echo "BUILD_BASE is to end with a digest (see ecs-sidecar/README.md), not: '$(BUILD_BASE)'" >&2; exit 2; }
	@echo "$(RUN_BASE)" | grep -Eq '@sha256:[0-9a-f]{64}$$' || { echo "RUN_BASE is to end with a digest (see ecs-sidecar/README.md), not: '$(RUN_BASE)'" >&2; exit 2; }
	$(DOCKER) build $(if $(PLATFORM),--platform $(PLATFORM)) --file ecs-sidecar/Dockerfile --target $(TARGET) --tag $(IMAGE) --build-arg EXTRAS=$(EXTRAS) \
	  --build-arg BUILD_BASE=$(BUILD_BASE) --build-arg RUN_BASE=$(RUN_BASE) $(if $(NEURON_BASE),--build-arg NEURON_BASE=$(NEURON_BASE)) \
	  --build-arg VERSION=$(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' agent/chipwatch/base/version.py) \
	  --build-arg REVISION=$(or $(shell git rev-parse HEAD 2>/dev/null),unknown) \
	  --build-arg CREATED=$(or $(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null),1970-01-01T00:00:00Z) \
	  --build-arg SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) .

# The same for both machines, pushed to a registry, and IMAGE as one manifest of them. The last steps of each run the agent, so the
# other machine's image needs that machine, or its emulation (binfmt).
ARCHS ?= amd64 arm64
images:
	@set -e; for arch in $(ARCHS); do $(MAKE) image IMAGE=$(IMAGE)-$$arch PLATFORM=linux/$$arch; $(DOCKER) push $(IMAGE)-$$arch; done
	$(DOCKER) manifest create $(IMAGE) $(addprefix $(IMAGE)-,$(ARCHS))
	$(DOCKER) manifest push $(IMAGE)

clean:
	rm -rf $(VENV) .pythons .tools .proof .peers $(RELEASE) $(SITE) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
