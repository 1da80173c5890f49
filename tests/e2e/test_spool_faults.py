"""A real agent's spool in a run that is brief."""

import re

import pytest
from tests.doubles.cloudwatch import CloudwatchDouble, isolate
from tests.search.properties import books


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch):
    isolate(monkeypatch)


@pytest.fixture
def words(double):
    return ("--sink", "cloudwatch", "--collector", "memory", "--interval", "0.1", "--window", "0.1", "--flush", "0",
            "--region", "eu-west-1", "--endpoint-url", double.url, "--dim", "host=test")  # fmt: skip


@pytest.fixture
def double():
    with CloudwatchDouble(listen=False) as away:
        yield away


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


@pytest.mark.parametrize("brief", [("--once",), ("--duration", "0.5")], ids=["once", "duration"])
def test_a_brief_run_leaves_nothing_behind_and_says_what_was_not_sent(agent, double, words, tmp_path, brief):
    state = tmp_path / "state"
    done = agent.run(*words, *brief, env={"STATE_DIRECTORY": state})
    assert done.returncode == 1
    assert ": cannot send" in done.stderr
    assert not state.exists()
    double.listen()
    done = agent.run(*words, *brief, env={"STATE_DIRECTORY": state})
    assert done.returncode == 0, done.stderr
    assert double.datums
    assert not state.exists()


def test_a_run_of_a_duration_that_loses_points_says_where_they_could_be_kept(agent, words, tmp_path):
    done = agent.run(*words, "--duration", "0.5", env={"STATE_DIRECTORY": tmp_path / "state"})
    assert re.search(r"\w+: \d+ points? (is|are) lost: --duration keeps no spool; set --spool DIR\n", done.stderr)


def test_a_brief_run_that_names_a_spool_leaves_there_what_was_not_sent(agent, words, spool):
    done = agent.run(*words, "--duration", "0.5", "--spool", spool)
    assert done.returncode == 0, done.stderr
    assert books(spool / "cloudwatch.db")[1] > 0
