"""Processors: what they see, and what one that fails costs."""

import logging
import math

import pytest

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, gauge
from chipwatch.contract.processor import Processor
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.derivation import Derivation
from chipwatch.engine.sampler import Sampler

READ = gauge("test.read", "1", "A reading.")
DERIVED = gauge("test.derived", "1", "Derived.", dims=("of",))
DETAIL = gauge("test.detail", "1", "Derived, in detail.", Level.DETAILED)


class Sum(Processor):
    """Yields the sum of all values that it sees."""

    metrics = (DERIVED,)

    def derive(self, tick, at, facts):
        yield DERIVED.point(at, sum(point.value for point in tick), Dimensions(of=str(len(tick))))


class Calls(Processor):
    """Follows its script."""

    metrics = (READ,)

    def __init__(self, do):
        self.do = do

    def derive(self, tick, at, facts):
        return self.do(tick, at)


def made(do, name="made", level=Level.BASIC):
    return Derivation(name, do if isinstance(do, Sum) else Calls(do), level)


def values(points):
    return [point.value for point in points]


def derive_all(derivations, points, at):
    """Derive as the clock does."""
    for derivation in derivations:
        points += derivation.run(tuple(points), at)


def test_each_processor_sees_the_points_of_collectors_and_of_earlier_processors():
    points = [READ.point(7, 1.0), READ.point(7, 2.0)]
    derive_all([made(Sum()), made(Sum())], points, 7)
    assert values(points) == [1.0, 2.0, 3.0, 6.0]


def raising(tick, at):
    yield READ.point(at, 1.0)
    raise SystemExit("no luck")


def test_a_processor_that_fails_loses_its_points_of_this_tick_and_is_logged_once(caplog):
    broken, well = made(raising, "broken"), made(Sum(), "well")
    for at in (7, 8):
        points = [READ.point(at, 1.0)]
        derive_all([broken, well], points, at)
        assert values(points) == [1.0, 1.0]
    assert (broken.ok, broken.counts["failed"], broken.trouble, broken.yielded) == (False, 2, "SystemExit: no luck", 0)
    assert (well.ok, well.counts["failed"], well.trouble, well.yielded) == (True, 0, None, 1)
    assert [r.getMessage() for r in caplog.records] == ["processor broken: failed: no luck"]
    assert caplog.records[0].levelno == logging.ERROR


def test_a_processor_cannot_change_what_the_others_and_the_sinks_see():
    def clear(tick, at):
        tick.clear()
        return ()

    points = [READ.point(7, 1.0)]
    derive_all([made(clear), made(Sum())], points, 7)
    assert values(points) == [1.0, 1.0]


@pytest.mark.parametrize(
    "bad", [lambda at: READ.point(at, math.nan), lambda at: READ.point(at, "1"), lambda at: "a point"]
)
def test_a_malformed_point_is_left_out_alone_and_counted(bad):
    derivation = made(lambda tick, at: [bad(at), READ.point(at, 2.0)])
    assert values(derivation.run((), 7)) == [2.0]
    assert derivation.counts.total() == 1


def test_a_point_above_the_level_is_left_out():
    def do(tick, at):
        return [DETAIL.point(at, 1.0)]

    assert made(do).run((), 7) == []
    assert values(made(do, level=Level.DETAILED).run((), 7)) == [1.0]


def test_a_trouble_that_is_over_is_not_shown():
    results = iter([("a point",), ()])
    derivation = made(lambda tick, at: next(results))
    derivation.run((), 7)
    assert "expected a Datapoint, got str" in derivation.trouble
    derivation.run((), 8)
    assert derivation.trouble is None


class One(Collector):
    """A collector of one reading."""

    metrics = (READ,)

    def collect(self, at):
        yield READ.point(at, 4.0)


def test_the_clock_runs_processors_between_the_collectors_and_the_routes():
    sampler = Sampler("one", One(), Level.ALL)
    pipeline = Pipeline([sampler], (), interval=1.0, derivations=[made(Sum())])
    pipeline.start()
    try:
        points = pipeline.gather(7, 30.0)
    finally:
        pipeline.close(0)
    assert {(point.metric.name, point.value, point.at) for point in points} == {
        ("test.read", 4.0, 7),
        ("test.derived", 4.0, 7),
    }
