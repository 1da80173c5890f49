"""
The law: collected = sent + rejected + dropped + spooled, whatever fails, and whenever the agent is killed.

Once with a real process that is killed again and again, once within this process with every kind of failure.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.doubles.frame import MemorySink
from tests.e2e import conservation_child as child
from tests.examples import examples

from chipwatch.contract.datapoint import gauge
from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.contract.sink import Limits
from chipwatch.engine.delivery import Pauses, Worker
from chipwatch.engine.spool.queue import Spool

ROOT = Path(__file__).parents[2]
LONG = 60.0
KILLS = 6


def in_file(path):
    """Return the ledger in the file and how many points the file owes, of one and the same moment."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=LONG)) as db:
        db.execute("BEGIN")
        ledger = Counter(dict(db.execute("SELECT entry, points FROM ledger")))
        (owed,) = db.execute("SELECT coalesce(sum(points - done), 0) FROM chunk").fetchone()
    return ledger, owed


def check_law(path):
    ledger, owed = in_file(path)
    ended = sum(n for entry, n in ledger.items() if entry != "collected")
    assert ledger["collected"] == ended + owed
    return ledger, owed


# -- killed again and again ---------------------------------------------------------------------------------------------


class Lives:
    """Agents one after the other over one spool, and what their journals say."""

    def __init__(self, folder, seed):
        self.folder, self.seed, self.count = folder, seed, 0
        self.path = folder / "moody.db"

    def start(self, moods):
        """Begin a life."""
        words = [str(self.folder), str(self.count), f"{self.seed}.{self.count}", moods]
        self.count += 1
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, child.__file__, *words], env=env, stderr=subprocess.PIPE)

    def journal(self, name, life):
        """Return the lines of a journal as (word, numbers)."""
        file = self.folder / f"{name}.{life}"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        assert all(line.endswith("\n") for line in lines), "a line was cut"
        return [(line.split()[0], [int(n) for n in line.split()[1:]]) for line in lines]

    def size(self, name, life):
        file = self.folder / f"{name}.{life}"
        return file.stat().st_size if file.exists() else 0

    def numbers(self, name):
        """Return all numbers in the journals of that name."""
        return [n for life in range(self.count) for _, numbers in self.journal(name, life) for n in numbers]


def wait_for(process, condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline, "what the test waits for does not come"
        time.sleep(0.0005)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_agent_killed_again_and_again_loses_nothing_and_counts_everything(tmp_path, seed):
    lives, dice = Lives(tmp_path, seed), random.Random(seed)
    for life in range(KILLS):
        with lives.start("wild") as process:
            try:
                spooled, answered = dice.randrange(1, 12_000), dice.choice([0, 0, 1, 1500])
                wait_for(process, lambda n=spooled, life=life: lives.size("appended", life) >= n)
                if lives.size("answered", life) < answered:  # it may hang: then it is killed as it hangs
                    end = time.monotonic() + 0.2
                    while lives.size("answered", life) < answered and time.monotonic() < end:
                        check_law(lives.path)
                check_law(lives.path)
            finally:
                process.kill()
        check_law(lives.path)
    with lives.start("calm") as process:
        try:
            wait_for(process, lambda: lives.size("answered", KILLS) > 0)
            check_law(lives.path)
            process.send_signal(signal.SIGTERM)
            assert process.wait(LONG) == 0
        finally:
            process.kill()

    ledger, owed = check_law(lives.path)
    assert owed == 0

    appended = lives.numbers("appended")
    answers = Counter(lives.numbers("answered"))
    took = Counter(
        n
        for life in range(lives.count)
        for word, numbers in lives.journal("answered", life)
        for n in numbers
        if word == "took"
    )
    assert len(appended) == len(set(appended))
    assert set(appended) <= set(answers), "a point that append returned from has no end"
    unlogged = set(answers) - set(appended)  # written, and killed before the journal was
    most = 2 * child.MOST  # a reading that came late goes with the next
    assert all(len({n for n in unlogged if n // child.A_LIFE == life}) < most for life in range(KILLS))

    # what was taken twice was in doubt: its answer was lost, or was the last thing that a killed agent heard, perhaps
    # with points before it that were still to be tried alone
    doubted = set(lives.numbers("doubted"))
    last_words = set()
    for life in range(KILLS):
        for word, batch in reversed(lives.journal("answered", life)):
            assert len(batch) <= child.BATCH
            last_words |= set(batch)
            if word == "took" and len(batch) > 1:
                break
    assert {n for n, times in took.items() if times > 1} <= doubted | last_words

    # every point has one end in the ledger, and none of the rejected was sent
    assert ledger["collected"] == len(answers)
    assert set(ledger) <= {
        "collected",
        "sent",
        "rejected:unwanted",
        "rejected:refused by the service",
        "dropped:set aside",
    }
    bugs = {
        n
        for life in range(KILLS)
        for word, numbers in lives.journal("answered", life)
        if word == "bug"
        for n in numbers
    }
    for entry, marked in (("unwanted", child.unwanted), ("refused by the service", child.poison)):
        expected = {n for n in answers if marked(n)}
        assert len(expected - bugs) <= ledger[f"rejected:{entry}"] <= len(expected)
    assert ledger["dropped:set aside"] <= len(bugs)
    assert ledger["sent"] > 0


# -- every failure there is, within this process ----------------------------------------------------------------------

NUMBER = gauge("test.number", "1", "A number of its own for every point.")
MOODS = st.sampled_from(["fine", "fine", "retry", "lost answer", "refused", "bug", "rubbish"])
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 50)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("rot"), st.just(0)),
    st.tuples(st.just("fill"), st.just(0)),
    st.tuples(st.just("room"), st.just(0)),
)


class Moody(MemorySink):
    """Fails in the moods it is given, one a write; refuses poison and rejects what is unwanted."""

    def __init__(self, moods):
        super().__init__(Limits(max_points=20, window=0, flush=0))
        self.moods = moods
        self.reject = lambda p: "unwanted" if p.value % 11 == 3 else None

    def write(self, batch):
        mood = self.moods.pop(0) if self.moods else "fine"
        if mood == "retry":
            raise Retryable("no answer")
        if mood == "refused":
            raise Refused("no such role")
        if mood == "bug":
            raise RuntimeError("a bug")
        if any(p.value % 17 == 5 for p in batch):
            raise BadBatch("something in it is wrong")
        rejected = super().write(batch)
        if mood == "lost answer":
            raise Retryable("the answer was lost")
        return None if mood == "rubbish" else rejected


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=1, max_size=15), st.lists(MOODS, max_size=30), st.sampled_from([2_000, 10**9]))
def test_whatever_fails_in_whatever_order_the_law_holds(steps, moods, max_bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "moody.db"
        appended = 0
        sink = Moody(list(moods))
        spool, worker = begin(path, sink, max_bytes)
        for step, count in steps:
            if step == "append":
                spool.append([NUMBER.point(1, float(appended + n)) for n in range(count)])
                appended += count
                worker.wake()
            elif step == "rot":
                with spool.file.lock:  # a chunk that rots; the newest is at hand yet
                    spool.file.store._db.execute("UPDATE chunk SET body = x'01ff' WHERE key % 3 = 1")
            elif step in {"fill", "room"}:
                with spool.file.lock:
                    spool.file.store._db.execute(f"PRAGMA max_page_count={1 if step == 'fill' else 1 << 30}")
            else:
                with spool.file.lock:
                    spool.file.store._db.execute(f"PRAGMA max_page_count={1 << 30}")
                end(spool, worker)
                assert spool.ledger.balance() == 0
                spool, worker = begin(path, sink, max_bytes)
            with spool.file.lock:
                assert spool.ledger.balance() == 0
            check_law(path)
        with spool.file.lock:
            spool.file.store._db.execute(f"PRAGMA max_page_count={1 << 30}")
        sink.moods.clear()
        spool.append([NUMBER.point(1, float(appended))])  # poison ends only once another point is taken
        appended += 1
        if (appended - 1) % 17 == 5:
            spool.append([NUMBER.point(1, float(appended))])
            appended += 1
        worker.wake()
        deadline = time.monotonic() + LONG
        while spool.ledger.spooled:
            assert time.monotonic() < deadline, spool.ledger
            time.sleep(0.001)
        end(spool, worker)
        ledger, owed = check_law(path)
        assert owed == 0
        assert ledger["collected"] == appended == spool.ledger.collected
        assert spool.ledger.balance() == 0
        delivered = Counter(int(p.value) for p in sink.points)
        dropped = spool.ledger.dropped.total()
        unlucky = {n for n in range(appended) if n % 17 == 5 or n % 11 == 3}
        assert appended - dropped <= len(set(delivered) | unlucky) <= appended
        assert not set(delivered) & unlucky
        if "lost answer" not in moods and ("restart", 0) not in steps:
            assert set(delivered.values()) <= {1}


def begin(path, sink, max_bytes):
    spool = Spool("moody", path, max_bytes=max_bytes)
    worker = Worker("moody", sink, spool, pauses=Pauses(0.0, 0.0, 0.0, 0.0))
    worker.start()
    return spool, worker


def end(spool, worker):
    worker.stop()
    assert worker.join(LONG)
    spool.close()
