"""A process and all that descend from it, read as one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from agent.host import cgroup
from agent.host.cgroup import Limits
from agent.host.procfs import boot_time
from agent.host.reaped import Inherited

if TYPE_CHECKING:
    import psutil

T = TypeVar("T")

SECOND: Final = 1_000_000_000
ZOMBIE: Final = "Z"
"""Counted out: it holds no memory and runs no more; its CPU time can be read until it is reaped."""
REAPED: Final = frozenset("Xx")
"""Its parent has inherited from it already."""
IO: Final = "process.io"
FILES: Final = "process.open_files"


class Where(Protocol):
    """Where the host's trees are."""

    @property
    def proc(self) -> Path:
        """Its /proc."""

    @property
    def sys(self) -> Path:
        """Its /sys."""


class Stat(NamedTuple):
    """A process at one moment."""

    state: str
    parent: int
    own: int
    """CPU time of its threads, in clock ticks."""
    reaped: int
    """CPU time of the children that it waited for, and of those that they did, in clock ticks."""
    threads: int
    began: float
    """With the pid the identity of a process."""
    pages: int


def parse_stat(data: bytes) -> Stat:
    """
    Parse /proc/<pid>/stat, in which the name may hold anything, `)` too; raise ValueError where it is none.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    fields = data[data.rindex(b")") + 2 :].split(b" ", 22)  # the first is number 3 of the manual page
    if len(fields) < 22:
        raise ValueError(data)
    return Stat(
        state=fields[0].decode(),
        parent=int(fields[1]),
        own=int(fields[11]) + int(fields[12]),
        reaped=int(fields[13]) + int(fields[14]),
        threads=int(fields[17]),
        began=int(fields[19]),
        pages=int(fields[21]),
    )


class Reading(NamedTuple):
    """The tree at one moment, as one; None where something cannot be known."""

    cpu: int
    """Clock ticks of CPU since some fixed moment; never falls."""
    processes: int
    threads: int
    rss: int
    """In bytes."""
    read: int | None
    """Bytes since the first process began."""
    written: int | None
    files: int | None


class _Member:
    __slots__ = ("read", "stat", "written")

    def __init__(self, stat: Stat) -> None:
        self.stat = stat
        self.read = self.written = 0

    def runs(self) -> bool:
        return self.stat.state != ZOMBIE


class ProcTree:
    """
    A process of Linux and all that descend from it, also those whose parents died.

    A reading is one listing of all pids, and one look at each member and at each pid that is new. Who was born,
    and lost its parent, between two readings is not known to descend from the tree.
    """

    second = 100 if sys.platform == "win32" else os.sysconf("SC_CLK_TCK")
    """Clock ticks."""
    page = 1 if sys.platform == "win32" else os.sysconf("SC_PAGE_SIZE")
    """Bytes."""

    def __init__(self, config: Where, pid: int, *, detailed: bool) -> None:
        """Take the first process; raise ProcessLookupError where it is not there."""
        self._config = config
        self._proc = str(config.proc)
        self._detailed = detailed
        if not (stat := self._stat(pid)):
            raise ProcessLookupError(pid)
        self._members = {pid: _Member(stat)}
        self._listed: AbstractSet[int] | None = None
        self._own = 0
        self._reaped, self._read, self._written = Inherited(), Inherited(), Inherited()
        self._known = False
        self._files: int | None = None
        self.denied: set[str] = set()
        """Names of what the system kept secret, of some member, in the last reading."""
        self.start_time = self._epoch(stat)
        """When the first process began (ns since the epoch), or None."""

    def read(self, *, rescan: bool) -> Reading | None:
        """Return the state now, or None once nobody runs; `rescan` looks at all pids, which heals what was missed."""
        if not self._members:
            return None
        self._known, self._files, self.denied = False, None, set()
        # Listed before the members are read: who is born meanwhile is new the next time. Parents are read before
        # their children, so that what a parent inherits while the reading lasts is seen too late, never too early.
        listed = self._list()
        gone = {pid: member for pid, member in self._members.items() if not self._advance(pid, member)}
        parents = {pid: member.stat.parent for pid, member in self._members.items()}
        for pid in gone:
            del self._members[pid]
        reapers = {pid for pid, member in self._members.items() if member.runs()}
        self._join(listed, gone.keys(), rescan=rescan)
        self._settle(gone.values(), parents, reapers)
        running = [member.stat for member in self._members.values() if member.runs()]
        if not running:
            return None
        told = self._known and IO not in self.denied
        return Reading(
            cpu=self._own + self._reaped.total,
            processes=len(running),
            threads=sum(stat.threads for stat in running),
            rss=sum(stat.pages for stat in running) * self.page,
            read=self._read.total if told else None,
            written=self._written.total if told else None,
            files=None if FILES in self.denied else self._files,
        )

    def pids(self) -> frozenset[int]:
        """Return who was in the tree at the last reading, zombies too."""
        return frozenset(self._members)

    def limits(self) -> Limits:
        """Return what the first member that runs may use; asked after a reading that found one."""
        pid = next(pid for pid, member in self._members.items() if member.runs())
        return cgroup.effective(self._config.proc, cgroup.find(self._config.proc, self._config.sys, pid), pid)

    def _advance(self, pid: int, member: _Member) -> bool:
        """Look at a member again and count what it used; tell whether it is still there."""
        stat, last = self._stat(pid), member.stat
        if stat is None or stat.began != last.began:
            return False
        if stat.own > last.own:
            self._own += stat.own - last.own
        self._reaped.gain(pid, stat.reaped - last.reaped)
        member.stat = stat
        if self._detailed:
            self._detail(pid, member, new=True)
        return True

    def _join(self, listed: AbstractSet[int], gone: AbstractSet[int], *, rescan: bool) -> None:
        """
        Take in those that descend from a member, with all that they used since they were born.

        Who was listed before and is recognised only now began at an unknown time: it is counted from here on.
        """
        first, known = self._listed is None, (self._listed or frozenset()) - gone
        self._listed = listed
        look = listed - self._members.keys() if rescan else listed - known
        found = {pid: stat for pid in sorted(look) if (stat := self._stat(pid))}
        while joined := [pid for pid, stat in found.items() if stat.parent in self._members]:
            for pid in joined:
                member = self._members[pid] = _Member(found.pop(pid))
                born = not first and pid not in known
                if born:
                    self._own += member.stat.own + member.stat.reaped
                if self._detailed:
                    self._detail(pid, member, new=born or first)

    def _detail(self, pid: int, member: _Member, *, new: bool) -> None:
        """Read what may be secret; `new` says that whatever is not counted yet shall be."""
        if (files := self._told(FILES, self._open_files, pid)) is not None:
            self._files = (self._files or 0) + files
        if io := self._told(IO, self._io, pid):
            if new:
                self._read.gain(pid, io[0] - member.read)
                self._written.gain(pid, io[1] - member.written)
            member.read, member.written = io
            self._known = True

    def _told(self, name: str, ask: Callable[[int], T], pid: int) -> T | None:
        try:
            return ask(pid)
        except PermissionError:
            self.denied.add(name)
        except (FileNotFoundError, ProcessLookupError, IndexError, ValueError):
            pass  # it ended, or the system keeps no such account
        return None

    def _settle(self, gone: Collection[_Member], parents: Mapping[int, int], reapers: AbstractSet[int]) -> None:
        """Take off what parents inherited and had been counted of the members that are gone."""
        self._reaped.acknowledge([(one.stat.parent, one.stat.own + one.stat.reaped) for one in gone], parents, reapers)
        self._read.acknowledge([(one.stat.parent, one.read) for one in gone], parents, reapers)
        self._written.acknowledge([(one.stat.parent, one.written) for one in gone], parents, reapers)

    def _epoch(self, stat: Stat) -> int | None:
        boot = boot_time(self._config.proc)
        return boot and boot + int(stat.began) * SECOND // self.second

    def _list(self) -> AbstractSet[int]:
        names = os.listdir(self._proc)  # noqa: PTH208  no Path for each of a thousand names
        return {int(name) for name in names if name.isdecimal()}

    def _stat(self, pid: int) -> Stat | None:
        try:
            stat = parse_stat(self._slurp(f"{pid}/stat"))
        except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError):
            return None
        return stat if stat.state not in REAPED else None

    def _io(self, pid: int) -> tuple[int, int]:
        words = self._slurp(f"{pid}/io").split()  # https://man7.org/linux/man-pages/man5/proc_pid_io.5.html
        return int(words[9]), int(words[11])

    def _open_files(self, pid: int) -> int:
        """Return the folder's size, which is this since Linux 6.2: https://docs.kernel.org/filesystems/proc.html ."""
        path = f"{self._proc}/{pid}/fd"
        return os.stat(path).st_size or len(os.listdir(path))  # noqa: PTH116, PTH208  no Path for each member

    def _slurp(self, name: str) -> bytes:
        file = os.open(f"{self._proc}/{name}", os.O_RDONLY)
        try:
            return os.read(file, 4096)
        finally:
            os.close(file)


class PsutilTree(ProcTree):
    """The same elsewhere, as far as psutil sees it; what ended children used is not told there."""

    second = 1000
    page = 1

    def __init__(self, config: Where, pid: int, *, detailed: bool) -> None:
        """Take the first process; raise ProcessLookupError where it is not there."""
        import psutil  # noqa: PLC0415  4 MB that Linux does not need

        self._psutil = psutil
        self._kept: dict[int, psutil.Process] = {}
        super().__init__(config, pid, detailed=detailed)

    def limits(self) -> Limits:
        """Return the CPUs and the memory of the machine."""
        return Limits(self._psutil.cpu_count(), self._psutil.virtual_memory().total)

    def _settle(self, gone: Collection[_Member], parents: Mapping[int, int], reapers: AbstractSet[int]) -> None:
        del gone  # nobody inherits, so nobody owes
        super()._settle((), parents, reapers)

    def _epoch(self, stat: Stat) -> int | None:
        return int(stat.began * SECOND)

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
                    parent=process.ppid(),  # which psutil refuses to tell of another process with the same pid
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
        told = self._asked(pid, "io_counters")
        return told.read_bytes, told.write_bytes

    def _open_files(self, pid: int) -> int:
        return int(self._asked(pid, "num_fds"))

    def _asked(self, pid: int, what: str) -> Any:
        if not hasattr(self._kept[pid], what):  # macOS has no io_counters, Windows no num_fds
            raise ProcessLookupError(pid)
        try:
            return getattr(self._kept[pid], what)()
        except self._psutil.AccessDenied as error:
            raise PermissionError(pid) from error
        except self._psutil.Error as error:
            raise ProcessLookupError(pid) from error
