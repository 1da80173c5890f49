"""A cost that grows faster than the machine fails; the whole courses are for `make bench`."""

import sys

import pytest
from tests.bench import bench, kept, scale
from tests.bench.figure import Effort
from tests.bench.scale import STEEPEST, Course, course, slope

from chipwatch.host import procfs

LEAST = Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)
SMALL = {
    "series": (scale.series, (100, 1000, 4000, 8000)),
    "cores": (scale.ticking_cores, (8, 32, 128, 512)),
    "runtimes": (scale.runtimes, (1, 4, 16, 32)),
    "processes": (scale.processes, (10, 100, 300, 1000)),
    "sinks": (scale.sinks, (1, 2, 4, 8)),
    "jobs": (scale.accounts, (1, 5, 20, 80)),
}


def test_the_slope_is_of_the_upper_half():
    assert slope((1, 10, 100, 1000), (5, 5, 10, 100)) == pytest.approx(1)
    assert slope((1, 2, 4, 8), (1, 4, 16, 64)) == pytest.approx(2)


@pytest.mark.parametrize(("last", "verdict"), [(200, "ok"), (20_000, "FAIL")])
def test_a_linear_cost_passes_and_a_quadratic_one_fails(monkeypatch, last, verdict):
    monkeypatch.setattr(scale, "COURSES", {"of": lambda rounds: Course("of", (1, 10, 100), [[2], [20], [last]])})
    (figure,) = scale.scale(LEAST)
    assert figure.verdict == verdict
    assert bench.table(bench.machine(), [figure]).count("FAIL") == (verdict == "FAIL")
    assert not kept.is_kept(figure)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", SMALL)
def test_the_cost_of_a_tick_is_linear_in_the_size_of_the_machine(name, monkeypatch):
    monkeypatch.setattr(procfs, "MAX_OPEN", 0)  # open files make small trees cheaper than their share of a large one
    ticking, sizes = SMALL[name]
    slopes = []
    for _ in range(3):  # a busy machine may spoil one
        slopes.append(course(name, sizes, ticking, 2).slope)
        if slopes[-1] < STEEPEST:
            return
    pytest.fail(f"slopes {slopes}")
