"""`make check` and `make test` run the tests of what changed, continuous integration all."""

import subprocess
from pathlib import Path

import pytest
from tests.changed import ROOT, deploy_files_changed, paths_for


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("agent/chipwatch/engine/spool/queue.py", {"tests/agent/engine/spool/test_queue.py"}),
        ("agent/chipwatch/engine/window.py", {"tests/agent/engine/test_window.py"}),
        ("tests/agent/engine/test_window.py", {"tests/agent/engine/test_window.py"}),
        ("tests/agent/engine/test_gone.py", set()),
        ("README.md", set()),
        ("helm/chipwatch/values.yaml", set()),
    ],
)
def test_a_changed_file_has_the_paths_for_its_name(name, tests):
    found = paths_for(name)
    assert {str(path) for path in found} >= tests
    assert all((ROOT / path).exists() for path in found)
    assert bool(found) == bool(tests)


def test_other_files_than_our_modules_have_none():
    assert paths_for(str(Path("elsewhere/agent.py"))) == []


@pytest.fixture
def branch(tmp_path):
    """A branch that has left main; `commit` writes a file and commits it, `git` runs git."""

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def commit(name):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
        git("add", "--all")
        git("commit", "--message", name)

    git("init", "--initial-branch", "main")
    commit("helm/chipwatch/Chart.yaml")
    git("checkout", "-b", "topic")
    return tmp_path, commit


@pytest.mark.parametrize("name", ["helm/chipwatch/values.yaml", "terraform/aws/main.tf", "tests/deploy/test_helm.py"])
def test_a_file_that_is_deployed_counts_from_its_change_until_the_end_of_the_branch(branch, name):
    folder, commit = branch
    commit("agent/chipwatch/commands/cli.py")
    assert not deploy_files_changed(folder)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("2")
    assert deploy_files_changed(folder)
    commit(name)
    commit("README.md")
    assert deploy_files_changed(folder)


def test_outside_a_checkout_nothing_has_changed(tmp_path):
    assert not deploy_files_changed(tmp_path)


def test_continuous_integration_checks_what_is_deployed_and_draws_every_example():
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert any(line.startswith("make test DEPLOY_FILES=yes ") for line in lines)
    assert any(line.startswith("export CI=") for line in lines)
    recipe = (ROOT / "Makefile").read_text().partition("\ntest: ")[2].partition("\n\n")[0]
    assert '[ "$(DEPLOY_FILES)" = yes ] ||' in recipe
