"""Collects CPU, memory, threads and I/O of the watched process and its descendants, as sums."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Level, Metric, counter, gauge
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.cgroup import CgroupLimits
from chipwatch.host.counters import Counters
from chipwatch.host.process_tree import SECOND, ProcTree, tree_of

# fmt: off
CPU_UTILIZATION: Final = gauge(
    "process.cpu.utilization", "%", "CPU used by the process tree, of the CPUs that are available to it.")
CPU_LIMIT: Final = gauge(
    "process.cpu.limit", "{cpu}", "CPUs that are available to the process tree (quotas and CPU set).", Level.DETAILED)
THREADS: Final = gauge("process.threads", "{thread}", "Threads of the process tree.")
RSS: Final = gauge(
    "process.memory.rss", "By", "Resident memory of the process tree; a shared page counts once for each process.")
MEMORY_UTILIZATION: Final = gauge(
    "process.memory.utilization", "%",
    "Resident memory of the process tree, of the memory that it may use; pages shared by many may fill it early.")
COUNT: Final = gauge("process.count", "{process}", "Processes of the tree, without zombies.", Level.DETAILED)
READ: Final = counter("process.io.read", "By", "Bytes the process tree had read from storage.", Level.DETAILED)
WRITTEN: Final = counter("process.io.written", "By", "Bytes the process tree had written to storage.", Level.DETAILED)
OPEN_FILES: Final = gauge("process.open_files", "{file}", "File descriptors open in the process tree.", Level.DETAILED)
# fmt: on

REFRESH: Final = 60 * SECOND
"""Interval between readings of the limits, and between scans of all processes."""
MIN_TICKS: Final = 5
"""Fewest clock ticks between two readings for a share of CPU time; with fewer, the rounding error is too large."""
DENIED: Final = "{}: permission denied for a process of the tree; run the agent as its user or as root"


class ProcessCollector(Collector):
    """Reads the process tree that starts with --pid or a wrapped command."""

    metrics = (CPU_UTILIZATION, CPU_LIMIT, THREADS, RSS, MEMORY_UTILIZATION, COUNT, READ, WRITTEN, OPEN_FILES)
    needs = Needs(level=True)

    @dataclass(frozen=True, slots=True)
    class Config:
        """The first process of the tree, and the paths of the host."""

        proc: Path = Path("/proc")
        sys: Path = Path("/sys")
        pid: int | None = None

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clock = time.monotonic_ns
        self._tree: ProcTree | None = None
        self._limits = CgroupLimits(None, None)
        self._due = self._count = 0
        self._base: tuple[int, int] | None = None
        self._counters = Counters()

    def open(self, given: Given) -> None:
        self._level = given.level
        pid = self._config.pid
        if pid is None:
            raise Unavailable("no process is watched; set --pid N, or run `chipwatch -- COMMAND`")
        try:
            self._tree = tree_of(self._config, pid, detailed=self._level >= Level.DETAILED)
        except ProcessLookupError:
            raise Unavailable(f"no process {pid} ({self._config.proc / str(pid)} is absent)") from None
        self._due, self._base, self._counters = 0, None, Counters()

    def collect(self, at: int) -> Iterable[Datapoint]:
        tree, now = self._tree, self._clock()
        reading = tree.read(rescan=now >= self._due) if tree else None
        if not tree or not reading:
            return
        if now >= self._due:
            self._due, self._limits = now + REFRESH, tree.limits()
        self._count = reading.processes
        if (share := self._share(now, reading.cpu, tree.second)) is not None:
            yield CPU_UTILIZATION.point(at, share)
        if self._limits.cpus:
            yield CPU_LIMIT.point(at, self._limits.cpus)
        yield THREADS.point(at, reading.threads)
        yield RSS.point(at, reading.rss)
        if self._limits.memory:
            yield MEMORY_UTILIZATION.point(at, min(100.0, 100 * reading.rss / self._limits.memory))
        yield COUNT.point(at, reading.processes)
        for metric, value in (READ, reading.read), (WRITTEN, reading.written):
            if value is not None:
                yield self._bytes(tree, metric, at, value)
        if reading.files is not None:
            yield OPEN_FILES.point(at, reading.files)
        if tree.denied:
            raise PartlyCollected([DENIED.format(name) for name in sorted(tree.denied)])

    def describe(self) -> str:
        return f"process {self._config.pid}, {self._count} in its tree"

    def close(self) -> None:
        self._tree = None

    def _bytes(self, tree: ProcTree, metric: Metric, at: int, value: int) -> Datapoint:
        if tree.is_whole:
            return metric.point(at, value, start_time=tree.start_time)
        return self._counters.total(metric, at, {"tree": value})  # not the whole tree: count from the first reading

    def _share(self, now: int, cpu: int, second: int) -> float | None:
        """Return the share of the available CPUs that was used since the last reading; None if not known yet."""
        start_time, before = self._base = self._base or (now, cpu)
        ticks = (now - start_time) * second / SECOND
        if ticks < MIN_TICKS or not self._limits.cpus:
            return None
        self._base = now, cpu
        # It may exceed 100 % by rounding, by a burst of the quota, or if a limit was raised since the last refresh.
        return min(100.0, 100 * (cpu - before) / ticks / self._limits.cpus)
