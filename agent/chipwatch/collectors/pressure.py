"""Collects pressure stall information: the share of time in which tasks waited for CPU, memory or I/O."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.procfs import KeptFile, close_all
from chipwatch.host.prompt import PromptCollector

MIN_ELAPSED: Final = 50_000_000
"""Shortest time (ns) between two readings for a share."""

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


class _Stalls(NamedTuple):
    """A reading of a file of /proc/pressure: its time (monotonic ns), and microseconds of stall by kind."""

    metric: Metric
    file: KeptFile
    at: int
    totals: dict[bytes, int]


def _read(metric: Metric, file: KeptFile) -> _Stalls:
    """Read the file; raise OSError if the kernel does not measure pressure."""
    data = file.read()
    now = time.monotonic_ns()
    totals = {match[1]: int(match[2]) for match in _TOTAL.finditer(data)}
    if metric is CPU:  # `full` is undefined for a machine: noise, or 0 since Linux 5.18 (commit 890d550d7dba)
        totals.pop(b"full", None)
    return _Stalls(metric, file, now, totals)


class PressureCollector(PromptCollector):
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

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        problems = []
        for metric in self.metrics:
            name = metric.name.removeprefix("pressure.")
            try:
                self._stalls[name] = _read(metric, KeptFile(self._folder / name))
            except OSError as error:  # with psi=0 the files exist and reading them fails with EOPNOTSUPP
                problems.append(f"{name}: {error.strerror}")
        if not self._stalls:
            raise Unavailable(f"no pressure stall information in {self._folder} ({', '.join(problems)})")

    def collect(self, at: int) -> Iterable[Datapoint]:
        for name, before in self._stalls.items() if self._level >= Level.DETAILED else ():
            now = _read(before.metric, before.file)
            elapsed = now.at - before.at
            if elapsed < MIN_ELAPSED:
                continue
            self._stalls[name] = now
            for kind, total in now.totals.items():
                stalled = total - before.totals.get(kind, inf)
                if stalled >= 0:
                    # The kernel's clock and ours differ by microseconds, so a full stall may give 100.001.
                    yield now.metric.point(at, min(100.0, 100_000 * stalled / elapsed), _KINDS[kind])

    def describe(self) -> str:
        return f"{', '.join(self._stalls)} in {self._folder}"

    def close(self) -> None:
        close_all(*(stalls.file for stalls in self._stalls.values()))
        self._stalls = {}
