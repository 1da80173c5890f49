"""Curves of a recording: statistics, rates of counters, and the buckets of a chart."""

import math
import random
import statistics

import pytest
from tests.agent.show.report.page.worlds import SECOND, START, counter, decoded, recorded, series, sums

from chipwatch.contract.datapoint import Dimensions, Kind, Metric
from chipwatch.history.columns import RecordedSeries
from chipwatch.show.report.page.charts import TimeBuckets, axis, charts
from chipwatch.show.report.page.usage import Curve, ReportedRun

CLOCK = series("cpu.utilization", [1.0] * 40)


def curve_of(*columns, of=0):
    return Curve(columns[of], recorded(*columns))


def test_mean_p95_extremes_and_sum_are_of_all_readings():
    dice = random.Random(7)
    for count in (1, 2, 3, 20, 777):
        values = [dice.gauss(50, 30) for _ in range(count)]
        stats = curve_of(series("gpu.power", values)).stats
        assert stats.readings == count
        assert stats.mean == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert (stats.minimum, stats.maximum) == (min(values), max(values))
        assert stats.total == pytest.approx(math.fsum(values), rel=1e-12)
        if count > 1:
            expected = statistics.quantiles(values, n=100, method="inclusive")[94]
            assert stats.p95 == pytest.approx(expected, rel=1e-12)


def test_a_counter_has_the_rate_of_each_interval_and_its_increase_as_the_total():
    curve = curve_of(counter("network.sent", [100, 110, 150], step=2.0, unit="By"))
    assert curve.values == [5.0, 20.0]
    assert [at - START for at in curve.times] == [2 * SECOND, 4 * SECOND]
    assert (curve.stats.total, curve.stats.maximum) == (50.0, 20.0)
    assert curve_of(counter("network.sent", [7], unit="By")).stats is None


@pytest.mark.parametrize("since", [0, START - SECOND // 20])
def test_a_mean_rate_times_the_time_is_what_was_counted_however_uneven_the_readings(since):
    dice = random.Random(5)
    for _ in range(50):
        totals = enumerate(sums(dice.expovariate(1) for _ in range(30)), -30)
        values = [0.83 + total if n in (-30, 0) or dice.random() < 0.5 else None for n, total in totals]
        column = counter("network.sent", values, since=since)
        curve, begun, zero = curve_of(column), since or START, 0.0 if since else column.values[0]
        mean = (column.values[-1] - zero) / (column.times[-1] - begun) * SECOND
        assert curve.stats.mean == pytest.approx(mean)
        assert TimeBuckets(begun, 99 * SECOND, 1).encoded(curve, 1e-6)["mean"] == [pytest.approx(mean * 1e6, abs=1)]


def test_a_counter_that_falls_or_has_a_new_start_counts_from_zero_again():
    assert curve_of(counter("network.sent", [100, 130, 4, 9], unit="By")).increases == [30, 4, 5]
    column = counter("network.sent", [5, 7, 9], unit="By")
    column.starts.append((2, START + SECOND))
    assert curve_of(column).increases == [2, 9]


def test_a_counter_that_began_within_the_recording_counts_from_its_start():
    column = counter("job.energy", [40, 60], unit="J", start=START + 5 * SECOND, since=START + 3 * SECOND)
    curve = curve_of(column, CLOCK)
    assert (curve.increases, curve.values) == ([40, 20], [20.0, 20.0])


@pytest.mark.parametrize(
    ("name", "values", "increases", "rates"),
    [
        ("network.sent", [2, 12, 22], [12, 10], [12 / 1.02, 10]),  # 2 in 20 ms do not make a peak of 100 a second
        ("agent.cpu", [0.8, 0.9, 1.0], [0.1, 0.1], [0.1, 0.1]),  # 0.8 s in 20 ms were before its start
    ],
)
def test_what_was_counted_before_the_first_reading_belongs_to_the_next_rate(name, values, increases, rates):
    curve = curve_of(counter(name, values, since=START - SECOND // 50))
    assert curve.increases == pytest.approx(increases)
    assert curve.values == pytest.approx(rates)


def test_the_first_event_of_a_kind_counts_though_its_counter_was_not_there_before():
    assert curve_of(counter("gpu.xid", [1, 1], unit="{error}", start=START + 6 * SECOND), CLOCK).increases == [1, 0]
    assert curve_of(counter("gpu.xid", [3, 3], unit="{error}"), CLOCK).increases == [0]
    assert curve_of(counter("network.sent", [900, 901], unit="By", start=START + 6 * SECOND), CLOCK).increases == [1]


def test_buckets_keep_mean_minimum_and_maximum_and_leave_gaps_empty():
    values = [10, 20, None, None, None, None, 50, 30, 0.5]
    column = series("gpu.power", values)
    code = TimeBuckets(START, 2 * SECOND, 6).encoded(curve_of(column), 0.5)
    assert decoded(code, {"quantum": 0.5}, 6) == [15, None, None, 40, 0.5, None]
    assert (code["low"], code["high"]) == ([10, 20, 0], [10, 20, 0])


def test_what_is_read_seldom_stands_until_it_is_read_again_and_a_rate_since_the_last_reading():
    buckets = TimeBuckets(START, SECOND, 40)
    gauge = curve_of(series("gpu.power", [1, 2, None, None, None, 3, 4], step=5.0), CLOCK)
    shown = decoded(buckets.encoded(gauge, 1.0), {"quantum": 1.0}, 40)
    assert shown == [*[1] * 5, 2, *[None] * 19, *[3] * 5, 4, *[None] * 9]
    rate = curve_of(counter("network.sent", [0, 10, 30], step=5.0, unit="By"), CLOCK)
    assert decoded(buckets.encoded(rate, 1.0), {"quantum": 1.0}, 40)[:12] == [None] * 5 + [2] + [4] * 5 + [None]


def charts_of(*columns):
    """Return the charts of a recording by metric, and its time axis."""
    runs = [ReportedRun(recorded(*columns), "a")]
    buckets, _ = axis(runs)
    return {chart["metric"]: chart for chart in charts(runs, buckets)}, buckets[0]


def chart_of(*columns):
    made, buckets = charts_of(*columns)
    return made["gpu.power"], buckets


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e5, 8e10])
def test_a_chart_is_as_exact_as_a_two_thousandth_of_its_range(scale):
    dice = random.Random(3)
    values = [dice.uniform(0, scale) for _ in range(4000)]
    chart, buckets = chart_of(series("gpu.power", values, unit="W"))
    size = -(-len(values) // buckets.count)
    assert buckets.count <= 1000
    means = [statistics.fmean(values[n : n + size]) for n in range(0, len(values), size)]
    assert decoded(chart["series"][0], chart, buckets.count)[: len(means)] == pytest.approx(means, abs=scale / 2000)


def test_a_short_recording_has_a_bucket_for_each_reading_and_a_constant_keeps_three_digits():
    for value in (0.00123, 7.0, 1980.0, 8.59e10, 0.0, -4.5):
        chart, buckets = chart_of(series("gpu.power", [value] * 5, unit="W"))
        assert decoded(chart["series"][0], chart, buckets.count) == pytest.approx([value] * 5, rel=1e-3)
        assert (buckets.step, buckets.count) == (SECOND, 5)
        assert not {"low", "high"} & {*chart["series"][0]}


def test_many_series_have_fewer_buckets_and_those_past_the_limit_only_statistics():
    times = series("x", [1.0, 2.0] * 150).times
    columns = [
        RecordedSeries(Metric("gpu.power", Kind.GAUGE, "W", ""), Dimensions(gpu=str(n)), times,
                       series("x", [n, n + 1.0] * 150).values)
        for n in range(3001)
    ]  # fmt: skip
    columns.append(series("gpu.temperature", [1.0, 2.0] * 150))
    made, buckets = charts_of(*columns)
    assert buckets.count <= 133
    assert "mean" not in made["gpu.power"]["series"][0]
    assert made["gpu.power"]["series"][0]["stats"].maximum == 1.0
    assert "mean" in made["gpu.temperature"]["series"][0]


def test_what_does_not_change_is_drawn_only_in_the_overview():
    gauges = (series(name, [5.0] * 9) for name in ("gpu.power", "gpu.fan.utilization"))
    made, _ = charts_of(*gauges, counter("gpu.xid", sums([0] * 8)))
    drawn = {name: "mean" in chart["series"][0] for name, chart in made.items()}
    assert drawn == {"gpu.power": True, "gpu.fan.utilization": False, "gpu.xid": False}
