"""CloudWatch is away for an hour, the agent is killed meanwhile: nothing is lost, and only lost answers double."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.doubles import cloudwatch as service
from tests.doubles.cloudwatch import CloudwatchDouble, isolate
from tests.e2e import cloudwatch_child as child

from chipwatch.engine.spool.sqlite import decode

ROOT = Path(__file__).parents[2]
LONG = 60.0
HOUR = 60
"""Windows of a minute."""


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch):
    isolate(monkeypatch)


def ledger(path):
    """Return the ledger in a spool's file."""
    with closing(sqlite3.connect(path, timeout=LONG)) as db:
        return Counter(dict(db.execute("SELECT entry, points FROM ledger")))


def has_collected(path, count):
    """Tell whether a spool, which may be in the making, has had so many points."""
    try:
        return path.exists() and ledger(path)["collected"] > count
    except sqlite3.OperationalError:
        return False


def owed(path):
    """Return what CloudWatch is to show of the points that a spool's file owes."""
    with closing(sqlite3.connect(path, timeout=LONG)) as db:
        rows = db.execute("SELECT body, points, done FROM chunk ORDER BY key").fetchall()
    whole = [(*decode(body, count), done) for body, count, done in rows]
    return [child.shown(point, common) for points, common, done in whole for point in points[done:]]


def moods():
    """Of twenty requests throttle one, and lose the answer to another."""
    rounds = itertools.cycle(range(20))

    def weather():
        return {3: service.THROTTLED, 11: service.LOST}.get(next(rounds))

    return weather


def shown(datum):
    """Return a stored datum as the child's journal has it."""
    numbers = (datum.values, datum.counts) if datum.value is None else ((datum.value,), (1,))
    return (datum.name, datum.dims, datum.timestamp, *numbers)


class Lives:
    """Agents one after the other over one spool, and their journals."""

    def __init__(self, url, folder):
        self.url, self.folder, self.begun, self.count = url, folder, time.time_ns(), 0

    def start(self):
        words = [self.url, str(self.folder), str(self.count), str(self.begun)]
        self.count += 1
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, child.__file__, *words], env=env, stderr=subprocess.PIPE)

    def journal(self):
        """Return what the spool took, in all lives."""
        files = [file for life in range(self.count) if (file := self.folder / f"appended.{life}").exists()]
        lines = [line for file in files for line in file.read_text().splitlines()]
        rows = map(json.loads, lines)
        return [
            (name, tuple(map(tuple, dims)), at, tuple(values), tuple(counts)) for name, dims, at, values, counts in rows
        ]

    def windows(self):
        return len({(dims, at) for _, dims, at, *_ in self.journal() if ("n", "0") in dims})


def wait_for(process, condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline, "what the test waits for does not come"
        time.sleep(0.005)


def test_an_outage_of_an_hour_a_kill_and_changing_answers_lose_nothing(tmp_path):
    with CloudwatchDouble(listen=False) as double:
        lives = Lives(double.url, tmp_path)
        with lives.start() as process:
            wait_for(process, lambda: lives.windows() >= HOUR // 2)
            process.kill()
        with lives.start() as process:
            try:
                wait_for(process, lambda: lives.windows() >= HOUR)
                assert double.requests == []
                double.weather = moods()
                double.listen()
                away = len(lives.journal())
                wait_for(process, lambda: len(double.datums) >= away)
                double.weather = lambda: None  # at the stop what is owed is tried once
                process.send_signal(signal.SIGTERM)
                assert process.wait(LONG) == 0, process.stderr.read().decode()
            finally:
                process.kill()

    lost = Counter(
        shown(datum) for request in double.requests if request.end == service.LOST for datum in request.datums
    )
    throttled = [request for request in double.requests if request.code == "Throttling"]
    assert lost
    assert throttled
    stored = Counter(map(shown, double.datums)) - lost
    expected = Counter(lives.journal())
    assert max(stored.values()) == 1, "what came twice was not in doubt"
    assert not expected - stored, "what the spool took has not arrived"
    unlogged = stored - expected  # spooled, and killed before the journal knew
    assert {dims[0] for _, dims, *_ in unlogged} <= {("life", "0")}
    assert len(unlogged) <= child.GAUGES + 1

    books = ledger(tmp_path / "cloudwatch.db")
    assert owed(tmp_path / "cloudwatch.db") == []
    assert books == {"collected": len(stored), "sent": len(stored)}


def test_the_real_command_killed_in_an_outage_delivers_every_point_after_it(agent, until, tmp_path):
    spool = tmp_path / "spool"
    with CloudwatchDouble(listen=False) as double:
        words = ("--sink", "cloudwatch", "--collector", "memory", "--collector", "network", "--interval", "0.1")
        words += ("--window", "0.1", "--flush", "0", "--region", "eu-west-1", "--endpoint-url", double.url)
        words += ("--dim", "host=test", "--spool", spool)
        first = agent.start(*words)
        until(lambda: has_collected(spool / "cloudwatch.db", 50))
        first.process.kill()
        first.process.wait()
        due = Counter(owed(spool / "cloudwatch.db"))
        assert due.total() > 50

        double.will(service.THROTTLED, service.LOST)
        double.listen()
        second = agent.start(*words)
        until(lambda: len(double.requests) > 3)
        code, _ = second.stop()

    assert code == 0, second.errors()
    books = ledger(spool / "cloudwatch.db")
    doubled = sum(len(request.datums) for request in double.requests if request.end == service.LOST)
    assert owed(spool / "cloudwatch.db") == []
    assert books["sent"] == books["collected"] == len(double.datums) - doubled
    assert not due - Counter(map(shown, double.datums))
    # Where the kill left a recording, its incident has a cause and a file.
    of_readings = {datum.dims for datum in double.datums if "incident" not in datum.name}
    assert of_readings == {(("host", "test"),)}
