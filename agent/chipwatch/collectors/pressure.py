"""Pressure stall information: the share of time in which tasks waited for CPU, memory or I/O."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.procfs import RECORD, KeptFile, close_all

MIN_ELAPSED: Final = 50_000_000
"""Shortest time between two readings (ns)."""

# fmt: off
CPU: Final = gauge(
    "pressure.cpu", "%", "Share of time in which some tasks waited for a CPU.", Level.DETAILED, ("kind",))
MEMORY: Final = gauge(
    "pressure.memory", "%", "Share of time in which some or all tasks waited for memory.", Level.DETAILED, ("kind",))
IO: Final = gauge(
    "pressure.io", "%", "Share of time in which some or all tasks waited for I/O.", Level.DETAILED, ("kind",))
# fmt: on

_TOTAL: Final = re.compile(rb"^(some|full) .*\btotal=(\d{1,20})\b", re.MULTILINE)
_KINDS: Final = {b"some": Dimensions(kind="some"), b"full": Dimensions(kind="full")}


class _Stalls:
    """One file of /proc/pressure and its last reading: microseconds of stall by kind."""

    def __init__(self, metric: Metric, path: Path) -> None:
        """Open the file and read it; raise OSError if the kernel keeps no statistics."""
        self._metric = metric
        self._file = KeptFile(path)
        self._at, self._last = self._read()

    def points(self, at: int) -> Iterable[Datapoint]:
        """Yield the share of the time since the last reading."""
        now, stalls = self._read()
        elapsed = now - self._at
        if elapsed < MIN_ELAPSED:
            return
        last, self._at, self._last = self._last, now, stalls
        for kind, stalled in stalls.items():
            before = last.get(kind)
            if before is not None and stalled >= before:
                # The kernel's clock and ours differ by microseconds, so a full stall may result in 100.001.
                yield self._metric.point(at, min(100.0, 100_000 * (stalled - before) / elapsed), _KINDS[kind])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self) -> tuple[int, dict[bytes, int]]:
        data = self._file.read(RECORD)
        now = time.monotonic_ns()
        totals = {match[1]: int(match[2]) for match in _TOTAL.finditer(data)}
        if self._metric is CPU:  # undefined for a machine: noise, or zero since Linux 5.18 (commit 890d550d7dba)
            totals.pop(b"full", None)
        return now, totals


class PressureCollector(Collector):
    """Computes shares from the stall time between two readings of /proc/pressure (Linux 4.20 and later)."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where the host's /proc is."""

        proc: Path = Path("/proc")

    metrics = (CPU, MEMORY, IO)
    needs = Needs(level=True)

    def __init__(self, config: Config) -> None:
        self._folder = config.proc / "pressure"
        self._stalls: dict[str, _Stalls] = {}

    def waits(self) -> bool:
        return False

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        problems = []
        for metric in self.metrics:
            name = metric.name.removeprefix("pressure.")
            try:
                self._stalls[name] = _Stalls(metric, self._folder / name)
            except OSError as error:  # with psi=0 the files exist and reading them fails with EOPNOTSUPP
                problems.append(f"{name}: {error.strerror}")
        if not self._stalls:
            raise Unavailable(f"no pressure stall information in {self._folder} ({', '.join(problems)})")

    def collect(self, at: int) -> Iterable[Datapoint]:
        if self._level >= Level.DETAILED:
            for stalls in self._stalls.values():
                yield from stalls.points(at)

    def describe(self) -> str:
        return f"{', '.join(self._stalls)} in {self._folder}"

    def close(self) -> None:
        close_all(*self._stalls.values())
        self._stalls = {}
