"""The law of counters, for each one of the catalogue: no sink is shown a fall without a newer start."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from chipwatch.advisor.catalogue import catalogue
from chipwatch.contract.datapoint import Dimensions, Kind
from chipwatch.engine.window import Window

S = 10**9
BORN = 1_000 * S
COUNTERS = sorted(
    {metric for metrics in catalogue().values() for metric in metrics if metric.kind is Kind.COUNTER},
    key=lambda metric: (metric.name, metric.dims, metric.level, metric.help),
)
READINGS = st.lists(
    st.tuples(
        st.integers(1, 90),  # seconds since the last reading
        st.integers(0, 1000),
        st.sampled_from(["none", "boot", "a moment before", "now", "last", "older"]),
    ),
    max_size=20,
)


def test_the_catalogue_has_counters():
    assert {"network.sent", "disk.read", "memory.errors", "pcie.errors", "job.energy"} <= {one.name for one in COUNTERS}


@given(st.sampled_from(COUNTERS), READINGS, st.sampled_from([0, 10, 60]))
def test_whatever_a_collector_says_no_counter_falls_without_a_newer_start_nor_rises_by_more_than_it_shows(
    metric, readings, length
):
    window, dims = Window(length, born=BORN), Dimensions(dict.fromkeys(metric.dims, "x"))
    at = last = BORN
    shown = []
    for seconds, value, begun in readings:
        last, at = at, at + seconds * S
        start_time = {
            "none": None, "boot": 7, "a moment before": at - 1, "now": at, "last": last, "older": at - 400 * S
        }[begun]  # fmt: skip
        shown += window.add([metric.point(at, value, dims, start_time=start_time)], at)
    shown += window.close()
    for before, after in itertools.pairwise(shown):
        if after.value < before.value:
            assert (after.start_time or 0) > (before.start_time or 0)
    for point in shown:
        assert point.increase is None or point.increase >= 0
        assert point.start_time is None or point.start_time <= point.at
