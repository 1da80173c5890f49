"""Collects memory and swap of the machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Level, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.procfs import SystemSource, close_all
from chipwatch.host.prompt import PromptCollector

UTILIZATION: Final = gauge("memory.utilization", "%", "Share of memory that programs could not get without swapping.")
USED: Final = gauge("memory.used", "By", "Memory that programs could not get without swapping: total less available.")
AVAILABLE: Final = gauge("memory.available", "By", "Memory that programs could get without swapping.")
TOTAL: Final = gauge("memory.total", "By", "Memory of the machine.", Level.DETAILED)
SWAP_USED: Final = gauge("swap.used", "By", "Swap space in use.", Level.DETAILED)
SWAP_UTILIZATION: Final = gauge("swap.utilization", "%", "Share of the swap space in use.", Level.DETAILED)


class _Memory(NamedTuple):
    """Memory and swap in bytes; `available` is None if unknown."""

    total: int
    available: int | None
    swap_total: int
    swap_used: int


def _memory(data: bytes) -> _Memory:
    """Parse /proc/meminfo; its kB mean KiB."""
    total = _bytes(data, b"MemTotal:")
    if total is None:
        raise LookupError("no MemTotal")
    swap, free = _bytes(data, b"SwapTotal:") or 0, _bytes(data, b"SwapFree:")
    # Linux before 3.14 has no MemAvailable. free + buffers + cached would include shared memory.
    return _Memory(total, _bytes(data, b"MemAvailable:"), *((0, 0) if free is None else (swap, swap - free)))


def _bytes(data: bytes, key: bytes) -> int | None:
    start = data.find(key)
    return None if start < 0 else int(data[start + len(key) : data.index(b"kB", start)]) << 10


def _psutil_memory(psutil: Any) -> _Memory:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return _Memory(memory.total, memory.available, swap.total, swap.used)


class MemoryCollector(PromptCollector):
    """Reads memory and swap. Used memory is total minus available, as in psutil 7.2."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where the host's /proc is."""

        proc: Path = Path("/proc")

    metrics = (UTILIZATION, USED, AVAILABLE, TOTAL, SWAP_USED, SWAP_UTILIZATION)
    needs = Needs(level=True)

    def __init__(self, config: Config) -> None:
        self._config = config
        self._source: SystemSource[_Memory] | None = None

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        try:
            self._source = SystemSource(self._config.proc / "meminfo", _memory, _psutil_memory)
            self._source.read()
        except OSError as error:
            raise Unavailable(f"no memory in {self._config.proc / 'meminfo'}: {error!r}") from error

    def collect(self, at: int) -> Iterable[Datapoint]:
        assert self._source is not None
        total, available, swap_total, swap_used = self._source.read()
        # Some containers mix their numbers with the host's, so that more memory is available than the total.
        if available is not None and 0 <= available <= total != 0:
            yield UTILIZATION.point(at, 100 * (total - available) / total)
            yield USED.point(at, total - available)
            yield AVAILABLE.point(at, available)
        if self._level < Level.DETAILED:
            return
        yield TOTAL.point(at, total)
        if 0 <= swap_used <= swap_total != 0:
            yield SWAP_USED.point(at, swap_used)
            yield SWAP_UTILIZATION.point(at, 100 * swap_used / swap_total)

    def describe(self) -> str:
        return f"{self._source.read().total / 2**30:.1f} GiB, {self._source}" if self._source else ""

    def close(self) -> None:
        close_all(self._source)
        self._source = None
