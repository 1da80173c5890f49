"""The checks that ship must find what is wrong: a check that cannot fail is none."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from tests.doubles.frame import Clock, MemorySink

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.contract.errors import BadBatch, PartlyCollected, Retryable, Unavailable
from chipwatch.contract.plugin import Needs
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.contract.testing import check_collector, check_sink

LOAD = gauge("x.load", "1", "The load.", dims=("core",))
SHARE = gauge("x.share", "%", "A share.")
SENT = counter("x.sent", "By", "Bytes.")
CORE = Dimensions(core="0")
AT = 1_800_000_000_000_000_000


class Good(Collector):
    metrics = (LOAD, SHARE, SENT)

    def __init__(self):
        self.calls: list[str] = []

    def open(self, given):
        self.calls.append("open")

    def points(self, at):
        yield LOAD.point(at, 1.0, CORE)
        yield SHARE.point(at, 100.0)
        yield SENT.point(at, 5, start_time=1)

    def collect(self, at):
        self.calls.append("collect")
        yield from self.points(at)

    def close(self):
        self.calls.append("close")


def bad(**parts):
    """Return a collector that is good but for `parts`."""
    return type("Bad", (Good,), parts)()


def yielding(*points):
    return bad(points=lambda self, at: (point._replace(at=point.at or at) for point in points))


def test_a_good_collector_passes_and_is_used_as_the_frame_would():
    collector = Good()
    points = check_collector(collector, ticks=2, at=AT)
    assert collector.calls == ["close", "open", "collect", "collect", "close", "close"]
    assert [p.at for p in points] == [AT] * 3 + [AT + 10**9] * 3


def test_missing_hardware_is_reported():
    def nothing(self, given):
        raise Unavailable("no /dev/x")

    collector = bad(open=nothing)
    with pytest.raises(Unavailable, match="no /dev/x"):
        check_collector(collector)
    assert collector.calls[-2:] == ["close", "close"]


def test_some_devices_may_fail():
    def partly(self, at):
        yield LOAD.point(at, 1.0, CORE)
        raise PartlyCollected(["gpu 1"])

    assert len(check_collector(bad(points=partly))) == 3


WRONG_UNITS = ("", "furlong", "bytes", "ms ", "{a b}", "%/", "{}")
WRONG_NAMES = ("load1m", "load 1m!", "x.load-1m", ".load", "x.", "x..load", "1x.load")
WRONG_OPTIONS = (list[str] | None, list[str], dict[str, int], set[int], bytes, tuple[str, ...] | None)


def config_of(hint):
    return dataclasses.make_dataclass("Config", [("option", hint)], frozen=True)


@pytest.mark.parametrize("hint", [
    str, int, float, bool, Path, Path | None, Literal["a", "b"], tuple[str, ...], tuple[Literal["a"], ...], Mapping[str, str],
])  # fmt: skip
def test_an_option_that_people_can_set_passes(hint):
    assert check_collector(bad(Config=config_of(hint)))


@pytest.mark.parametrize("unit", ["%", "1", "By", "GiBy", "ms", "MHz", "Gbit/s", "GT/s", "{flop}/s", "By/{request}"])
def test_a_unit_of_computers_passes(unit):
    assert check_collector(bad(metrics=(*Good.metrics, gauge("x.other", unit, "Another."))))


CLASHES = dict.fromkeys(("asking", "close", "facts", "follow", "waits"), ", which hides a method of Collector: ") | {
    "knows": ": write a tuple, or ", "needs": ": write a Needs, or ",
}  # fmt: skip


@pytest.mark.parametrize(
    ("collector", "sentence"),
    [
        (bad(metrics=(gauge("x.Load", "1", "The load."),)), "x.Load has capitals"),
        (bad(metrics=(gauge("x.load", "1", "The load"),)), "the help of x.load is not a sentence"),
        (
            yielding(gauge("x.new", "1", "New.").point(0, 1)),
            "Bad yielded x.new, which its `metrics` does not declare so",
        ),
        (yielding(dataclasses.replace(SHARE, unit="1").point(0, 1)), "does not declare so"),
        (yielding(dataclasses.replace(SHARE, level=Level.ALL).point(0, 1)), "does not declare so"),
        (yielding(SHARE.point(3, 1)), "Bad stamped x.share 3 instead of "),
        (yielding(LOAD.point(0, 1)), r"x.load has dimensions \(\)"),
        (yielding(SHARE.point(0, 1, CORE)), r"x.share has dimensions \('core',\)"),
        (yielding(SHARE.point(0, "5")), "x.share is not a number"),
        (yielding(SHARE.point(0, -0.1)), "x.share is -0.1 %"),
        (yielding(SHARE.point(0, 100.1)), "x.share is 100.1 %"),
        (yielding(SENT.point(0, 5)), "the counter x.sent does not say since when it counts"),
        (yielding(SENT.point(0, -5, start_time=1)), "the counter x.sent is negative"),
        (yielding(SENT.point(0, 5, start_time=2 * AT)), "the counter x.sent starts after its reading"),
        (yielding(SHARE.point(0, 1), SHARE.point(0, 2)), "twice in one tick"),
        (bad(describe=lambda self: None), "Bad.describe returns no text"),
        (bad(facts=lambda self: ()), "Bad has a method facts, and `knows` does not say of what kinds"),
        (
            bad(__init__=lambda self: vars(self).update(needs=Needs(level=True))),
            "Bad sets needs, which the agent reads",
        ),
        (bad(__init__=lambda self: vars(self).update(waits=1)), "Bad sets waits, which hides a method of Collector"),
        *((yielding(SHARE.point(0, value)), "x.share is (nan|inf): yield nothing") for value in (math.nan, math.inf)),
        *((bad(metrics=(gauge("x.load", unit, "The load."),)), f"the unit '{unit}' of x.load") for unit in WRONG_UNITS),
        *((bad(metrics=(gauge(name, "1", "The load."),)), f"the name '{name}' is not area") for name in WRONG_NAMES),
        *((bad(Config=config_of(hint)), "Config.option is ") for hint in WRONG_OPTIONS),
        *(
            (bad(**{name: value}), f"Bad has {name} = .+{clash}give it another name")
            for name, clash in CLASHES.items()
            for value in (5, property(lambda _: 1 / 0))
        ),
    ],
)
def test_a_collector_that_breaks_the_contract_is_reported_and_closed(collector, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_collector(collector)


FALLS = "the counter x.sent fell from 7 to 5 without a newer start_time"


def test_a_counter_that_falls_needs_a_newer_start():
    values = iter([(7, 1), (5, 2), (7, 2), (5, 2)])
    falling = bad(points=lambda self, at: (SENT.point(at, value, start_time=start) for value, start in [next(values)]))
    assert len(check_collector(falling, ticks=3)) == 3
    assert next(values) == (5, 2)
    values = iter([(7, 1), (5, 1)])
    with pytest.raises(AssertionError, match=FALLS):
        check_collector(falling, ticks=2)


def test_a_sum_that_forgets_a_member_over_a_restart_is_found():
    members = [3, 4]
    forgetful = bad(points=lambda self, at: [SENT.point(at, sum(members), start_time=1)])
    earlier = check_collector(forgetful)
    members[:] = [5]
    check_collector(forgetful)
    with pytest.raises(AssertionError, match=FALLS):
        check_collector(forgetful, earlier=earlier)


def counting(*readings):
    """Return a collector whose counter has these values and seconds from the reading to its start."""
    values = iter(readings)
    return bad(points=lambda self, at: [SENT.point(at, value, start_time=at + int(seconds * 1e9))
                                        for value, seconds in [next(values)]])  # fmt: skip


@pytest.mark.parametrize("readings", [
    [(5, 0), (6, 0), (7, 0)],  # the time of the reading: each reading counts again from zero, with nothing to compare
    [(5, -60), (6, -60), (7, -60)],  # moves along with the reading
    [(5, -1), (6, -3), (7, -5)],  # goes back
])  # fmt: skip
def test_a_counter_that_never_has_an_increase_is_found(readings):
    with pytest.raises(AssertionError, match=r"the counter x\.sent has no increase: its start_time is another one"):
        check_collector(counting(*readings))


@pytest.mark.parametrize("readings", [
    [(5, -60), (6, -61), (7, -62)],  # stays
    [(5, -60), (2, -0.5), (3, -0.5)],  # starts again between two readings, each time
    [(5, -60), (900, 0), (901, -1)],  # another device took its place: it counts from there
])  # fmt: skip
def test_a_counter_with_an_increase_passes(readings):
    assert len(check_collector(counting(*readings))) == 3


def test_a_counter_that_was_read_once_needs_no_increase():
    assert len(check_collector(counting((5, 0)), ticks=1)) == 1


def test_a_check_that_failed_has_closed_the_collector():
    collector = yielding(SHARE.point(0, 101))
    with pytest.raises(AssertionError):
        check_collector(collector)
    assert collector.calls[-2:] == ["close", "close"]


def test_an_error_of_the_collector_is_not_hidden():
    def broken(self, at):
        yield SHARE.point(at, 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check_collector(bad(points=broken))


def test_a_close_that_is_not_safe_unopened_is_found():
    with pytest.raises(AttributeError):
        check_collector(bad(close=lambda self: self.handle.close()))


# -- sinks ------------------------------------------------------------------------------------------------------------


BATCH = [LOAD.point(AT, 1.0, CORE), SHARE.point(AT, 2.0)]


class Taking(Sink):
    limits = Limits(max_points=2)

    def __init__(self, answer=lambda batch: ()):
        self.answer, self.calls = answer, []

    def open(self):
        self.calls.append("open")

    def write(self, batch):
        self.calls.append("write")
        return self.answer(batch)

    def close(self):
        self.calls.append("close")


def test_a_good_sink_passes_and_is_used_as_the_frame_would():
    sink = Taking()
    assert check_sink(sink, BATCH) == ()
    assert sink.calls == ["close", "open", "write", "close", "close"]


def test_what_a_sink_rejects_is_returned():
    rejected = [Rejected(BATCH[1], "odd")]
    assert check_sink(Taking(lambda batch: rejected), BATCH) == rejected


@pytest.mark.parametrize(
    ("sink", "sentence"),
    [
        (Taking(lambda batch: [Rejected(SHARE.point(AT, 9.0), "odd")]), "a rejected point is none of the batch"),
        (Taking(lambda batch: [Rejected(batch[0], "a"), Rejected(batch[0], "b")]), "a point is rejected twice"),
        (type("Small", (Taking,), {"limits": Limits(max_points=1)})(), "above the sink's own limits"),
        (type("None", (Taking,), {"limits": Limits(max_points=0)})(), "a request must hold at least one point"),
        (type("Mute", (Taking,), {"describe": lambda self: None})(), "describe returns no text"),
        (Taking(lambda batch: None), "write returned None: return the points that were rejected"),
        (type("Unlimited", (Taking,), {"limits": None})(), "limits is None: set limits = Limits"),
        (
            type("Big", (Taking,), {"limits": Limits(max_points=2, max_bytes=9)})(),
            "max_bytes is set, and size is missing",
        ),
    ],
)
def test_a_sink_that_breaks_the_contract_is_reported(sink, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_sink(sink, BATCH)


def test_a_sink_without_limits_is_reported():
    class Unlimited(Sink):
        def write(self, batch):
            return ()

    with pytest.raises(AssertionError, match="limits is None: set limits = Limits"):
        check_sink(Unlimited(), BATCH)


def test_a_sink_that_failed_is_closed():
    def fail(batch):
        raise Retryable("no route")

    sink = Taking(fail)
    with pytest.raises(Retryable):
        check_sink(sink, BATCH)
    assert sink.calls[-2:] == ["close", "close"]


# -- fakes ------------------------------------------------------------------------------------------------------------


def test_the_clock_stands_still_until_it_is_moved():
    clock = Clock(5 * 10**9)
    assert clock() == clock() == 5 * 10**9
    assert clock.forward(1.5) == clock() == 6_500_000_000
    assert clock.forward(-2) == 4_500_000_000


def test_the_memory_sink_keeps_what_it_is_given():
    sink = MemorySink()
    assert check_sink(sink, BATCH) == []
    assert sink.points == BATCH
    assert (sink.opened, sink.closed) == (1, 3)


def test_the_memory_sink_fails_and_rejects_on_demand():
    sink = MemorySink(Limits(max_points=7))
    assert sink.limits.max_points == 7
    sink.failures = [BadBatch("x")]
    with pytest.raises(BadBatch):
        sink.write(BATCH)
    sink.reject = lambda point: "odd" if point.metric is SHARE else None
    assert sink.write(BATCH) == [Rejected(BATCH[1], "odd")]
    assert sink.points == BATCH[:1]
    assert MemorySink.limits.max_points == 100
