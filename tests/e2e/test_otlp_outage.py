"""A receiver is away, the agent is killed meanwhile, the receiver comes back in a bad mood: nothing is lost."""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from contextlib import closing

from tests.doubles import otlp as service
from tests.doubles.otlp import OtlpDouble

from chipwatch.contract.datapoint import Kind
from chipwatch.engine.spool.sqlite import decode

LONG = 60.0


def ledger(path):
    with closing(sqlite3.connect(path, timeout=LONG)) as db:
        return Counter(dict(db.execute("SELECT entry, points FROM ledger")))


def has_collected(path, count):
    """Tell whether a spool, which may be in the making, has had so many points."""
    try:
        return path.exists() and ledger(path)["collected"] > count
    except sqlite3.OperationalError:
        return False


def owed(path):
    """Return what a receiver is to have of the points that a spool's file owes."""
    with closing(sqlite3.connect(path, timeout=LONG)) as db:
        rows = db.execute("SELECT body, points, done FROM chunk ORDER BY key").fetchall()
    whole = [(decode(body, count)[0], done) for body, count, done in rows]
    return [shown(point) for points, done in whole for point in points[done:]]


def shown(point):
    kind = "sum cumulative" if point.metric.kind is Kind.COUNTER else "gauge"
    return point.metric.name, kind, point.at, float(point.value)


def moods():
    """Of twenty requests throttle one, break one, lose the answer to another, and halve that of one more."""
    rounds = itertools.cycle(range(20))
    answers = {
        3: service.status(429, "", ("Retry-After", "0")),
        7: service.status(500, "broken proxy"),
        11: service.LOST,
        13: service.RESET,
        17: service.HALF,
    }
    return lambda: answers.get(next(rounds))


def test_a_kill_in_an_outage_and_a_moody_return_lose_nothing(agent, until, tmp_path):
    spool = tmp_path / "spool"
    with OtlpDouble(listen=False) as double:
        words = ("--sink", "otlp", "--collector", "memory", "--collector", "network", "--interval", "0.1")
        words += ("--window", "0.1", "--flush", "0", "--endpoint-url", double.url, "--spool", spool)
        first = agent.start(*words)
        until(lambda: has_collected(spool / "otlp.db", 100))
        first.process.kill()
        first.process.wait()
        due = Counter(owed(spool / "otlp.db"))
        assert due.total() > 100
        second = agent.start(*words)
        until(lambda: has_collected(spool / "otlp.db", due.total() + 50))
        double.weather = moods()
        double.listen()
        until(lambda: len(double.requests) > 20, 3 * LONG)  # the pauses between tries are random, and grow
        double.weather = lambda: None
        until(lambda: double.requests[-1].end == 200, 3 * LONG)
        code, _ = second.stop()

    assert code == 0, second.errors()
    books = ledger(spool / "otlp.db")
    stored = Counter((p.name, p.kind, p.at, p.value) for p in double.points if p.value is not None)
    doubtful = sum(len(request.points) for request in double.requests if request.end in (service.LOST, service.HALF))
    assert owed(spool / "otlp.db") == []
    assert not due - stored, "what the spool had at the kill has not arrived"
    assert {entry for entry, count in books.items() if count} == {"collected", "sent"}
    assert books["sent"] == books["collected"] <= stored.total() <= books["sent"] + doubtful
