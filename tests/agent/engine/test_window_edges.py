"""Edges of a window: the moment that is just enough, the last sample, the clock that goes back."""

import sys

import pytest

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.engine.window import MOST_VALUES, Window, summarise

S = 10**9
HOUR = 3600 * S
BORN = 1000 * S
LOAD = gauge("cpu.load", "1", "The load.")
SENT = counter("net.sent", "By", "Bytes sent.")


def fed(window, *readings):
    """Feed one gauge, (seconds, value) each; return the points of the windows that ended."""
    return [p for second, value in readings for p in window.add([LOAD.point(int(second * S), value)], int(second * S))]


def test_the_last_sample_is_neither_the_first_nor_the_largest():
    window = Window(60, born=BORN)
    fed(window, (1200, 4.0), (1205, 9.0), (1210, 1.0), (1215, 3.0))
    (point,) = window.close()
    assert point.summary.last == 3.0
    assert (point.summary.values[0], point.summary.values[-1]) == (1.0, 9.0)


def test_the_last_of_more_values_than_a_summary_keeps_is_kept():
    samples = [float(n * 7 % 1000) for n in range(1000)] + [123.0]
    found = summarise(samples)
    assert found.last == 123.0
    assert len(found.values) <= MOST_VALUES


@pytest.mark.parametrize("distinct", [MOST_VALUES - 1, MOST_VALUES])
def test_as_many_values_as_a_summary_keeps_are_kept_as_they_are(distinct):
    samples = [float(n) for n in range(distinct)]
    found = summarise(samples[::-1])
    assert found.values == tuple(samples)
    assert found.counts == (1,) * distinct


def test_of_one_value_more_the_ends_are_as_they_were_and_each_sample_counts():
    samples = [float(n * n) for n in range(MOST_VALUES + 1)]
    found = summarise(samples)
    assert len(found.values) <= MOST_VALUES
    assert (found.values[0], found.values[-1]) == (samples[0], samples[-1])
    assert sum(found.counts) == found.count == MOST_VALUES + 1
    assert sum(v * n for v, n in zip(found.values, found.counts, strict=True)) == pytest.approx(sum(samples))


def test_bins_are_filled_to_a_hundredth_of_the_samples():
    """The mean of neighbours: for a thousand samples no more than ten of a bin are below or above it."""
    found = summarise([float(n) for n in range(1000)])
    assert found.counts[0] == found.counts[-1] == 1
    assert set(found.counts[1:-2]) == {11}
    assert len(found.values) == 93


def test_bins_grow_no_more_than_they_must():
    samples = [float(n) for value in range(90) for n in [2 * value] * (100 + 2 * value // 9) + [2 * value + 1]]
    assert 120 < len(summarise(samples).values) <= MOST_VALUES


def test_a_sum_beyond_the_largest_float_is_the_largest_on_either_side():
    largest = sys.float_info.max
    assert summarise([largest, largest]).sum == largest
    assert summarise([-largest, -largest, -1.0]).sum == -largest
    assert summarise([largest, largest, -largest, -largest / 2]).sum == pytest.approx(largest / 2)


def test_a_window_that_the_clock_ends_at_its_first_moment_holds_what_came_before():
    window = Window(60, born=BORN)
    assert fed(window, (1200, 1.0), (1259.999, 2.0)) == []
    (point,) = fed(window, (1260, 3.0))
    assert (point.window_start, point.at, point.summary.count) == (1200 * S, int(1259.999 * S), 2)


def test_windows_of_less_than_a_second_end_on_their_own_grid():
    window = Window(0.5, born=BORN)
    assert [p.at / S for p in fed(window, (1200, 1.0), (1200.4, 2.0), (1200.5, 3.0), (1201, 4.0))] == [1200.4, 1200.5]


def test_a_first_window_ends_at_the_very_moment_it_was_to():
    window = Window(60, born=BORN, first=10)
    assert fed(window, (1201, 1.0), (1210.999999999, 2.0)) == []
    assert len(fed(window, (1211, 3.0))) == 1


def test_a_window_just_the_spacing_after_the_last_is_not_short():
    window = Window(60, born=BORN, spacing=10, ended=1190 * S)
    fed(window, (1200, 1.0))
    assert not window.is_short
    window = Window(60, born=BORN, spacing=10, ended=1190 * S)
    fed(window, (1199.999, 1.0))
    assert window.is_short


def test_a_window_that_no_sample_reached_closes_without_a_point():
    assert Window(60, born=BORN, spacing=10, ended=1190 * S).close() == []


def test_a_late_reading_of_a_counter_is_moved_to_the_first_time_that_the_sink_takes():
    window = Window(60, born=BORN, spacing=10, ended=1190 * S)
    window.add([SENT.point(1195 * S, 500.0)], 1215 * S)
    (point,) = window.close()
    assert point.at == 1200 * S


def test_an_end_more_than_two_spacings_ahead_is_a_clock_that_was_set_back():
    for ended, short in ((1219, True), (1220, False)):  # and the second by which an end may have been moved
        window = Window(60, born=BORN, spacing=10, ended=ended * S)
        fed(window, (1200, 1.0))
        assert window.is_short is short


@pytest.mark.parametrize(("start", "increase"), [(BORN - 1, None), (BORN, 40.0), (BORN + 1, 40.0)])
def test_a_counter_that_began_with_the_agent_counts_from_zero(start, increase):
    at = BORN + S
    (point,) = Window(0, born=BORN).add([SENT.point(at, 40.0, start_time=start)], at)
    assert point.increase == increase


def test_a_counter_that_began_just_at_the_last_reading_counts_from_zero():
    window = Window(0, born=BORN)
    window.add([SENT.point(1200 * S, 500.0, start_time=S)], 1200 * S)
    (point,) = window.add([SENT.point(1205 * S, 40.0, start_time=1200 * S)], 1205 * S)
    assert (point.increase, point.window_start) == (40.0, 1200 * S)


@pytest.mark.parametrize(("pause", "increase"), [(HOUR - S, 7.0), (HOUR, None), (HOUR + S, None)])
def test_a_counter_is_remembered_for_an_hour(pause, increase):
    """Those that are gone are looked for at every 64th window."""
    window, gone = Window(0, born=BORN), Dimensions(run="gone")
    window.add([SENT.point(BORN + S, 100.0, gone, start_time=0)], BORN + S)
    for n in range(63):
        window.add([SENT.point(BORN + S, float(n))], BORN + S + pause)
    (point,) = window.add([SENT.point(BORN + 2 * S + pause, 107.0, gone, start_time=0)], BORN + 2 * S + pause)
    assert point.increase == increase


def test_priming_gives_counters_a_base_and_keeps_when_the_last_window_ended():
    window = Window(60, born=BORN, spacing=10, ended=1203 * S)
    window.prime([SENT.point(1200 * S, 100.0), LOAD.point(1200 * S, 1.0)], 1200 * S)
    window.add([SENT.point(1201 * S, 130.0)], 1201 * S)
    assert window.is_short
    (point,) = window.close()
    assert (point.increase, point.at) == (30.0, 1214 * S)


def test_a_base_of_a_counter_read_before_the_window_closes_with_increases_only_yields_no_point():
    window = Window(60, born=BORN, increases=True)
    window.add([SENT.point(1200 * S, 100.0)], 1200 * S)
    assert window.close() == []
    window.add([SENT.point(1261 * S, 110.0)], 1261 * S)
    (point,) = window.close()
    assert (point.increase, point.window_start) == (10.0, 1200 * S)


def test_a_summary_never_has_more_values_than_cloudwatch_takes_in_a_datum():
    assert len(summarise([float(n) for n in range(150)]).values) == 150
    for samples in (151, 300, 301, 3000):
        assert len(summarise([float(n * n) for n in range(samples)]).values) <= 150


@pytest.mark.parametrize("often", range(70, 80))
def test_a_summary_of_values_seen_often_between_values_seen_once_has_no_more_than_150(often):
    samples = [float(n) for n in range(2 * often + 2) for _ in range(10 if n % 2 else 1)]
    found = summarise(samples)
    assert len(found.values) <= 150
    assert sum(found.counts) == len(samples)


def test_an_event_of_the_tick_in_which_the_clock_is_set_back_is_an_increase():
    window, at = Window(0, born=BORN), BORN - 30 * S
    window.add([], BORN + S)
    (point,) = window.add([SENT.point(at, 5, start_time=at - 1)], at)  # as the kernel's log does
    assert point.increase == 5


def test_a_clock_that_is_set_back_before_the_first_tick_loses_no_first_event():
    window = Window(0, born=BORN)
    assert window.add([], BORN - 30 * S) == []
    (point,) = window.add([SENT.point(BORN - 20 * S, 5, start_time=BORN - 30 * S)], BORN - 20 * S)
    assert point.increase == 5
