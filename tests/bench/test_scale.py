"""A cost that grows faster than the machine fails; the whole courses are for `make bench`."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest
from tests.bench import bench, kept, scale
from tests.bench.figure import Effort, cpu_ms
from tests.bench.scale import STEEPEST, Course, course, slope

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, gauge

LEAST = Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)
LOAD = gauge("bench.load", "%", "A load.", dims=("n",))
SMALL = {
    "series": (scale.series, (100, 1000, 4000, 8000)),
    "cores": (scale.ticking_cores, (8, 32, 128, 512)),
    "runtimes": (scale.runtimes, (1, 4, 16, 32)),
    "processes": (scale.processes, (10, 100, 300, 1000)),
    "sinks": (scale.sinks, (1, 2, 4, 8)),
    "jobs": (scale.accounts, (1, 5, 20, 80)),
}


class Searching(Collector):
    """Looks for each device in the list of all, as often as there are devices."""

    metrics = (LOAD,)

    def __init__(self, devices):
        self.names = [str(number) for number in range(devices)]

    def collect(self, at):
        for name in list(self.names):
            yield LOAD.point(at, self.names.index(name), Dimensions(n=name))


@contextmanager
def searching(devices):
    collector = Searching(devices)
    yield lambda: cpu_ms(lambda at: list(collector.collect(at)), 1, 0)


def test_the_slope_is_of_the_upper_half():
    assert slope((1, 10, 100, 1000), (5, 5, 10, 100)) == pytest.approx(1)
    assert slope((1, 2, 4, 8), (1, 4, 16, 64)) == pytest.approx(2)


def test_a_quadratic_collector_fails(monkeypatch):
    courses = (course("devices", (500, 1000, 2000, 4000), searching, 1) for _ in range(5))
    taken = next(each for each in courses if each.slope > STEEPEST)  # a busy machine may spoil some
    monkeypatch.setattr(scale, "COURSES", {"devices": lambda rounds: taken})
    (figure,) = scale.scale(LEAST)
    assert figure.verdict == "FAIL"
    assert bench.table(bench.machine(), [figure]).count("FAIL") == 1
    assert not kept.is_kept(figure)


def test_a_linear_cost_passes(monkeypatch):
    monkeypatch.setattr(scale, "COURSES", {"of": lambda rounds: Course("of", (1, 10, 100), [[2], [20], [200]])})
    assert [figure.verdict for figure in scale.scale(LEAST)] == ["ok"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", SMALL)
def test_the_cost_of_a_tick_is_linear_in_the_size_of_the_machine(name):
    ticking, sizes = SMALL[name]
    slopes = []
    for _ in range(3):  # a busy machine may spoil one
        slopes.append(course(name, sizes, ticking, 2).slope)
        if slopes[-1] < STEEPEST:
            return
    pytest.fail(f"slopes {slopes}")
