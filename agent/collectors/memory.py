"""How much memory and swap are in use."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from agent.collector import Collector
from agent.datapoint import Datapoint, Level, gauge
from agent.errors import Unavailable
from agent.host.procfs import KeptFile

UTILIZATION: Final = gauge("memory.utilization", "%", "Share of memory that programs could not get without swapping.")
USED: Final = gauge("memory.used", "By", "Memory that programs could not get without swapping: total less available.")
AVAILABLE: Final = gauge("memory.available", "By", "Memory that programs could get without swapping.")
TOTAL: Final = gauge("memory.total", "By", "Memory of the machine.", Level.DETAILED)
SWAP_USED: Final = gauge("swap.used", "By", "Swap space in use.", Level.DETAILED)
SWAP_UTILIZATION: Final = gauge("swap.utilization", "%", "Share of the swap space in use.", Level.DETAILED)


class _Memory(NamedTuple):
    """Bytes; `available` is None where it is not known."""

    total: int
    available: int | None
    swap_total: int
    swap_used: int


class _Proc:
    """
    Linux: /proc/meminfo, whose kB are KiB.

    Before Linux 3.14 there is no MemAvailable. What stands in for it elsewhere (free + buffers + cached) is wrong
    by all of tmpfs and shared memory, and would be a different quantity under the same name: so it stays unknown.
    """

    def __init__(self, proc: Path) -> None:
        self._file = KeptFile(proc / "meminfo")
        self.read()

    def read(self) -> _Memory:
        return self._file.parse(_memory)

    def close(self) -> None:
        self._file.close()

    def __str__(self) -> str:
        return str(self._file.path)


def _memory(data: bytes) -> _Memory:
    total = _bytes(data, b"MemTotal:")
    if total is None:
        raise LookupError("no MemTotal")
    swap = _bytes(data, b"SwapTotal:") or 0
    return _Memory(total, _bytes(data, b"MemAvailable:"), swap, swap - (_bytes(data, b"SwapFree:") or 0))


def _bytes(data: bytes, key: bytes) -> int | None:
    start = data.find(key)
    return None if start < 0 else int(data[start + len(key) : data.index(b"kB", start)]) << 10


class _Psutil:
    """What psutil knows elsewhere."""

    def __init__(self) -> None:
        import psutil  # noqa: PLC0415  costs 4 MB where /proc answers already

        self._psutil = psutil

    def read(self) -> _Memory:
        memory, swap = self._psutil.virtual_memory(), self._psutil.swap_memory()
        return _Memory(memory.total, memory.available, swap.total, swap.used)

    def close(self) -> None:
        """Nothing is kept open."""

    def __str__(self) -> str:
        return "psutil"


class MemoryCollector(Collector):
    """Reads the kernel's account of the machine's memory; used is total less available, as in psutil 7.2."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where the host's /proc is."""

        proc: Path = Path("/proc")

    metrics = (UTILIZATION, USED, AVAILABLE, TOTAL, SWAP_USED, SWAP_UTILIZATION)

    def __init__(self, config: Config) -> None:
        """Take the configuration."""
        self._config = config
        self._source: _Proc | _Psutil | None = None

    def open(self) -> None:
        """Open the file; raise Unavailable where there is no /proc/meminfo, or no MemTotal in it."""
        self.close()
        try:
            self._source = _Proc(self._config.proc) if sys.platform == "linux" else _Psutil()
        except OSError as error:
            raise Unavailable(f"no memory in {self._config.proc / 'meminfo'}: {error!r}") from error

    def collect(self, at: int) -> Iterable[Datapoint]:
        """Yield what is in use now; nothing of swap on a machine without any."""
        assert self._source is not None
        total, available, swap_total, swap_used = self._source.read()
        # More available than there is: a container's view that mixes its own numbers with the host's. Not known.
        if available is not None and 0 <= available <= total != 0:
            yield UTILIZATION.point(at, 100 * (total - available) / total)
            yield USED.point(at, total - available)
            yield AVAILABLE.point(at, available)
        if self.level < Level.DETAILED:
            return
        yield TOTAL.point(at, total)
        if 0 <= swap_used <= swap_total != 0:
            yield SWAP_USED.point(at, swap_used)
            yield SWAP_UTILIZATION.point(at, 100 * swap_used / swap_total)

    def describe(self) -> str:
        """Say how much memory there is, and where it was read."""
        return f"{self._source.read().total / 2**30:.1f} GiB, {self._source}" if self._source else ""

    def close(self) -> None:
        """Close the file."""
        if self._source:
            self._source.close()
            self._source = None
