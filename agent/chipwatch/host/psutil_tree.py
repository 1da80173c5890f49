"""A process and its descendants on systems without /proc, read by psutil."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from chipwatch.host.cgroup import CgroupLimits
from chipwatch.host.process_tree import SECOND, ZOMBIE, Member, ProcTree, Stat, Where

if TYPE_CHECKING:
    import psutil


class PsutilTree(ProcTree):
    """A process and its descendants; psutil does not report the usage of ended children."""

    second = 1000
    page = 1

    def __init__(self, config: Where, pid: int, *, detailed: bool) -> None:
        """Raise ProcessLookupError without a process `pid`."""
        import psutil  # noqa: PLC0415  # takes 4 MB that Linux does not need

        self._psutil = psutil
        self._kept: dict[int, psutil.Process] = {}
        super().__init__(config, pid, detailed=detailed)

    def limits(self) -> CgroupLimits:
        """Return the CPUs and the memory of the machine."""
        return CgroupLimits(self._psutil.cpu_count(), self._psutil.virtual_memory().total)

    def _update_totals(self, ended: Collection[Member], parents: Mapping[int, int], reapers: AbstractSet[int]) -> None:
        del ended  # no parent's totals include its children's
        super()._update_totals((), parents, reapers)

    def _epoch(self, stat: Stat) -> int | None:
        return int(stat.began * SECOND)

    def _own_start(self) -> float:
        return float(self._psutil.Process().create_time())

    def _list(self) -> AbstractSet[int]:
        self._kept = {pid: self._kept[pid] for pid in self._members if pid in self._kept}
        return set(self._psutil.pids())

    def _stat(self, pid: int) -> Stat | None:
        try:
            process = self._kept.get(pid) or self._kept.setdefault(pid, self._psutil.Process(pid))
            with process.oneshot():
                times = process.cpu_times()
                return Stat(
                    state=ZOMBIE if process.status() == self._psutil.STATUS_ZOMBIE else "R",
                    parent=process.ppid(),  # psutil raises if the pid belongs to another process now
                    own=int((times.user + times.system) * self.second),
                    reaped=0,
                    threads=process.num_threads(),
                    began=process.create_time(),
                    pages=process.memory_info().rss,
                )
        except (self._psutil.Error, ValueError):
            self._kept.pop(pid, None)
            return None

    def _io(self, pid: int) -> tuple[int, int]:
        counters = self._call(pid, "io_counters")
        return counters.read_bytes, counters.write_bytes

    def _open_files(self, pid: int) -> int:
        return int(self._call(pid, "num_fds"))

    def _call(self, pid: int, method: str) -> Any:
        try:
            return getattr(self._kept[pid], method)()
        except self._psutil.AccessDenied as error:
            raise PermissionError(pid) from error
        except (self._psutil.Error, AttributeError) as error:  # macOS has no io_counters, Windows no num_fds
            raise ProcessLookupError(pid) from error


def tree_of(config: Where, pid: int, *, detailed: bool = False) -> ProcTree:
    """Return the tree of `pid` as this system can read it; raise ProcessLookupError without such a process."""
    return (ProcTree if sys.platform == "linux" else PsutilTree)(config, pid, detailed=detailed)
