"""The cgroup of one job."""

from __future__ import annotations

import re
from typing import Final

from chipwatch.contract.owner import GroupUse, Owner
from chipwatch.host import cgroup
from chipwatch.host.cgroup import Cgroup, figures
from chipwatch.host.procfs import RECORD, KeptFile, close_all

REFRESH: Final = 60 * 10**9
"""Interval (ns) between readings of the limits, which rarely change."""
SOME, FULL = (re.compile(rb"^%b .*\btotal=(\d{1,19})\b" % kind, re.MULTILINE) for kind in (b"some", b"full"))
"""Microseconds of a pressure file: https://docs.kernel.org/accounting/psi.html ."""


class JobGroup:
    """Reads the usage of a job's cgroup, from files that stay open."""

    def __init__(self, owner: Owner, group: Cgroup, since: int) -> None:
        """`since`: when the job was first seen (ns since the epoch), used where no process has its start."""
        self.owner = owner
        self.start_time = owner.since or since
        self._group = group
        memory, cpu = group.place("memory"), group.place("cpu")
        unified = group.places.get("")
        self._peak = cgroup.kept(memory, "memory.peak", "memory.max_usage_in_bytes")
        self._memory = None if self._peak else cgroup.kept(memory, "memory.current", "memory.usage_in_bytes")
        self._events = cgroup.kept(memory, "memory.events", "memory.oom_control")
        self._swap = cgroup.kept(memory, "memory.swap.current", "memory.stat")
        self._cpu = cgroup.kept(cpu, "cpu.stat", "cpu.stat")
        self._cpuacct = cgroup.kept(group.place("cpuacct"), None, "cpuacct.usage")
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
        stat, swap, nanoseconds = figures(self._cpu), figures(self._swap), figures(self._cpuacct).get(b"")
        microseconds = stat.get(b"usage_usec")
        cpu = nanoseconds / 1e9 if nanoseconds is not None else None if microseconds is None else microseconds / 1e6
        peak = figures(self._peak).get(b"")  # since Linux 5.19
        if peak is None:
            self._most = max(self._most, figures(self._memory).get(b"", 0))
        return GroupUse(
            self.owner,
            cpu=cpu,
            cores=self._cores,
            periods=stat.get(b"nr_periods"),
            throttled=stat.get(b"nr_throttled"),
            io_some=_stalled(self._io, SOME),
            cpu_some=_stalled(self._queue, SOME),
            memory_full=_stalled(self._pressure, FULL),
            memory_max=self._most or None if peak is None else peak,
            swapped=swap.get(b"total_swap", swap.get(b"swap", swap.get(b""))),
            oom_kills=figures(self._events).get(b"oom_kill"),
            blocked=blocked,
            since=self.start_time,
        )

    def close(self) -> None:
        """Close the files."""
        of_memory = self._peak, self._memory, self._events, self._swap, self._pressure
        close_all(*of_memory, self._cpu, self._cpuacct, self._io, self._queue)


def _stalled(file: KeptFile | None, kind: re.Pattern[bytes]) -> float | None:
    """Return the seconds of stall in a pressure file, None where the kernel keeps no statistics (psi=0)."""
    try:
        total = kind.search(file.read(RECORD)) if file else None
    except OSError:
        return None
    return int(total[1]) / 1e6 if total else None
