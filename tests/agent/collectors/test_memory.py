import sys
from pathlib import Path

import psutil
import pytest

from chipwatch.collectors.memory import (
    AVAILABLE,
    SWAP_USED,
    SWAP_UTILIZATION,
    TOTAL,
    USED,
    UTILIZATION,
    MemoryCollector,
)
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given

HOST = Path(__file__).parents[2] / "fixtures/host"
LINUX = pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="no /proc here")


@pytest.fixture
def opened(begun):
    """Open a collector on a /proc."""
    return lambda proc, level=Level.ALL: begun(MemoryCollector(MemoryCollector.Config(proc=proc)), level)


def meminfo(folder: Path, **kib: int) -> Path:
    (folder / "meminfo").write_text("".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in kib.items()))
    return folder


def test_used_is_total_minus_available(opened):
    total, available = 24684084 * 1024, 23801036 * 1024
    assert list(opened(HOST / "vm/proc").collect(at=7)) == [
        UTILIZATION.point(7, 100 * (total - available) / total),
        USED.point(7, total - available),
        AVAILABLE.point(7, available),
        TOTAL.point(7, total),
    ]


@pytest.mark.parametrize(("total", "available"), [(0, 0), (5, -3), (5, 6)])
def test_more_available_than_total_is_absent(opened, tmp_path, total, available):
    points = opened(meminfo(tmp_path, MemTotal=total, MemAvailable=available), Level.BASIC).collect(at=7)
    assert list(points) == []


def test_level_basic_yields_no_total_and_no_swap(opened):
    points = opened(HOST / "vm/proc", Level.BASIC).collect(at=7)
    assert [p.metric for p in points] == [UTILIZATION, USED, AVAILABLE]


def test_without_memavailable_the_used_memory_is_absent(opened):
    swap_used = (4194300 - 3155360) * 1024
    assert list(opened(HOST / "node_exporter/proc").collect(at=7)) == [
        TOTAL.point(7, 3742148 * 1024),
        SWAP_USED.point(7, swap_used),
        SWAP_UTILIZATION.point(7, 100 * (4194300 - 3155360) / 4194300),
    ]


@pytest.mark.parametrize(
    ("kib", "expected"),
    [
        (
            {"MemAvailable": 40, "SwapTotal": 50, "SwapFree": 50},
            [SWAP_USED.point(7, 0), SWAP_UTILIZATION.point(7, 0.0)],
        ),
        ({"MemAvailable": 40, "SwapTotal": 50}, [TOTAL.point(7, 100 * 1024)]),  # absent is not zero
        ({"MemAvailable": 101, "SwapTotal": 50, "SwapFree": 51}, [TOTAL.point(7, 100 * 1024)]),  # mixed by a container
    ],
)
def test_swap_is_used_where_its_numbers_can_be_true(opened, tmp_path, kib, expected):
    assert list(opened(meminfo(tmp_path, MemTotal=100, **kib)).collect(at=7))[-len(expected) :] == expected


def test_each_reading_reads_the_file_again(opened, tmp_path):
    collector = opened(meminfo(tmp_path, MemTotal=100, MemAvailable=40), Level.BASIC)
    assert next(iter(collector.collect(at=7))).value == 60.0
    meminfo(tmp_path, MemTotal=100, MemAvailable=90)
    assert next(iter(collector.collect(at=8))).value == 10.0


@pytest.mark.parametrize("content", [None, "MemFree: 5 kB\n"])
def test_without_a_source_the_message_says_where_it_looked(tmp_path, content):
    if content is not None:
        (tmp_path / "meminfo").write_text(content)
    collector = MemoryCollector(MemoryCollector.Config(proc=tmp_path))
    with pytest.raises(Unavailable, match=str(tmp_path / "meminfo")):
        collector.open(Given())
    collector.close()


@pytest.mark.parametrize(
    ("platform", "source"), [pytest.param("linux", "/proc/meminfo", marks=LINUX), ("darwin", "psutil")]
)
def test_the_memory_of_this_machine_agrees_with_psutil(monkeypatch, opened, platform, source):
    expected, swap = psutil.virtual_memory(), psutil.swap_memory()
    monkeypatch.setattr(sys, "platform", platform)
    collector = opened(Path("/proc"))
    found = {p.metric: p.value for p in collector.collect(at=7)}
    assert found[TOTAL] == expected.total
    assert found[AVAILABLE] == pytest.approx(expected.available, abs=0.05 * expected.total)
    assert found[USED] == pytest.approx(expected.total - expected.available, abs=0.05 * expected.total)
    assert found[UTILIZATION] == pytest.approx(expected.percent, abs=5)
    assert (SWAP_USED in found) == (swap.total > 0)
    assert collector.describe().endswith(f"GiB, {source}")
