import itertools
import sys

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.contract.datapoint import Dimensions, counter
from chipwatch.engine.window import Window
from chipwatch.host.counters import Counters, MemberSum, counting_since

S = 10**9
SENT = counter("test.sent", "By", "Sent.")
READ = counter("test.read", "By", "Read.")


def totals(*readings: dict[str, int]) -> list[float]:
    """Return the sum after each reading, one a nanosecond from 1 on."""
    total, found = MemberSum(), []
    for at, members in enumerate(readings, 1):
        total.take(members, at)
        assert total.start_time == 1
        found.append(total.value)
    return found


def test_a_member_that_fell_adds_all_that_it_counted_since():
    sums = totals({"a": 100}, {"a": 1375}, {"a": 49}, {"a": 51}, {"a": 0}, {"a": 3})
    assert sums == [0, 1275, 1324, 1326, 1326, 1329]


def test_a_single_0_of_a_member_is_ignored_and_a_second_one_is_a_new_start():
    assert totals({"a": 100}, {"a": 0}, {"a": 130}) == [0, 0, 30]
    assert totals({"a": 100}, {"a": 0}, {"a": 7}) == [0, 0, 7]
    assert totals({"a": 100}, {"a": 0}, {"a": 0}, {"a": 130}) == [0, 0, 0, 130]
    assert totals({"a": 100, "b": 5}, {"a": 0, "b": 6}, {"b": 7}, {"a": 130, "b": 8}) == [0, 1, 2, 3]


def gained(values):
    """Return what a member gained over its readings, None where it was away."""
    total, before, is_doubted = 0, None, False
    for value in values:
        if value is None or before is None:
            before, is_doubted = value, False
        elif value == 0 < before and not is_doubted:
            is_doubted = True
        else:
            total += value - before if value >= before else value
            before, is_doubted = value, False
    return total


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 4) | st.integers(0, 2**64)), min_size=1))
def test_a_sum_never_falls_and_is_what_its_members_gained(readings):
    steps = totals(*readings)
    assert steps == sorted(steps)
    assert steps[-1] == pytest.approx(sum(gained([reading.get(name) for reading in readings]) for name in "abc"))


def test_points_of_one_metric_are_counted_apart_by_their_dimensions():
    counters, one, other = Counters(), Dimensions(kind="one"), Dimensions(kind="other")
    counters.total(SENT, 1, {"a": 5}, one)
    counters.total(SENT, 2, {"a": 7}, other)
    assert counters.total(SENT, 3, {"a": 8}, one) == SENT.point(3, 3, one, start_time=1)
    assert counters.total(SENT, 3, {"a": 8}, other) == SENT.point(3, 1, other, start_time=2)


def test_a_single_counter_keeps_its_value_and_the_start_that_is_known():
    counters = Counters(5)
    assert counters.point(SENT, 10 * S, 700) == SENT.point(10 * S, 700, start_time=5)
    assert counters.point(SENT, 20 * S, 49) == SENT.point(20 * S, 49, start_time=10 * S)
    assert counters.point(SENT, 30 * S, 50) == SENT.point(30 * S, 50, start_time=10 * S)


def test_a_single_counter_of_unknown_start_starts_at_its_first_reading():
    assert Counters().point(SENT, 10, 700) == SENT.point(10, 700, start_time=10)


def test_counters_of_another_source_start_at_their_next_reading_and_sums_go_on():
    counters = Counters(5)
    counters.point(SENT, 10, 700)
    counters.total(READ, 10, {"a": 1})
    counters.restart()
    assert counters.point(SENT, 20, 900) == SENT.point(20, 900, start_time=20)
    assert counters.total(READ, 20, {"a": 4, "b": 100}) == READ.point(20, 3, start_time=10)


def test_the_figures_of_two_kinds_of_reader_agree_over_resets():
    """The increases that a window adds up are those that PromQL's increase() finds in the values."""
    counters, window, shown, added = Counters(5), Window(0, born=8), [], 0.0
    for at, value in enumerate([100, 1375, 49, 51, 30, 30, 31], 10):
        (point,) = window.add([counters.point(SENT, at * S, value)], at * S)
        added += point.increase or 0
        shown.append(point.value)
    assert added == 1275 + 49 + 2 + 30 + 1
    assert added == sum(now - last if now >= last else now for last, now in itertools.pairwise(shown))


def test_other_systems_take_the_boot_time_from_psutil(monkeypatch, tmp_path):
    expected = psutil.boot_time()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert counting_since(tmp_path) == pytest.approx(expected * 1e9, abs=2e9)
