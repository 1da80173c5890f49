import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from chipwatch.collectors import pressure
from chipwatch.collectors.pressure import CPU, IO, MEMORY, MIN_ELAPSED, PressureCollector
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host import procfs

HOST = Path(__file__).parents[2] / "fixtures/host"
SOME, FULL = Dimensions(kind="some"), Dimensions(kind="full")


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock of `clock[0]` seconds, set by the test."""
    now = [1000.0]
    monkeypatch.setattr(pressure.time, "monotonic_ns", lambda: int(now[0] * 1e9))
    return now


@pytest.fixture
def proc(tmp_path):
    shutil.copytree(HOST / "node_exporter/proc/pressure", tmp_path / "pressure")
    return tmp_path


def opened(proc: Path, level: Level = Level.ALL) -> PressureCollector:
    collector = PressureCollector(PressureCollector.Config(proc=proc))
    collector.open(Given(level=level))
    return collector


def write(proc: Path, name: str, **totals: int) -> None:
    lines = [f"{kind} avg10=1.00 avg60=2.00 avg300=3.00 total={total}\n" for kind, total in totals.items()]
    (proc / "pressure" / name).write_text("".join(lines))


def test_a_share_is_the_new_stall_time_divided_by_the_elapsed_time(proc, clock):
    collector = opened(proc)
    clock[0] += 10
    write(proc, "cpu", some=14036781 + 2_500_000, full=0)
    write(proc, "memory", some=0, full=0)
    write(proc, "io", some=159886802 + 10_000_000, full=159229614 + 1)
    assert list(collector.collect(at=7)) == [
        CPU.point(7, 25.0, SOME),
        MEMORY.point(7, 0.0, SOME),
        MEMORY.point(7, 0.0, FULL),
        IO.point(7, 100.0, SOME),
        IO.point(7, 1e-5, FULL),
    ]
    collector.close()


def test_a_reading_right_after_opening_is_added_to_the_next(proc, clock):
    collector = opened(proc)
    clock[0] += MIN_ELAPSED / 1e9 / 2
    write(proc, "cpu", some=14036781 + 1000)
    assert list(collector.collect(at=7)) == []
    clock[0] += 1 - MIN_ELAPSED / 1e9 / 2
    assert CPU.point(8, 0.1, SOME) in list(collector.collect(at=8))


def test_a_share_a_little_above_100_is_100(proc, clock):
    collector = opened(proc)
    clock[0] += 1
    write(proc, "cpu", some=14036781 + 1_000_020)
    assert next(iter(collector.collect(at=7))) == CPU.point(7, 100.0, SOME)


def test_a_restarted_counter_gives_no_share_once(proc, clock):
    collector = opened(proc)
    clock[0] += 1
    write(proc, "io", some=5, full=5)
    assert IO not in {p.metric for p in collector.collect(at=7)}
    clock[0] += 1
    write(proc, "io", some=100_005, full=5)
    assert [p for p in collector.collect(at=8) if p.metric is IO] == [IO.point(8, 10.0, SOME), IO.point(8, 0.0, FULL)]


def test_the_line_full_may_be_missing(proc, clock):
    write(proc, "io", some=0)
    collector = opened(proc)
    clock[0] += 1
    assert [p for p in collector.collect(at=7) if p.metric is IO] == [IO.point(7, 0.0, SOME)]


def test_level_basic_yields_nothing(proc, clock):
    collector = opened(proc, Level.BASIC)
    clock[0] += 1
    assert list(collector.collect(at=7)) == []


def test_a_missing_file_does_not_affect_the_others(proc, clock):
    (proc / "pressure/memory").unlink()
    collector = opened(proc)
    clock[0] += 1
    assert {p.metric for p in collector.collect(at=7)} == {CPU, IO}
    assert collector.describe() == f"cpu, io in {proc}/pressure"


def test_an_old_kernel_is_unavailable(tmp_path):
    collector = PressureCollector(PressureCollector.Config(proc=tmp_path))
    with pytest.raises(Unavailable, match=f"{tmp_path}/pressure.*No such file"):
        collector.open(Given())
    collector.close()
    collector.close()


def test_disabled_statistics_are_unavailable(proc, monkeypatch):
    def pread(fd: int, size: int, offset: int) -> bytes:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(procfs, "pread", pread)
    with pytest.raises(Unavailable, match="Operation not supported"):
        PressureCollector(PressureCollector.Config(proc=proc)).open(Given())


@pytest.mark.skipif(not os.access("/proc/pressure/cpu", os.R_OK), reason="this kernel keeps no account")
def test_the_shares_of_this_machine_agree_with_its_files():
    def some() -> tuple[float, int]:
        try:
            line = Path("/proc/pressure/cpu").read_text().splitlines()[0]
        except OSError:
            pytest.skip("this kernel keeps no account")
        return time.monotonic(), int(line.rpartition("=")[2])

    before = some()
    collector = opened(Path("/proc"))
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    found = next(p.value for p in collector.collect(at=7) if p.metric is CPU)
    after = some()
    assert found == pytest.approx(100 * (after[1] - before[1]) / 1e6 / (after[0] - before[0]), abs=5)
    collector.close()
