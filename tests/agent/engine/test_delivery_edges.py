"""A worker over many failures in a row."""

import logging
import random
import time

import pytest
from tests.doubles.frame import MemorySink

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch.contract.errors import Refused, Retryable
from chipwatch.contract.sink import Limits
from chipwatch.engine.delivery import Worker
from chipwatch.engine.spool.queue import Spool

LONG = 60.0
LOAD = gauge("cpu.load", "1", "The load.")


class Failing(MemorySink):
    """Raises what it was given, one a write; then takes all."""

    def __init__(self, *problems):
        super().__init__(Limits(max_points=100, window=0, flush=0))
        self.problems = list(problems)

    def write(self, batch):
        if self.problems:
            raise self.problems.pop(0)
        return super().write(batch)


@pytest.fixture
def bounds(monkeypatch):
    """The most seconds of each wait, none of which is waited for."""
    found: list[float] = []

    def uniform(_, low, high):
        assert low == 0
        found.append(high)
        return 0.0

    monkeypatch.setattr(random.Random, "uniform", uniform)
    return found


def delivered(sink, until, **more):
    """Let a worker deliver one point, then another."""
    spool = Spool("mem")
    worker = Worker("mem", sink, spool, **more)
    worker.start()
    try:
        for n in (1, 2):
            spool.append([LOAD.point(n, 1.0)])
            worker.wake()
            until(lambda: spool.ledger.spooled == 0)
    finally:
        worker.stop()
        assert worker.join(LONG)
    return worker


def test_each_failure_of_a_kind_in_a_row_doubles_the_wait_up_to_a_minute(bounds, until):
    delivered(Failing(*[Retryable("x")] * 8, *[Refused("x")] * 3, *[KeyError("x")] * 3), until)
    assert bounds == [1, 2, 4, 8, 16, 32, 60, 60, 30, 60, 60, 1, 2, 4]


def test_a_delay_that_the_service_names_leaves_our_back_off_alone_and_counts_as_a_failure(bounds, until):
    begun = time.monotonic()
    worker = delivered(Failing(Retryable("x", after=0.05), Retryable("x"), Retryable("x", after=0.0)), until)
    assert time.monotonic() - begun >= 0.05
    assert bounds == [2, 4]
    assert worker.health.counts == {"retried": 3}


def test_a_service_that_begins_to_reject_every_point_is_reported_until_it_takes_one(until):
    sink, spool = MemorySink(Limits(max_points=100, window=0, flush=0)), Spool("mem")
    sink.rejects = False
    sink.reject = lambda _: "odd" if sink.rejects else None
    worker = Worker("mem", sink, spool)
    worker.start()
    try:
        for at, sink.rejects in enumerate((False, True, True, False, True), 1):
            spool.append([LOAD.point(at, 1.0)])
            worker.wake()
            until(lambda: spool.ledger.spooled == 0)
            until(lambda: bool(worker.health.refused) is sink.rejects)
            assert (
                not worker.health.refused
                or "every point is rejected: odd (for example cpu.load" in worker.health.refused
            )
    finally:
        worker.stop()
        assert worker.join(LONG)


def test_a_worker_describes_where_its_points_go_by_the_sink_where_no_destination_is_known(tmp_path):
    class Described(MemorySink):
        def describe(self):
            return "a shelf"

    worker = Worker("shelf", Described(Limits(max_points=100, window=0, flush=0)), Spool("shelf", None))
    assert worker.describe() == "a shelf"


def test_a_person_finds_the_points_by_the_dimensions_of_one_of_the_first_batch(caplog):
    class Found(MemorySink):
        def find(self, dims):
            return ", ".join(dims)

    caplog.set_level(logging.INFO)
    spool = Spool("shelf", None)
    spool.append([LOAD.point(1, 1.0, Dimensions(host="a", core=core)) for core in "01"])
    worker = Worker("shelf", Found(Limits(max_points=100, window=0, flush=0)), spool)
    worker.start()
    worker.stop()
    assert worker.join(LONG)
    assert "shelf: first 2 points accepted; see core, host" in caplog.messages
