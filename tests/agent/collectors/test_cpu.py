import os
import shutil
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles import sysfs

from chipwatch.collectors.cpu import CORE, CORE_TIME, LOAD, MIN_TICKS, MODE, MODES, UTILIZATION, CpuCollector
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given

PROC = Path(__file__).parents[2] / "fixtures/host/node_exporter/proc"
LINUX = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc here")


def stat(*cpus: str) -> str:
    return "\n".join([*cpus, "intr 12 0 1", "ctxt 5", "btime 1418183276", ""])


@pytest.fixture
def host(tmp_path):
    """A /proc whose stat can be rewritten."""
    (tmp_path / "loadavg").write_bytes((PROC / "loadavg").read_bytes())
    return tmp_path


@pytest.fixture
def opened(host, begun):
    """Open a collector with this first reading."""

    def make(first: str, level: Level = Level.ALL) -> CpuCollector:
        (host / "stat").write_text(first)
        return begun(CpuCollector(CpuCollector.Config(proc=host)), level)

    return make


def values(points):
    return {(p.metric.name, *dict(p.dims).values()): p.value for p in points}


def without_load(points):
    return [p for p in points if p.metric is not LOAD]


def test_shares_are_computed_from_the_ticks_since_the_last_reading(host, opened):
    collector = opened(
        stat("cpu  100 0 100 800 0 0 0 0 0 0", "cpu0 50 0 50 400 0 0 0 0 0 0", "cpu1 50 0 50 400 0 0 0 0 0 0")
    )
    (host / "stat").write_text(
        stat("cpu  130 10 115 905 20 4 6 10 7 3", "cpu0 80 0 50 470 0 0 0 0 0 0", "cpu1 50 10 65 435 20 4 6 10 7 3")
    )
    assert list(collector.collect(at=7)) == [
        UTILIZATION.point(7, 37.5),
        MODE.point(7, 15.0, Dimensions(mode="user")),
        MODE.point(7, 5.0, Dimensions(mode="nice")),
        MODE.point(7, 7.5, Dimensions(mode="system")),
        MODE.point(7, 10.0, Dimensions(mode="iowait")),
        MODE.point(7, 2.0, Dimensions(mode="irq")),
        MODE.point(7, 3.0, Dimensions(mode="softirq")),
        MODE.point(7, 5.0, Dimensions(mode="steal")),
        CORE.point(7, 30.0, Dimensions(cpu="0")),
        CORE.point(7, 45.0, Dimensions(cpu="1")),
        LOAD.point(7, 0.21, Dimensions(window="1m")),
        LOAD.point(7, 0.37, Dimensions(window="5m")),
        LOAD.point(7, 0.39, Dimensions(window="15m")),
    ]


def test_a_captured_file_gives_the_shares_since_boot(host, opened):
    collector = opened(stat("cpu  0 0 0 0 0 0 0 0 0 0", *(f"cpu{i} 0 0 0 0 0 0 0 0 0 0" for i in range(8))))
    shutil.copyfile(PROC / "stat", host / "stat")
    found = values(collector.collect(at=7))
    total = 301854 + 612 + 111922 + 8979004 + 3552 + 2 + 3944
    assert found["cpu.utilization",] == 100 * (total - 8979004 - 3552) / total
    assert found["cpu.mode.utilization", "user"] == 100 * 301854 / total
    total0 = 44490 + 19 + 21045 + 1087069 + 220 + 1 + 3410
    assert found["cpu.core.utilization", "0"] == 100 * (44490 + 19 + 21045 + 1 + 3410) / total0
    assert sum(name == "cpu.core.utilization" for name, *_ in found) == 8


def test_the_seconds_of_each_cpu_by_mode_are_counters_that_never_fall(host):
    (host / "stat").write_text(stat("cpu  200 0 0 0 50 0 0 0", "cpu0 150 2 0 0 50 0 0 0", "cpu1 50 0 0 0 0 0 0 0"))
    collector = CpuCollector(CpuCollector.Config(proc=host, core_times=True))
    collector.open(Given(level=Level.ALL))
    first = {tuple(p.dims.values()): p for p in collector.collect(at=7) if p.metric is CORE_TIME}
    assert (first["0", "user"].value, first["0", "nice"].value, first["1", "user"].value) == (1.5, 0.02, 0.5)
    assert len(first) == 16
    (host / "stat").write_text(stat("cpu  200 0 0 0 50 0 0 0", "cpu0 160 2 0 0 40 0 0 0", "cpu1 50 0 0 0 0 0 0 0"))
    then = {tuple(p.dims.values()): p.value for p in collector.collect(at=8) if p.metric is CORE_TIME}
    assert (then["0", "user"], then["0", "iowait"]) == (1.6, 0.5)
    collector.close()


def test_the_seconds_of_a_cpu_that_are_fewer_after_a_restart_have_a_newer_start(host, tmp_path):
    sysfs.write(host / "sys/kernel/random/boot_id", "a boot")
    seen, boot = {}, 1418183276 * 10**9
    for at, iowait in ((boot + 10**9, 50), (boot + 9 * 10**9, 40)):
        (host / "stat").write_text(stat("cpu  200 0 0 0 0 0 0 0", f"cpu0 150 2 0 0 {iowait} 0 0 0"))
        collector = CpuCollector(CpuCollector.Config(proc=host, core_times=True))
        collector.open(Given(state=tmp_path))
        for p in collector.collect(at=at):
            if p.metric is CORE_TIME:
                seen.setdefault(p.dims["mode"], []).append((p.value, p.start_time))
        collector.close()
    assert seen["user"] == [(1.5, boot), (1.5, boot)]
    assert seen["iowait"] == [(0.5, boot), (0.4, boot + 10**9)]


def test_level_basic_yields_one_point_and_detailed_no_cores(host, opened):
    first, second = stat("cpu  0 0 0 0 0 0 0 0", "cpu0 0 0 0 0 0 0 0 0"), stat("cpu  50 0 0 50 0 0 0 0", "cpu0 x")
    collector = opened(first, Level.BASIC)
    (host / "stat").write_text(second)
    assert list(collector.collect(at=7)) == [UTILIZATION.point(7, 50.0)]
    collector = opened(first, Level.DETAILED)
    (host / "stat").write_text(second)
    assert {p.metric for p in collector.collect(at=7)} == {UTILIZATION, MODE, LOAD}


def test_a_mode_that_decreases_counts_as_zero(host, opened):
    collector = opened(stat("cpu  0 0 0 0 100 0 0 0"), Level.DETAILED)
    (host / "stat").write_text(stat("cpu  50 0 0 150 90 0 0 0"))
    found = values(collector.collect(at=7))
    assert found["cpu.utilization",] == 25.0
    assert found["cpu.mode.utilization", "iowait"] == 0.0


def test_after_all_modes_decreased_the_next_reading_starts_from_there(host, opened):
    collector = opened(stat("cpu  5000 0 0 5000 0 0 0 0"), Level.BASIC)
    (host / "stat").write_text(stat(f"cpu  {5000 + MIN_TICKS - 1} 0 0 5000 0 0 0 0"))
    assert list(collector.collect(at=6)) == [], "too short an interval is added to the next"
    (host / "stat").write_text(stat("cpu  10 0 0 10 0 0 0 0"))
    assert list(collector.collect(at=7)) == []
    (host / "stat").write_text(stat("cpu  20 0 0 40 0 0 0 0"))
    assert list(collector.collect(at=8)) == [UTILIZATION.point(8, 25.0)]


def test_a_removed_core_is_absent_and_a_new_one_needs_two_readings(host, opened):
    def cores(*names: str, ticks: int) -> None:
        lines = [f"{name} {ticks} 0 0 {ticks} 0 0 0 0" for name in ("cpu ", *names)]
        (host / "stat").write_text(stat(*lines))

    def seen() -> set[str]:
        return {p.dims["cpu"] for p in collector.collect(at=7) if p.metric is CORE}

    collector = opened(stat("cpu  0 0 0 0 0 0 0 0", "cpu0 0 0 0 0 0 0 0 0", "cpu1 0 0 0 0 0 0 0 0"))
    cores("cpu0", "cpu1", ticks=100)
    assert seen() == {"0", "1"}
    cores("cpu0", ticks=200)
    assert seen() == {"0"}
    cores("cpu0", "cpu1", "cpu2", ticks=300)
    assert seen() == {"0"}
    cores("cpu0", "cpu1", "cpu2", ticks=400)
    assert seen() == {"0", "1", "2"}


def test_columns_that_an_old_kernel_does_not_have_are_absent(host, opened):
    collector = opened(stat("cpu  0 0 0 0 0 0 0"), Level.DETAILED)
    (host / "stat").write_text(stat("cpu  50 0 0 50 0 0 0"))
    found = values(collector.collect(at=7))
    assert found["cpu.utilization",] == 50.0
    assert ("cpu.mode.utilization", "steal") not in found


def test_without_a_loadavg_the_load_is_absent(host, opened):
    (host / "loadavg").unlink()
    collector = opened(stat("cpu  0 0 0 0 0 0 0 0"))
    assert list(collector.collect(at=7)) == []


@pytest.mark.parametrize("content", [None, "intr 1\n"])
def test_without_a_source_the_message_says_where_it_looked(host, content):
    if content is not None:
        (host / "stat").write_text(content)
    collector = CpuCollector(CpuCollector.Config(proc=host))
    with pytest.raises(Unavailable, match=str(host / "stat")):
        collector.open(Given())
    collector.close()


ticks = st.lists(st.integers(0, 2**40), min_size=8, max_size=8)


@given(st.lists(ticks, min_size=2, max_size=5))
def test_shares_are_never_below_0_nor_above_100(tmp_path_factory, readings):
    collector = CpuCollector(CpuCollector.Config(proc=PROC))
    collector.open(Given(level=Level.DETAILED))
    for reading in readings:
        for _, spent, total in collector._spent({"cpu": list(reading)}):
            assert min(spent) >= 0
            assert total >= MIN_TICKS
            assert sum(spent) == total
    collector.close()


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize(
    ("platform", "source"), [pytest.param("linux", "/proc/stat", marks=LINUX), ("darwin", "psutil")]
)
def test_the_share_of_this_machine_agrees_with_psutil(monkeypatch, platform, source):
    monkeypatch.setattr(sys, "platform", platform)
    collector = CpuCollector(CpuCollector.Config(core_times=True))
    collector.open(Given())
    assert collector.describe() == f"{psutil.cpu_count()} CPU{'s' * (psutil.cpu_count() != 1)}, {source}"
    psutil.cpu_percent()
    spin(0.5)
    found = values(collector.collect(at=7))
    assert found["cpu.utilization",] == pytest.approx(psutil.cpu_percent(), abs=8)
    assert found["cpu.load", "1m"] == pytest.approx(os.getloadavg()[0], abs=0.5)
    assert {name for name, *_ in found} == {metric.name for metric in collector.metrics}
    collector.close()


def test_a_mode_that_a_platform_lacks_is_absent(monkeypatch):
    class Times:
        user, nice, system, idle = 1.0, 0.5, 0.5, 2.0

    monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: [Times()] if percpu else Times())
    monkeypatch.setattr(sys, "platform", "darwin")
    collector = CpuCollector(CpuCollector.Config())
    collector.open(Given())
    Times.user, Times.idle = 2.0, 5.0
    found = values(without_load(collector.collect(at=7)))
    assert found == {
        ("cpu.utilization",): 25.0,
        ("cpu.mode.utilization", "user"): 25.0,
        ("cpu.mode.utilization", "nice"): 0.0,
        ("cpu.mode.utilization", "system"): 0.0,
        ("cpu.core.utilization", "0"): 25.0,
    }
    assert "idle" in MODES
