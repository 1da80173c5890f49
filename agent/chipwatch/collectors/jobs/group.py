"""Reads the cgroup of one job: CPU time, memory, and waits."""

from __future__ import annotations

import re
from typing import Final

from chipwatch.contract.owner import GroupUse, Owner
from chipwatch.host import cgroup
from chipwatch.host.cgroup import Cgroup, GroupFiles
from chipwatch.host.procfs import RECORD, KeptFile, close_all

REFRESH: Final = 60 * 10**9
"""Interval (ns) between readings of the limits, which rarely change."""
SOME, FULL = (re.compile(rb"^%b .*\btotal=(\d{1,19})\b" % kind, re.MULTILINE) for kind in (b"some", b"full"))
"""Match the microseconds in a pressure file: https://docs.kernel.org/accounting/psi.html ."""
PRESSURES: Final = {
    "io_some": ("io.pressure", SOME), "cpu_some": ("cpu.pressure", SOME), "memory_full": ("memory.pressure", FULL),
}  # fmt: skip
"""Field of GroupUse -> the file, which only cgroup v2 has, and the pattern of its line."""


class JobGroup(GroupFiles):
    """Reads the usage of a job's cgroup."""

    def __init__(self, owner: Owner, group: Cgroup, since: int) -> None:
        """`since`: time at which the job was first seen (ns since the epoch), used if its start is unknown."""
        self.owner = owner
        self.start_time = owner.since or since
        self._group = group
        super().__init__(group, "peak", "memory", "events", "swap", "cpu", "cpuacct")
        if "peak" in self.files:
            close_all(self.files.pop("memory", None))
        unified = group.folders.get("")
        self._pressures = {word: cgroup.kept(unified, name, name) for word, (name, _) in PRESSURES.items()}
        self._most = 0
        self._cores: float | None = None
        self._due = 0

    def read(self, now: int, *, blocked: bool) -> GroupUse:
        """Return the job's usage at `now` (monotonic ns); raise OSError if the cgroup is gone."""
        if now >= self._due:
            self._due, self._cores = now + REFRESH, self._group.cpu_quota() or self._group.cpuset()
        peak = self.figures("peak").get(b"")  # exists since Linux 5.19
        if peak is None:
            self._most = max(self._most, self.figures("memory").get(b"", 0))
        stat, swap = self.figures("cpu"), self.figures("swap")
        nanoseconds, microseconds = self.figures("cpuacct").get(b""), stat.get(b"usage_usec")
        cpu = nanoseconds / 1e9 if nanoseconds is not None else None if microseconds is None else microseconds / 1e6
        stalls = {word: _stalled(file, PRESSURES[word][1]) for word, file in self._pressures.items()}
        return GroupUse(
            self.owner, cpu=cpu, cores=self._cores, periods=stat.get(b"nr_periods"),
            throttled=stat.get(b"nr_throttled"), memory_max=self._most or None if peak is None else peak,
            swapped=swap.get(b"total_swap", swap.get(b"swap", swap.get(b""))),
            oom_kills=self.figures("events").get(b"oom_kill"), blocked=blocked, since=self.start_time, **stalls,
        )  # fmt: skip

    def close(self) -> None:
        """Close the files."""
        super().close()
        close_all(*self._pressures.values())


def _stalled(file: KeptFile | None, kind: re.Pattern[bytes]) -> float | None:
    """Return the seconds of stall in a pressure file; None if the kernel does not measure it (psi=0)."""
    try:
        total = kind.search(file.read(RECORD)) if file else None
    except OSError:
        return None
    return int(total[1]) / 1e6 if total else None
