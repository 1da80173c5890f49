"""Reads the cgroup of one job: CPU time, memory, and waits."""

from __future__ import annotations

from typing import Final

from chipwatch.contract.owner import GroupUse, Owner
from chipwatch.host.cgroup import Cgroup, GroupFiles

REFRESH: Final = 60 * 10**9
"""Interval (ns) between readings of the limits, which rarely change."""
WAITS: Final = ("io_some", "cpu_some", "memory_full")
WORDS: Final = ("cpu", "periods", "throttled_periods", "peak", "swap", "oom_kills", *WAITS)


class JobGroup(GroupFiles):
    """Reads the usage of a job's cgroup."""

    def __init__(self, owner: Owner, group: Cgroup, since: int) -> None:
        """`since`: time at which the job was first seen (ns since the epoch), used if its start is unknown."""
        self.owner = owner
        self.start_time = owner.since or since
        self._group = group
        super().__init__(group, *WORDS)
        if "peak" not in self.places:  # it exists since Linux 5.19
            self.open("memory")
        self._most = 0
        self._cores: float | None = None
        self._due = 0

    def usage(self, now: int, *, blocked: bool) -> GroupUse:
        """Return the job's usage at `now` (monotonic ns); raise OSError if the cgroup is gone."""
        if now >= self._due:
            self._due, self._cores = now + REFRESH, self._group.cpu_quota() or self._group.cpuset()
        get = self.read().get
        self._most = max(self._most, get("memory") or 0)
        cpu, *waits = (None if (time := get(word)) is None else time / 1e9 for word in ("cpu", *WAITS))
        return GroupUse(
            self.owner, cpu=cpu, cores=self._cores, periods=get("periods"), throttled=get("throttled_periods"),
            memory_max=get("peak") or self._most or None, swapped=get("swap"), oom_kills=get("oom_kills"),
            blocked=blocked, since=self.start_time, **dict(zip(WAITS, waits, strict=True)),
        )  # fmt: skip
