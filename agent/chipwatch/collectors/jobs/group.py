"""The cgroup of one job."""

from __future__ import annotations

import re
from typing import Final

from chipwatch.contract.owner import GroupUse, Owner
from chipwatch.host import cgroup
from chipwatch.host.cgroup import Cgroup, Usage
from chipwatch.host.procfs import KeptFile, count

REFRESH: Final = 60 * 10**9
"""Interval (ns) between readings of the limits, which rarely change."""
STALL: Final = re.compile(rb"^(some|full) .*\btotal=(\d{1,19})\b", re.MULTILINE)
"""Microseconds of a pressure file: https://docs.kernel.org/accounting/psi.html ."""
PERIODS: Final = re.compile(rb"^nr_(periods|throttled) (\d{1,19})$", re.MULTILINE)
SWAPPED: Final = re.compile(rb"^(?:total_)?swap (\d{1,19})$", re.MULTILINE)
"""Bytes of memory.stat of v1."""


class JobGroup:
    """Reads the usage of a job's cgroup, from files that stay open."""

    def __init__(self, owner: Owner, group: Cgroup, since: int) -> None:
        """`since`: when the job was first seen (ns since the epoch), used where no process has its start."""
        self.owner = owner
        self.start_time = owner.since or since
        self._usage, self._group = Usage(group), group
        memory, cpu = group.place("memory"), group.place("cpu")
        unified = group.places.get("")
        self._peak = cgroup.kept(memory, "memory.peak", "memory.max_usage_in_bytes")
        self._swap = cgroup.kept(memory, "memory.swap.current", "memory.stat")
        self._cpu = cgroup.kept(cpu, "cpu.stat", "cpu.stat")
        self._io = cgroup.kept(unified, "io.pressure", "io.pressure")
        self._pressure = cgroup.kept(unified, "memory.pressure", "memory.pressure")
        self._queue = cgroup.kept(unified, "cpu.pressure", "cpu.pressure")
        self._most = 0
        self._cores: float | None = None
        self._due = 0

    def read(self, now: int, *, blocked: bool) -> GroupUse:
        """Return its usage at `now` (monotonic ns); raise OSError once the cgroup is gone."""
        if now >= self._due:
            self._due, self._cores = now + REFRESH, self._group.cpu_quota() or self._group.cpuset()
        cpu, memory = self._usage.cpu().used, self._usage.memory()
        self._most = max(self._most, memory.current if memory else 0)
        peak = count(self._peak.read()) if self._peak else None  # since Linux 5.19
        periods = dict(PERIODS.findall(self._cpu.read() if self._cpu else b""))
        swap = self._swap.read() if self._swap else b""
        swapped = SWAPPED.search(swap)
        return GroupUse(
            self.owner,
            cpu=None if cpu is None else cpu / 1e9,
            cores=self._cores,
            periods=count(periods.get(b"periods", b"")),
            throttled=count(periods.get(b"throttled", b"")),
            io_some=_stalled(self._io, b"some"),
            cpu_some=_stalled(self._queue, b"some"),
            memory_full=_stalled(self._pressure, b"full"),
            memory_max=self._most or None if peak is None else peak,
            swapped=count(swapped[1] if swapped else swap),
            oom_kills=self._usage.oom_kills(),
            blocked=blocked,
            since=self.start_time,
        )

    def close(self) -> None:
        """Close the files."""
        self._usage.close()
        for file in (self._peak, self._swap, self._cpu, self._io, self._pressure, self._queue):
            if file:
                file.close()


def _stalled(file: KeptFile | None, kind: bytes) -> float | None:
    """Return the seconds of stall in a pressure file, None where the kernel keeps no statistics (psi=0)."""
    try:
        totals = dict(STALL.findall(file.read())) if file else {}
    except OSError:
        return None
    return int(totals[kind]) / 1e6 if kind in totals else None
