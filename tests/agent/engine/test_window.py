import bisect
import itertools
import math
import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.contract.sink import SLACK
from chipwatch.engine.window import FORGET, MOST_VALUES, Window, summarise

S = 10**9
HOUR = 3600 * S
LOAD = gauge("cpu.load", "1", "The load.")
SENT = counter("net.sent", "By", "Bytes sent.", dims=("if",))
BOOT = 5 * S
BORN = 1_000 * S
DIMS = Dimensions(**{"if": "eth0"})

REASONABLE = st.floats(min_value=-1e300, max_value=1e300)


def sent(at, value, start_time=BOOT, dims=DIMS):
    return SENT.point(at, value, dims, start_time=start_time)


def rises(window, *readings):
    """Feed one counter, one tick a reading; return what a window of 0 s says it rose by, tick for tick."""
    found = []
    for at, value, *start_time in readings:
        (point,) = window.add([sent(at, value, *start_time)], at)
        assert point.window_start <= point.at
        found.append(point.increase)
    return found


def live():
    return Window(0, born=BORN)


@pytest.fixture
def window():
    """A window of a minute."""
    return Window(60, born=BORN)


# -- gauges ---------------------------------------------------------------------------------------------------------


def test_samples_of_a_gauge_become_one_point_with_its_summary(window):
    for second, value in ((1200, 1.0), (1205, 3.0), (1210, 1.0)):
        assert window.add([LOAD.point(second * S, value)], second * S) == []
    (point,) = window.close()
    assert point.value == pytest.approx(5 / 3)
    assert (point.window_start, point.at) == (1200 * S, 1210 * S)
    assert point.summary == (3, 5.0, 1.0, 3.0, (1.0, 3.0), (2, 1), 1.0)
    assert point.increase is None


def test_the_summary_of_one_sample_is_that_sample():
    assert summarise([4.5]) == (1, 4.5, 4.5, 4.5, (4.5,), (1,), 4.5)


def test_exactly_150_distinct_values_stay_as_they_are():
    samples = [n / 7 for n in range(MOST_VALUES)]
    assert summarise(samples * 2).values == tuple(samples)


def test_one_sample_far_off_changes_no_percentile_and_no_average():
    """On a grid from the minimum to the maximum nearly all samples would share one value."""
    samples = [20 + n / 100 for n in range(1000)] + [100_000.0]
    summary = summarise(samples)
    assert sum(v * n for v, n in zip(summary.values, summary.counts, strict=True)) == pytest.approx(sum(samples), 1e-12)
    assert abs(percentile(summary, 0.5) - 25) < 0.1
    assert (summary.values[-1], summary.counts[-1]) == (100_000.0, 1)


@given(st.lists(REASONABLE, min_size=1, max_size=400))
def test_a_summary_is_true_to_its_samples(samples):
    check_summary(samples)


@given(REASONABLE, st.floats(min_value=0, max_value=1e6), st.randoms(use_true_random=False))
def test_a_summary_of_many_values_is_true_to_its_samples(low, width, random):
    check_summary([low + random.random() * width for _ in range(300)])


HOSTILE = {
    "uniform": lambda draw: draw.random(),
    "one far off": lambda draw: draw.random() if draw.random() < 0.999 else 1e12,
    "ties": lambda draw: float(draw.choice([0, 0, 0, 1, 1, draw.randrange(10_000)])),
    "two modes": lambda draw: draw.gauss(draw.choice([10, 1e6]), 1),
    "powers": lambda draw: 2.0 ** draw.randrange(-1074, 980) * draw.random(),
    "heavy tail": lambda draw: draw.paretovariate(0.3),
    "small": lambda draw: draw.randrange(2000) * math.ulp(0.0),
    "both signs": lambda draw: draw.gauss(0, 1) * 10.0 ** draw.randrange(-9, 9),
    "large": lambda draw: draw.uniform(-1e300, 1e300),
    "close": lambda draw: 1e9 + draw.randrange(500) * math.ulp(1e9),
    "steps": lambda draw: float(min(draw.randrange(160), draw.randrange(160))),
}


@pytest.mark.parametrize("shape", HOSTILE)
@given(st.integers(min_value=151, max_value=3000), st.integers())
@settings(max_examples=examples(10), deadline=None)
def test_a_summary_of_hostile_samples_is_true_to_them(shape, count, seed):
    draw = random.Random(seed)
    check_summary([HOSTILE[shape](draw) for _ in range(count)])


@given(st.integers())
@settings(max_examples=examples(30), deadline=None)
def test_a_summary_of_values_that_are_seen_often_is_true_to_its_samples(seed):
    draw = random.Random(seed)
    values = [
        (draw.lognormvariate(0, 9), draw.choice([1, 2, draw.randrange(1, 99)])) for _ in range(draw.randrange(151, 400))
    ]
    check_summary([value for value, times in values for _ in range(times)])


def test_more_than_75_values_seen_often_among_others_are_off_by_little_more():
    """With 150 values this cannot be had: 90 values of 1.1 % of the samples each, and two others between any two."""
    samples = [v for n in range(90) for v in [float(n)] * 110 + [n + 0.3, n + 0.6]]
    check_summary(samples, rank=0.0135)


def test_a_sum_beyond_the_largest_float_stays_a_number():
    for samples in ([1.5e308] * 3, [-1.5e308, -1.4e308], [1e308 + n * 1e305 for n in range(500)]):
        summary = summarise(samples)
        assert math.isfinite(summary.sum)
        assert summary.minimum <= min(summary.values) <= max(summary.values) <= summary.maximum
        assert len(summary.values) == len(set(summary.values)) <= MOST_VALUES


def percentile(summary, share):
    """Return what a reader of the summary takes for the value below which this share of the samples is."""
    ends = list(itertools.accumulate(summary.counts))
    return summary.values[min(bisect.bisect_left(ends, share * summary.count), len(ends) - 1)]


def check_summary(samples, rank=0.01):
    summary = summarise(samples)
    assert summary.count == len(samples) == sum(summary.counts)
    assert (summary.minimum, summary.maximum) == (min(samples), max(samples))
    assert len(summary.values) == len(summary.counts) <= MOST_VALUES
    assert list(summary.values) == sorted(set(summary.values))
    assert summary.values[0] == summary.minimum
    assert summary.values[-1] == summary.maximum
    assert all(n > 0 for n in summary.counts)
    if len(set(samples)) <= MOST_VALUES:
        assert Counter(samples) == dict(zip(summary.values, summary.counts, strict=True))
    exact = sum(map(Fraction, samples))
    room = Fraction(1e-12) * sum(abs(Fraction(v)) for v in samples) + len(samples) * Fraction(math.ulp(0.0))
    assert abs(Fraction(summary.sum) - exact) <= room
    assert abs(sum(Fraction(v) * n for v, n in zip(summary.values, summary.counts, strict=True)) - exact) <= room
    ordered = sorted(samples)
    for share in [*(n / 200 for n in range(1, 200)), 0.999]:
        value = percentile(summary, share)
        below, upto = bisect.bisect_left(ordered, value), bisect.bisect_right(ordered, value)
        error = rank + 1e-9  # 27 / 300 + 0.01 is less than 0.1 in floats
        assert below / len(samples) - error <= share <= upto / len(samples) + error, (share, value)


def test_the_first_window_ends_with_a_tick():
    assert [Window(60, born=BORN).first_seconds(interval) for interval in (0, 7.0, 60.0)] == [0, 63, 60]


@given(st.lists(REASONABLE, min_size=1, max_size=400))
def test_the_mean_lies_between_minimum_and_maximum(samples):
    window = Window(3600, born=BORN)
    for value in samples:
        window.add([LOAD.point(HOUR, value)], HOUR)
    (point,) = window.close()
    assert point.summary.minimum <= point.value <= point.summary.maximum


def test_rounding_never_lifts_the_mean_of_equal_samples_above_them(window):
    for _ in range(3):
        window.add([LOAD.point(1200 * S, 0.1)], 1200 * S)
    assert window.close()[0].value == 0.1


def test_values_as_near_as_floats_can_be_are_quantised_too():
    for count in (151, 200, 400):
        check_summary([1.0 + n * math.ulp(1.0) for n in range(count)])
        tiny = summarise([n * math.ulp(0.0) for n in range(count)])
        assert len(tiny.values) <= MOST_VALUES
        assert (tiny.values[0], tiny.values[-1]) == (0.0, tiny.maximum)
        assert sum(tiny.counts) == count


def test_series_differ_by_name_and_dimensions(window):
    other = gauge("cpu.heat", "Cel", "The heat.")
    points = [LOAD.point(0, 1.0, Dimensions(core="0")), LOAD.point(0, 2.0, Dimensions(core="1")), other.point(0, 3.0)]
    window.add(points, 0)
    assert {(p.metric.name, p.dims, p.value) for p in window.close()} == {
        (p.metric.name, p.dims, p.value) for p in points
    }


# -- where a window begins and ends -----------------------------------------------------------------------------------


def test_windows_are_aligned_to_the_clock(window):
    ticks = [1199, 1200, 1259, 1260]
    ended = [window.add([LOAD.point(second * S, float(second))], second * S) for second in ticks]
    assert [[p.value for p in done] for done in ended] == [[], [1199.0], [], [1229.5]]


def test_a_window_without_samples_gives_nothing(window):
    assert window.close() == []
    window.add([LOAD.point(1200 * S, 1.0)], 1200 * S)
    assert len(window.add([], 1260 * S)) == 1
    assert window.add([], 1320 * S) == []
    assert window.close() == []


def test_a_window_closed_early_gives_what_it_has_and_the_rest_comes_in_another(window):
    window.add([LOAD.point(1200 * S, 1.0), sent(1200 * S, 10)], 1200 * S)
    assert [p.value for p in window.close()] == [1.0, 10]
    assert window.close() == []
    window.add([LOAD.point(1210 * S, 2.0), sent(1210 * S, 15)], 1210 * S)
    load, bytes_sent = window.close()
    assert (load.value, load.window_start, load.at) == (2.0, 1200 * S, 1210 * S)
    assert (bytes_sent.increase, bytes_sent.window_start, bytes_sent.at) == (5, 1200 * S, 1210 * S)


def test_with_no_length_gauges_pass_untouched():
    point = LOAD.point(1200 * S, 1.0)
    window = live()
    assert window.add([point], 1200 * S)[0] is point
    assert window.close() == []


# -- counters -----------------------------------------------------------------------------------------------------------


def test_the_first_reading_of_an_old_counter_has_no_increase():
    assert rises(live(), (1200 * S, 10**9)) == [None]


def test_a_counter_rises_from_reading_to_reading():
    assert rises(live(), (1200 * S, 100), (1201 * S, 107), (1202 * S, 107)) == [None, 7, 0]


def test_the_increases_of_windows_join_without_a_gap(window):
    found = []
    for second in range(1200, 1400, 5):
        found += window.add([sent(second * S, 2 * second), LOAD.point(second * S, 1.0)], second * S)
    found += window.close()
    gauges, found = ([p for p in found if p.metric is metric] for metric in (LOAD, SENT))
    assert [(p.window_start, p.at) for p in gauges] == [(p.window_start, p.at) for p in found]
    assert [p.increase for p in found] == [110, 120, 120, 40]
    assert [p.window_start for p in found[1:]] == [p.at for p in found[:-1]]
    assert found[0].window_start == 1200 * S
    assert [p.value for p in found] == [2 * 1255, 2 * 1315, 2 * 1375, 2 * 1395]


def test_where_only_increases_are_wanted_a_counter_without_one_yields_no_point():
    window = Window(0, born=BORN, increases=True)
    assert window.add([sent(1200 * S, 5)], 1200 * S) == []
    assert [p.increase for p in window.add([sent(1201 * S, 5)], 1201 * S)] == [0]
    assert [p.increase for p in window.add([sent(1202 * S, 1)], 1202 * S)] == [1]
    assert window.add([sent(1203 * S, 3, start_time=7)], 1203 * S) == []


def test_a_counter_that_fell_counts_from_zero():
    assert rises(live(), (1200 * S, 1000), (1201 * S, 3), (1202 * S, 5)) == [None, 3, 2]


def test_a_counter_that_fell_gets_the_time_of_the_last_reading_as_its_start_until_it_has_a_newer_one():
    window, found = live(), []
    for second, value, start_time in (
        (1200, 1000, BOOT), (1201, 3, BOOT), (1202, 5, BOOT), (1203, 1, BOOT - 1), (1204, 2, BOOT - 1), (1207, 9, 1205 * S),
    ):  # fmt: skip
        (point,) = window.add([sent(second * S, value, start_time)], second * S)
        found.append((point.start_time // S, point.increase))
    assert found == [(5, None), (1200, 3), (1200, 2), (1202, 1), (1202, 1), (1205, 9)]


def test_a_counter_without_a_start_gets_one_when_it_falls():
    window = live()
    (first,) = window.add([sent(1200 * S, 1000, None)], 1200 * S)
    (fell,) = window.add([sent(1201 * S, 3, None)], 1201 * S)
    assert (first.start_time, fell.start_time, fell.increase) == (None, 1200 * S, 3)


def test_a_reset_inside_a_window_keeps_what_is_known_of_the_rest(window):
    for second, value in ((1200, 100), (1205, 110), (1210, 2), (1215, 5)):
        window.add([sent(second * S, value)], second * S)
    (point,) = window.close()
    assert (point.increase, point.value, point.start_time) == (10 + 2 + 3, 5, 1205 * S)


def test_a_life_that_began_between_two_readings_counts_from_zero():
    assert rises(live(), (1200 * S, 1000), (1205 * S, 30, 1202 * S), (1206 * S, 31, 1202 * S)) == [None, 30, 1]


def test_a_since_that_moved_to_before_the_last_reading_makes_it_only_a_base():
    assert rises(live(), (1200 * S, 1000), (1205 * S, 3000, 1100 * S), (1206 * S, 3001, 1100 * S)) == [None, None, 1]


def test_a_series_that_began_after_the_agent_counts_from_zero_since_then():
    window = live()
    (point,) = window.add([sent(1205 * S, 40, start_time=1203 * S)], 1205 * S)
    assert (point.increase, point.window_start) == (40, 1203 * S)


def test_a_series_that_began_before_the_agent_does_not():
    assert rises(live(), (1205 * S, 40, BORN - 1)) == [None]


def test_a_since_that_is_now_or_later_or_not_known_is_only_a_base():
    assert rises(live(), (1205 * S, 40, 1205 * S), (1206 * S, 41, 1205 * S)) == [None, 1]
    assert rises(live(), (1205 * S, 40, 1300 * S)) == [None]
    assert rises(live(), (1205 * S, 40, None), (1206 * S, 44, None)) == [None, 4]


def test_a_base_inside_a_window_begins_where_it_was_read(window):
    window.add([sent(1200 * S, 100)], 1200 * S)
    window.close()
    window.add([sent(1210 * S, 5, start_time=900 * S)], 1210 * S)
    (point,) = window.close()
    assert (point.increase, point.window_start, point.at) == (None, 1210 * S, 1210 * S)


def test_a_series_that_vanishes_gives_no_zero_and_on_return_what_it_gained(window):
    window.add([sent(1200 * S, 100)], 1200 * S)
    assert len(window.add([], 1260 * S)) == 1
    assert window.add([], 1320 * S) == []
    window.add([sent(1380 * S, 130)], 1380 * S)
    (back,) = window.close()
    assert (back.increase, back.window_start) == (30, 1200 * S)


def test_a_series_that_returns_below_counts_from_zero():
    assert rises(live(), (1200 * S, 100), (1500 * S, 7), (1501 * S, 9)) == [None, 7, 2]


@pytest.mark.parametrize("jump", [30 * 24 * HOUR, -30 * 24 * HOUR, 7 * S, -7 * S])
@pytest.mark.parametrize("length", [0, 60])
def test_a_clock_that_jumps_and_comes_back_invents_nothing(jump, length):
    """A suspended machine wakes up with another clock: counters went on from where they were."""
    window = Window(length, born=BORN)
    start = 100 * 24 * HOUR + 30 * S
    ticks = [start, start + S, start + 2 * S + jump, start + 3 * S + jump, start + 4 * S, start + 5 * S]
    found = []
    for n, at in enumerate(ticks):
        found += window.add([sent(at, 10**9 + n), LOAD.point(at, 50.0)], at)
    found += window.close()
    counted = [p for p in found if p.metric is SENT]
    assert sum(p.increase or 0 for p in counted) == len(ticks) - 1
    assert all(p.increase is None or 0 <= p.increase <= len(ticks) - 1 for p in counted)
    assert {p.value for p in found if p.metric is LOAD} == {50.0}
    assert all(p.window_start <= p.at for p in found if p.window_start is not None)


def test_a_gauge_that_was_absent_for_a_window_starts_at_its_first_sample(window):
    window.add([LOAD.point(1200 * S, 1.0)], 1200 * S)
    window.add([sent(1260 * S, 1)], 1260 * S)
    window.add([LOAD.point(1320 * S, 1.0)], 1320 * S)
    assert [(p.window_start, p.at) for p in window.close()] == [(1320 * S, 1320 * S)]


def test_a_window_closed_after_the_clock_went_back_does_not_end_before_it_begins(window):
    for second, value in ((1240, 10), (1235, 11)):
        window.add([sent(second * S, value), LOAD.point(second * S, 1.0)], second * S)
    assert [(p.window_start, p.at) for p in window.close()] == [(1235 * S, 1235 * S)] * 2


COUNTED = st.lists(
    st.tuples(
        st.integers(-100, 200),  # seconds since the last tick: the clock may step back
        st.one_of(st.none(), st.integers(0, 1000)),  # what it gained, or that it is not there
        st.booleans(),  # whether it was reset
    ),
    max_size=40,
)


@given(COUNTED, st.sampled_from([0, 7, 60]))
def test_increases_are_never_negative_and_never_more_than_was_gained(steps, length):
    window = Window(length, born=BORN)
    at, value, gained, start_time = 10_000 * S, 5 * 10**9, 0, BOOT
    found = []
    for step, gain, anew in steps:
        at += step * S
        if anew:
            value, start_time = 0, at - 1
        if gain is None:
            found += window.add([], at)
            continue
        value += gain
        gained += gain
        found += window.add([sent(at, value, start_time)], at)
    found += window.close()
    known = [p.increase for p in found if p.increase is not None]
    assert all(n >= 0 for n in known)
    assert sum(known) <= gained


# -- memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 60])
def test_counters_that_are_gone_are_forgotten(length):
    window = Window(length, born=BORN)
    for n in range(2000):
        at = BORN + n * 60 * S
        window.add([sent(at, 5, dims=Dimensions(run=str(n))), sent(at, n), LOAD.point(at, 1.0)], at)
    assert len(window._counters) <= FORGET / (60 * S) + 64 + 2
    window.close()
    at = BORN + 2000 * 60 * S
    (kept,) = window.add([sent(at, 2004)], at) or window.close()
    assert kept.increase == 2004 - 1999


@pytest.mark.parametrize("length", [0, 60])
def test_gauges_that_are_gone_leave_nothing_behind(length):
    window = Window(length, born=BORN)
    for n in range(200):
        at = BORN + n * 60 * S
        window.add([LOAD.point(at, 1.0, Dimensions(run=str(n)))], at)
    assert len(window._gauges) <= 2  # a gauge is kept for one more window


def test_a_counter_that_was_forgotten_is_only_a_base_when_it_returns():
    window = live()
    began = BORN + S
    assert rises(window, (BORN + 2 * S, 40, began)) == [40]
    at = BORN + 2 * S
    for _ in range(200):
        at += 60 * S
        window.add([], at)
    assert not len(window._counters)
    assert rises(window, (at + S, 1_000_000, began), (at + 2 * S, 1_000_003, began)) == [None, 3]
    assert rises(window, (at + 9 * S, 1_000_500, at + 5 * S)) == [1_000_500]


# -- windows that must be apart --------------------------------------------------------------------------------------


def ends(window, *seconds):
    """Feed a gauge once at each of these seconds; return when the windows ended that this closed."""
    closed = [window.add([LOAD.point(int(second * S), 1.0)], int(second * S)) for second in seconds]
    return [points[0].at / S for points in closed if points]


def test_a_window_that_would_end_too_soon_after_one_of_before_the_restart_goes_on():
    assert ends(Window(60, born=BORN, spacing=10, ended=1196 * S), 1197, 1199, 1200, 1255, 1261) == [1255]


def test_a_window_that_ends_late_enough_after_the_restart_ends_as_ever():
    assert ends(Window(60, born=BORN, spacing=10, ended=1189 * S), 1197, 1199, 1200) == [1199]
    assert ends(Window(60, born=BORN, spacing=10, ended=int(1189.5 * S)), 1197, 1199, 1200) == []  # its end was moved


def test_windows_of_the_spacing_itself_end_each_time_though_ticks_jitter():
    assert ends(Window(10, born=BORN, spacing=10), 1205, 1215.03, 1225.01, 1235, 1245) == [1205, 1215.03, 1225.01, 1235]


def test_a_short_window_that_is_closed_is_stamped_with_the_first_moment_allowed():
    window = Window(60, born=BORN, spacing=10)
    assert ends(window, 1255, 1260) == [1255]
    (point,) = window.close()
    assert (point.window_start, point.at) == (1255 * S, 1265 * S)


def test_a_restart_just_after_a_short_window_waits_for_the_moment_it_was_stamped_with():
    assert ends(Window(60, born=BORN, first=10, spacing=10, ended=1265 * S), 1256, 1266, 1275, 1277, 1321) == [1277]


@pytest.mark.parametrize(("step", "jitter"), [(3, 0.0), (1, 0.002), (1, 0.4), (10, 0.3), (7, 0.9)])
def test_no_window_ends_too_soon_after_one_whose_end_was_moved_by_the_slack(step, jitter):
    """A sink moves an end that comes a second early to where it may be; the next one counts from there."""
    shift = random.Random(1)
    seconds = [1200 - 0.001 + n * step + shift.uniform(0, jitter) for n in range(600)]
    found = ends(Window(10, born=BORN, spacing=10), *seconds)
    last = 0.0
    for end in found:
        assert end >= last + 9
        last = max(end, last + 10)
    assert len(found) > 600 * step / 25


def test_a_window_after_a_very_late_tick_is_joined_with_the_next():
    assert ends(Window(10, born=BORN, spacing=10), 1200, 1213, 1220, 1230, 1240) == [1200, 1213, 1230]


def test_a_clock_that_was_set_back_does_not_hold_windows_open():
    assert ends(Window(60, born=BORN, spacing=10, ended=5000 * S), 1197, 1210, 1260) == [1197, 1210]


def test_priming_leaves_nothing_to_wait_for():
    window = Window(60, born=BORN, spacing=10)
    window.prime([LOAD.point(1201 * S, 1.0)], 1201 * S)
    window.add([LOAD.point(1202 * S, 2.0)], 1202 * S)
    assert not window.is_short
    assert [point.value for point in window.close()] == [2.0]


# -- the first window ------------------------------------------------------------------------------------------------


def test_the_first_window_of_all_may_end_sooner_and_only_that():
    window = Window(60, born=BORN, first=10)
    assert ends(window, 1201, 1206, 1211, 1216, 1255, 1260, 1320) == [1206, 1255, 1260]


def test_a_first_window_that_the_clock_ends_sooner_ends_then():
    assert ends(Window(60, born=BORN, first=10), 1258, 1263, 1269, 1319, 1321) == [1258, 1319]


def test_what_a_counter_rose_by_in_the_first_window_is_known():
    window = Window(60, born=BORN, first=10, increases=True)
    for second, value in ((1201, 100.0), (1206, 150.0)):
        assert window.add([sent(second * S, value)], second * S) == []
    (point,) = window.add([sent(1211 * S, 175.0)], 1211 * S)
    assert (point.at, point.increase) == (1206 * S, 50.0)


def test_a_first_window_obeys_the_spacing():
    assert ends(Window(60, born=BORN, first=10, spacing=10, ended=1203 * S), 1201, 1206, 1212, 1255, 1261) == [1255]
    assert ends(Window(60, born=BORN, first=10, spacing=10), 1241, 1246, 1251, 1254, 1261, 1320) == [1246, 1261]


def test_a_window_that_held_nothing_does_not_keep_the_next_one_open():
    window = Window(60, born=BORN, spacing=10)
    window.prime([LOAD.point(1259 * S, 1.0)], 1259 * S)
    assert window.add([LOAD.point(1260 * S, 2.0)], 1260 * S) == []
    assert not window.is_short
    assert [point.value for point in window.close()] == [2.0]


def test_a_reading_of_a_counter_that_came_late_is_not_sent_too_near_the_last_window():
    total, second = counter("test.total", "By", "A total."), 10**9
    window = Window(20, born=0, spacing=10)
    for at in (1, 10, 19):
        window.add([total.point(at * second, float(at), start_time=0)], at * second)
    (first,) = window.add([total.point(20 * second, 20.0, start_time=0)], 20 * second)
    window.add([], 39 * second)  # no reading came since
    (later,) = window.add([total.point(40 * second, 40.0, start_time=0)], 40 * second)
    assert later.at - first.at >= (10 - SLACK) * second
    assert later.value == 20.0


ERRORS = counter("net.errors", "{packet}", "Errors.", dims=("if",))


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_counter_of_events_that_is_held_at_0_has_its_first_event_whole_and_starts_at_its_last_0(seconds):
    window = Window(seconds, born=BORN, holds_zero=lambda metric: metric.counts_events)
    done = []
    for second, value in enumerate([0, 0, 0, 2, 2, 3]):
        at = BORN + second * S
        done += window.add([ERRORS.point(at, value, DIMS, start_time=BOOT), sent(at, 0)], at)
    done += window.close()
    first, *later = [point for point in done if point.metric is ERRORS]
    assert (first.value, first.increase, first.at - BORN) == (2, 2, 3 * S)
    assert first.start_time == first.window_start == BORN + 2 * S
    assert [(point.value, point.increase, point.start_time) for point in later] == [
        (2, 0, first.start_time), (3, 1, first.start_time),
    ]  # fmt: skip
    assert len([point for point in done if point.metric is SENT]) == 6  # an amount that is 0 is work that was not done


def test_a_counter_of_events_that_starts_again_is_held_until_its_next_event():
    window = Window(0, born=BORN, holds_zero=lambda _: True)
    done = []
    for second, (value, start_time) in enumerate([(0, BOOT), (4, BOOT), (0, BORN + S), (1, BORN + S)]):
        at = BORN + second * S
        done += window.add([ERRORS.point(at, value, DIMS, start_time=start_time)], at)
    assert [(point.value, point.increase) for point in done] == [(4, 4), (1, 1)]
    assert done[1].start_time == BORN + 2 * S


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_series_that_comes_twice_in_a_reading_counts_once(seconds):
    window, points = Window(seconds, born=BORN), []
    other = Dimensions(**{"if": "eth1"})
    for at in range(1200 * S, 1230 * S, 5 * S):
        tick = [sent(at, 100.0), sent(at, 50.0), sent(at, 7.0, dims=other), LOAD.point(at, 1.0), LOAD.point(at, 9.0)]
        points += window.add(tick, at)
        assert window.repeated in (tick[1], tick[-1])
    points += window.close()
    counters = [point for point in points if point.metric is SENT]
    assert {point.value for point in counters} == {100.0, 7.0}
    assert {point.increase for point in counters} <= {None, 0.0}
    for point in points:
        if point.summary:
            assert (point.summary.count, point.summary.maximum) == (6, 1.0)
