"""One law: the summary of a run, from ticks, and the report of its recording, from curves, have the same figures."""

from array import array

import pytest
from tests.agent.show.report.page.worlds import SECOND, START, counter, hour, recorded, series, sums

from chipwatch.show.report import summary as summaries
from chipwatch.show.report.accelerators import COLUMNS
from chipwatch.show.report.page.usage import ReportedRun

BEGUN, TICKS = START - SECOND // 50, 90


def changed(column):
    """Spoil a series: by its GPU it began just before the first tick, has a gap, vanishes, or starts again."""
    gpu, times, values = column.dims.get("gpu"), column.times, column.values
    if column.starts and gpu == "0":
        values[:], column.starts = array("d", [0.01 + value for value in values]), [(0, BEGUN)]
    if column.starts and gpu == "3":
        values[40:] = array("d", [value - values[39] for value in values[40:]])
        column.starts = [(0, BEGUN), (20, BEGUN + 1), (40, START + 39 * SECOND + 1)]
    lost = {"1": slice(20, 60), "2": slice(30, None)}.get(gpu, slice(0, 0))
    del times[lost], values[lost]
    return column


@pytest.mark.parametrize("seed", range(3))
def test_the_summary_and_the_report_of_one_recording_have_the_same_figures(monkeypatch, seed):
    columns = [changed(column) for column in hour(TICKS, 4, seed=seed).columns if column.dims.get("gpu", "9") < "7"]
    columns += [series("neuron.core.utilization", sums([seed] * TICKS), neuron_device="0", neuron_core=n) for n in "01"]
    columns += [series(f"gpu.{name}", sums([1] * TICKS), gpu="8") for name in ("utilization", "power", "efficiency")]
    columns.append(counter("gpu.energy.by_state", sums([2.0]), gpu="0", state="held"))
    columns.append(counter("gpu.energy", [7.0] * TICKS, gpu="8"))
    monkeypatch.setattr(summaries.time, "time_ns", lambda: BEGUN - SECOND // 100)
    recording, summary = recorded(*columns), summaries.RunSummary()
    for at, points in recording.ticks():
        summary.take(points, at)
    told = summary._accelerators._devices
    report = {device.key: device.usage for device in ReportedRun(recording, "a").devices}
    assert report.keys() == told.keys()
    for key, usage in report.items():
        assert [cell(usage) for cell in COLUMNS.values()] == [cell(told[key]) for cell in COLUMNS.values()]
        assert (usage.time.total, usage.time.used) == pytest.approx((told[key].time.total, told[key].time.used))
        assert (usage.idle, usage.joules) == (pytest.approx(told[key].idle), pytest.approx(told[key].joules))
    assert [report[("gpu", gpu),].time.total for gpu in "1238"] == pytest.approx([90, 29, 89, 90], abs=0.1)
    assert report[("gpu", "8"),].is_by_power
