"""Several sinks of one kind in one agent: each has its own options, spool, ledger and name."""

import json
import re
from collections import Counter

import pytest
from tests.doubles.cloudwatch import CloudwatchDouble, isolate
from tests.search.properties import books

TWO = """
collector = ["memory", "cpu"]
interval = 0.1
window = 0
flush = 0.1
region = "eu-west-1"
[sinks.ops]
type = "cloudwatch"
namespace = "Ops"
[sinks.science]
type = "cloudwatch"
namespace = "Science"
"""


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch):
    isolate(monkeypatch)


@pytest.fixture
def double():
    with CloudwatchDouble() as made:
        yield made


@pytest.fixture
def words(double, tmp_path):
    """The flags of an agent with two sinks of the same kind."""
    file = tmp_path / "chipwatch.toml"
    file.write_text(TWO)
    return "--config", file, "--endpoint-url", double.url, "--spool", tmp_path / "spool", "--dim", "host=test"


def stored(double, namespace):
    """Return what was stored there, without its namespace."""
    return Counter(datum[1:] for datum in double.datums if datum.namespace == namespace)


def test_two_cloudwatch_sinks_get_all_points_through_separate_spools(agent, double, words, until, tmp_path):
    env = {"CHIPWATCH_SINKS__SCIENCE__HIGH_RESOLUTION": "true"}
    running = agent.start(*words, env=env)
    until(lambda: min(stored(double, name).total() for name in ("Ops", "Science")) >= 30)
    told = json.loads(agent.run("status", "--json", "--spool", tmp_path / "spool").stdout)["sinks"]
    code, _ = running.stop()
    assert (code, "cannot" in running.errors()) == (0, False)
    assert {name: sink["sent"] > 0 for name, sink in told.items()} == {"ops": True, "science": True}
    assert sorted(path.name for path in (tmp_path / "spool").glob("*.db")) == ["ops.db", "science.db"]
    ops, science = stored(double, "Ops"), stored(double, "Science")
    assert ({datum[-1] for datum in ops}, {datum[-1] for datum in science}) == ({60}, {1})
    assert Counter({datum[:-1]: n for datum, n in ops.items()}) == Counter({d[:-1]: n for d, n in science.items()})
    for name, points in (("ops", ops), ("science", science)):
        ledger, _ = books(tmp_path / "spool" / f"{name}.db")
        assert ledger == {"collected": points.total(), "sent": points.total()}


def test_one_of_them_away_keeps_its_points_and_the_other_sends(agent, double, words, until, tmp_path):
    away = {"CHIPWATCH_SINKS__SCIENCE__ENDPOINT_URL": "http://127.0.0.1:9", "CHIPWATCH_COLLECTOR": "memory"}
    log = {"CHIPWATCH_SINKS__STDOUT__INCLUDE": "agent.sink.sent", "CHIPWATCH_LEVEL": "detailed"}
    running = agent.start(*words, "--sink", "ops", "--sink", "science", "--sink", "stdout", env=away | log)
    until(lambda: stored(double, "Ops").total() >= 10)
    until(lambda: {p["dims"]["sink"] for p in running.points() if p["value"]} >= {"ops"})
    told = json.loads(agent.run("status", "--json", "--spool", tmp_path / "spool").stdout)["sinks"]
    assert running.stop()[0] == 0
    assert (told["science"]["sent"], told["ops"]["refused"]) == (0, None)
    assert told["science"]["kept"] > 0
    assert "science: cannot send" in running.errors()
    assert "ops: cannot send" not in running.errors()
    ledger, _ = books(tmp_path / "spool/science.db")
    assert "sent" not in ledger
    assert ledger["collected"] > 0


def test_two_sinks_that_send_the_same_to_one_place_are_reported_at_the_start_and_by_check(agent, words):
    text = "(and perhaps more) goes where ops sends it, too: set include or exclude in one"
    done = agent.run("check", *words, env={"CHIPWATCH_SINKS__SCIENCE__NAMESPACE": "Ops"})
    assert re.search(rf"^sink +science +twice +memory\.\w+ {re.escape(text)}$", done.stdout, re.MULTILINE)
    done = agent.run(*words, "--once", env={"CHIPWATCH_SINKS__SCIENCE__NAMESPACE": "Ops"})
    assert done.returncode == 0
    assert "sinks.science: memory." in done.stderr
    assert text in done.stderr
