"""Counters that have not moved are not sent where each series costs, and their first event is not lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.frame import MemorySink

from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import FORGET, Admission, MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch_sinks.google.history import Last, SentHistory

S = 10**9
BOOT, BORN = 1_000_020 * S, 2_000_040 * S  # whole minutes
EVENTS = counter("kernel.events", "{event}", "Events.", dims=("kind",))
HEAT = gauge("gpu.temperature", "Cel", "Of the core.")
XID, OOM = Dimensions(kind="xid"), Dimensions(kind="oom_kill")


def route(*, increases=True, seconds=60, max_series=None, born=BORN):
    spool = Spool("mem")
    window = Window(seconds, born=born, increases=increases)
    admission = Admission("mem", max_series, zeros=False, increases=increases)
    return Route(
        MetricFilter(Level.ALL), window, spool, Worker("mem", MemorySink(), spool), Dimensions, admission=admission
    )


def play(out, readings, *, step=20, dims=XID, start_time=BOOT, begin=0):
    """Take a reading (None: there is none) every `step` seconds; return the points that are owed in the end."""
    for number, value in enumerate(readings):
        at = BORN + int((begin + number * step) * S)
        out.take([] if value is None else [EVENTS.point(at, value, dims, start_time=start_time)], at)
    out.close_window()
    return owed(out)


def owed(out):
    return [point for points, _ in out.spool.take(1000) for point in points]


def seen(points):
    """Return window, end (seconds after the start) and increase of each point."""
    return [((p.window_start - BORN) / S, (p.at - BORN) / S, p.increase) for p in points]


def test_a_counter_that_stays_at_0_is_never_sent_and_never_counted_as_collected():
    out = route()
    assert play(out, [0] * 30) == []
    assert out.spool.ledger.collected == 0


def test_the_first_event_comes_with_its_true_increase_and_the_zeros_after_it_are_sent():
    assert seen(play(route(), [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1])) == [(100, 160, 1), (160, 220, 0)]


@pytest.mark.parametrize("first", [[0, 1, 1, 1], [0, 0, 1, 2]])
def test_an_event_in_the_first_window_is_sent(first):
    points = play(route(), [*first, first[-1], first[-1], first[-1]])
    assert sum(p.increase for p in points) == first[-1]


def test_events_before_the_agent_began_do_not_count_as_increase_and_the_next_one_does():
    assert seen(play(route(), [3, 3, 3, 3, 3, 3, 4, 4])) == [(100, 140, 1)]


def test_a_counter_of_which_the_whole_value_is_sent_is_held_back_at_0_only():
    points = play(route(increases=False), [0, 0, 0, 0, 2, 2])
    assert [(p.value, p.increase) for p in points] == [(2, 2)]
    assert [p.value for p in play(route(increases=False), [3, 3, 3, 3, 3, 3])] == [3, 3]


def test_a_collector_that_vanishes_and_returns_with_an_event_tells_it():
    assert seen(play(route(), [0, 0, 0, None, None, None, None, 1, 1])) == [(40, 160, 1)]


def test_after_a_reset_a_counter_that_has_moved_is_sent_at_0_and_a_new_event_counts():
    out = route()
    assert [p.increase for p in play(out, [0, 1, 1], start_time=BOOT)] == [1]
    reset = BORN + 61 * S
    again = play(out, [0, 0, 0, 1], start_time=reset, begin=120)
    assert [p.increase for p in again] == [1, 0, 1]


def test_a_reset_before_the_first_event_changes_nothing():
    out = route()
    assert play(out, [0, 0, 0], start_time=BOOT) == []
    assert [p.increase for p in play(out, [0, 1], start_time=BORN + 61 * S, begin=120)] == [1]


@pytest.mark.parametrize("jump", [-7200, 7200])
def test_an_event_at_a_jump_of_the_clock_is_sent_once(jump):
    out = route()
    play(out, [0, 0, 0])
    assert [p.increase for p in play(out, [1, 1, 1, 1, 1, 1], begin=60 + jump)][:1] == [1]


def test_a_counter_that_is_gone_for_an_hour_is_held_back_again():
    admission = Admission("mem", None, zeros=False)
    gone, other = EVENTS.point(BORN, 1, XID), EVENTS.point(BORN, 1, OOM)
    assert admission.admit([gone, other]) == [gone, other]
    for minute in range(1, 200):
        admission.admit([other._replace(at=BORN + minute * 60 * S)])
    zero = [EVENTS.point(BORN + 2 * FORGET + n, 0, dims) for n, dims in enumerate((XID, OOM))]
    assert admission.admit(zero) == zero[1:]


def test_a_counter_that_is_held_back_keeps_its_place_within_the_limit_of_series():
    out = route(max_series=2)
    for second in range(0, 240, 20):
        at = BORN + second * S
        value = 0 if second < 120 else 1
        late = [HEAT.point(at, 50.0, Dimensions(gpu=str(n))) for n in range(3)]
        out.take([EVENTS.point(at, value, XID, start_time=BOOT), *late], at)
        if second == 0:  # as if the counter were the first series of the first window
            out._admission.admit([EVENTS.point(at, 0, XID)])
    out.close_window()
    names = {(p.metric.name, p.dims) for p in owed(out)}
    assert names == {("kernel.events", XID), ("gpu.temperature", Dimensions(gpu="0"))}


def test_gauges_at_0_are_sent():
    out = route()
    out.take([HEAT.point(BORN, 0.0)], BORN)
    out.close_window()
    assert [p.value for p in owed(out)] == [0.0]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.sampled_from([0, 60]), st.booleans())
def test_nothing_that_is_held_back_changes_a_sum(rises, seconds, increases):
    values, total = [], 0
    for rise in rises:
        total += rise
        values.append(total)
    points = play(route(seconds=seconds, increases=increases), [0, *values])
    assert sum(p.increase or 0 for p in points) == total
    assert (points == []) == (total == 0)
    if points:
        assert points[-1].value == total


def test_at_google_the_first_point_starts_where_the_counter_was_last_0():
    history, told = SentHistory(), []
    for point in play(route(increases=False), [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 3]):
        last = history.follow(b"a", point)
        assert isinstance(last, Last)
        assert last.start < last.end
        history.keep(b"a", last)
        told.append(((last.start - BORN) / S, (last.end - BORN) / S, last.value - last.base))
    assert told == [(100, 160, 1), (100, 200, 3)]


def test_to_google_a_reboot_and_an_event_days_later_start_where_the_counter_was_last_0():
    history, out = SentHistory(), route(increases=False)
    (first,) = play(out, [0, 1, 1])
    history.keep(b"a", history.follow(b"a", first))
    booted = BORN + 300 * S
    out = route(increases=False)  # the agent of the new boot; the history is kept over restarts
    (second,) = play(out, [0, 0, 0, 0, 1], start_time=booted, begin=6000)
    last = history.follow(b"a", second)
    assert ((last.start - BORN) / S, last.value - last.base) == (6040, 1)
