"""The workflows that test and release, read by the programs that know their rules."""

import re
from pathlib import Path

import pytest
from tests.deploy import tools
from tests.deploy.boot_machine import run

pytestmark = pytest.mark.deploy_files
ROOT = Path(__file__).parents[2]
NOT_TARGETS = {"find", "python", "run"}
"""Words of a command that gives an option its value."""
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_the_form_of_githubs_schema(path):
    run(tools.check_jsonschema(), "--builtin-schema", "vendor.github-workflows", path)


def test_the_file_of_dependabot_has_the_form_of_its_schema():
    run(tools.check_jsonschema(), "--builtin-schema", "vendor.dependabot", ROOT / ".github/dependabot.yml")


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
    assert {target for target in targets if not re.search(rf"(?m)^{target}:", makefile)} <= {"uv", *NOT_TARGETS}
