"""Faults of a real agent's spool: a clock that jumps, another destination, a deleted file, a kill."""

import re
import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from tests.doubles.cloudwatch import CloudwatchDouble, isolate
from tests.e2e import spools
from tests.e2e.spools import LONG, ledger
from tests.faults import lives

DAYS = 20 * 86_400
JUMPING = """
import os, time
wall_ns, wall = time.time_ns, time.time
def ahead():
    try:
        return int(open(os.environ["AHEAD"]).read() or 0)
    except OSError:
        return 0
time.time_ns = lambda: wall_ns() + ahead() * 10**9
time.time = lambda: wall() + ahead()
"""


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


def owed(spool):
    """Return what CloudWatch is to show of the points that a spool owes."""
    return [lives.of_cloudwatch(*one) for one in spools.owed(spool / "cloudwatch.db")]


def end(running):
    running.process.kill()
    running.process.wait()


@pytest.fixture
def jump(plugins_folder, tmp_path, monkeypatch):
    """Set the wall clock of agents ahead, by seconds."""
    (plugins_folder.folder / "sitecustomize.py").write_text(JUMPING)
    monkeypatch.setenv("PYTHONPATH", str(plugins_folder.folder))
    monkeypatch.setenv("AHEAD", str(tmp_path / "ahead"))
    return lambda seconds: (tmp_path / "ahead").write_text(str(seconds))


def test_a_clock_that_jumps_twenty_days_ahead_for_a_moment_costs_no_point(agent, until, double, words, jump):
    spool = agent.folder / "spool"
    words = (*words, "--spool", spool)
    first = agent.start(*words)
    until(lambda: ledger(spool / "cloudwatch.db")["collected"] > 50, LONG)
    end(first)
    due = Counter(owed(spool))

    jump(DAYS)
    second = agent.start(*words)
    collected = ledger(spool / "cloudwatch.db")["collected"]
    until(lambda: ledger(spool / "cloudwatch.db")["collected"] > collected + 20, LONG)
    jump(0)
    double.listen()
    until(lambda: not due - Counter(map(lives.of_datum, double.datums)), LONG)
    code, _ = second.stop()
    assert code == 0, second.errors()
    books = ledger(spool / "cloudwatch.db")
    assert not [entry for entry in books if entry.startswith("dropped")]
    assert books["sent"] == len(double.datums)
    rejected = sum(points for entry, points in books.items() if entry.startswith("rejected"))
    assert rejected >= 20  # those stamped during the jump
    assert books["collected"] == books["sent"] + rejected


def test_points_of_a_trial_are_not_sent_to_another_namespace_and_are_sent_when_it_returns(
    agent, until, double, words, spool
):
    words = (*words, "--spool", spool)
    trial = agent.start(*words, "--namespace", "Trial")
    until(lambda: ledger(spool / "cloudwatch.db")["collected"] > 20, LONG)
    end(trial)
    count = sum(owed_points(spool / "cloudwatch.db").values())

    double.listen()
    real = agent.start(*words, "--namespace", "Real")
    until(lambda: len(double.datums) > 10, LONG)
    assert real.stop()[0] == 0
    assert {datum.namespace for datum in double.datums} == {"Real"}
    assert f"{count} points for another destination (" in real.errors()
    assert "namespace=Trial" in real.errors()
    assert sum(owed_points(spool / "cloudwatch.db").values()) == count
    check = agent.run("check", *words, "--namespace", "Real")
    assert f"{count} points wait for another destination: " in check.stdout, check.stdout

    again = agent.start(*words, "--namespace", "Trial")
    until(lambda: sum(datum.namespace == "Trial" for datum in double.datums) >= count, LONG)
    assert again.stop()[0] == 0
    assert owed_points(spool / "cloudwatch.db") == {}
    books = ledger(spool / "cloudwatch.db")
    assert books["collected"] == books["sent"] == len(double.datums)


def owed_points(path):
    with closing(sqlite3.connect(path, timeout=LONG)) as db:
        return Counter(dict(db.execute("SELECT key, points - done FROM chunk")))


def test_points_of_a_trial_are_dropped_and_counted_where_that_is_asked_for(agent, until, double, words, spool):
    words = (*words, "--spool", spool)
    trial = agent.start(*words, "--namespace", "Trial")
    until(lambda: ledger(spool / "cloudwatch.db")["collected"] > 20, LONG)
    end(trial)
    count = sum(owed_points(spool / "cloudwatch.db").values())
    double.listen()
    real = agent.start(*words, "--namespace", "Real", "--drop-other-destinations")
    until(lambda: double.datums, LONG)
    assert real.stop()[0] == 0
    books = ledger(spool / "cloudwatch.db")
    assert books["dropped:other destination"] == count
    assert books["collected"] == books["sent"] + count
    assert {datum.namespace for datum in double.datums} == {"Real"}


def ticks(until, lock):
    """Wait for the next tick, at which the open window's samples are noted."""
    before = lock.stat().st_mtime_ns
    until(lambda: lock.stat().st_mtime_ns != before, LONG)


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
    assert owed_points(spool / "cloudwatch.db").total() > 0
