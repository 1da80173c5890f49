"""The workflows that test and release, read by the programs that know their rules."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.deploy import tools
from tests.deploy.boot_machine import run

pytestmark = pytest.mark.deploy_files
ROOT = Path(__file__).parents[2]
NOT_TARGETS = {"find", "python", "run"}
"""Words of a command that gives an option its value."""
FAKE = """#!/bin/sh
echo "${0##*/} $*" >> calls
case "$*" in
  "release view"*) cat page 2> /dev/null || exit 1 ;;
  "release create"*) echo true > page ;;
  pull*) cat chart 2> /dev/null || exit 1 ;;
  push\\ dist*) echo "Digest: sha256:c" | tee chart ;;
  *"imagetools create"*) echo sha256:i > image ;;
  *"imagetools inspect"*) cat image 2> /dev/null || exit 1 ;;
esac
"""
"""docker, helm, gh and cosign: what was published is there afterwards."""
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize(("kind", "files"), [("github-workflows", WORKFLOWS), ("dependabot", [ROOT / ".github/dependabot.yml"])])  # fmt: skip
def test_a_workflow_and_the_file_of_dependabot_have_the_form_of_their_schemas(kind, files):
    run(tools.check_jsonschema(), "--builtin-schema", f"vendor.{kind}", *files)


def test_actionlint_finds_nothing_in_the_workflows():
    run(tools.actionlint(), "-no-color", "-shellcheck", tools.shellcheck(), *WORKFLOWS)


def test_zizmor_finds_nothing_in_the_workflows():
    assert "No findings" in (done := run(tools.zizmor(), "--offline", ROOT / ".github")).stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_job_runs_targets_of_the_makefile_that_are_there(path):
    text = path.read_text()
    lines = re.findall(r"(?m)^ +(?:- run: |run: )?make ([^\n]+)", text)
    targets = {word for line in lines for word in line.split() if re.fullmatch(r"[a-z][a-z-]+", word)}
    makefile = (ROOT / "Makefile").read_text()
    assert lines or ".ci/run" in text
    assert {target for target in targets if not re.search(rf"(?m)^{target}:", makefile)} <= NOT_TARGETS


def test_no_job_of_a_release_begins_before_all_is_built_and_all_above_it_is_done():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert list(jobs) == ["packages", "dist", "try", "draft", "tried", "index", "image", "chart", "page", "site"]
    behind = {}
    for name, job in jobs.items():
        needs = job.get("needs", [])
        behind[name] = {*needs, *(far for near in needs for far in behind[near])}
        builds = name in {"packages", "dist"}
        assert behind[name] == (set() if builds else {*behind} - {name}), name
        assert not builds or set(job["permissions"].values()) == {"read"}
        assert "if" not in job  # it would begin after one that failed
    assert jobs["packages"]["strategy"] == jobs["try"]["strategy"]  # each machine tries what it built


def test_what_is_on_the_page_of_a_release_is_what_has_provenance():
    (step,) = re.findall(r"subject-path: \|\n((?: +dist/.+\n)+)", (ROOT / ".github/workflows/release.yml").read_text())
    (upload,) = re.findall(r"gh release upload \S+ --clobber (.+)", (ROOT / "Makefile").read_text())
    assert step.split() == upload.split()


@pytest.mark.parametrize(
    ("target", "once", "signed"),
    [
        ("publish-draft", ["gh release create v1 --verify-tag --draft --generate-notes"], None),
        ("publish-image", ["docker tag it:amd64 host/it:1-amd64", "docker push host/it:1-amd64", "docker tag it:arm64 host/it:1-arm64", "docker push host/it:1-arm64", "docker buildx imagetools create --tag host/it:1 host/it:1-amd64 host/it:1-arm64"], "--recursive host/it:1@sha256:i"),
        ("publish-chart", ["helm push dist/chipwatch-1.tgz oci://host/charts"], "host/charts/chipwatch@sha256:c"),
    ],
)  # fmt: skip
def test_a_step_that_publishes_may_run_again(target, once, signed, tmp_path):
    for name in ("docker", "helm", "gh", "cosign"):
        (tmp_path / name).write_text(FAKE)
        (tmp_path / name).chmod(0o755)
    words = ["make", "-f", ROOT / "Makefile", target, "IMAGE=host/it:1", "CHARTS=host/charts", "VERSION=1", "TAG=v1"]
    for _ in range(2):
        path = f"{tmp_path}:{os.environ['PATH']}"
        subprocess.run(words, cwd=tmp_path, env={**os.environ, "PATH": path}, check=True, timeout=60, capture_output=True)  # fmt: skip
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call for call in calls if re.search(" (push|create|tag) ", call)] == once
    assert [call for call in calls if "cosign" in call] == [f"cosign sign --yes {signed}"] * (2 if signed else 0)
