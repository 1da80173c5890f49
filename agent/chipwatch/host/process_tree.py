"""Reads a process and all its descendants, and adds up their usage: by /proc or, on other systems, by psutil."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from chipwatch.host import cgroup
from chipwatch.host.cgroup import CgroupLimits
from chipwatch.host.procfs import ProcessFiles, count, epoch, link, read_small
from chipwatch.host.reaped_total import ReapedTotal

T = TypeVar("T")

SECOND: Final = 1_000_000_000
ZOMBIE: Final = "Z"
"""State of a process that has ended, whose CPU time can still be read until its parent reaps it."""
REAPED: Final = frozenset("Xx")
"""States of a process that its parent has reaped, so that the parent's totals include it."""
IO: Final = "process.io"
FILES: Final = "process.open_files"
MOST_ANCESTORS: Final = 100


class Where(Protocol):
    """The paths at which the host's /proc and /sys are mounted."""

    @property
    def proc(self) -> Path:
        """The host's /proc."""

    @property
    def sys(self) -> Path:
        """The host's /sys."""


class Stat(NamedTuple):
    """The state of a process at one moment. CPU times are in clock ticks."""

    state: str
    parent: int
    own: int
    """CPU time of all its threads."""
    reaped: int
    """CPU time of the descendants that were reaped."""
    threads: int
    began: float
    """Start time; with the pid, it identifies the process."""
    pages: int


_FIELDS: Final = itemgetter(0, 1, 11, 12, 13, 14, 17, 19, 21)


@lru_cache(maxsize=256)
def parse_stat(data: bytes) -> Stat:
    """
    Parse /proc/PID/stat, where the name of the process may have any character, also `)`; raise ValueError.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    fields = data[data.rindex(b")") + 2 :].split(b" ", 22)  # begins with field 3 of the manual page
    if len(fields) < 22:
        raise ValueError(data)
    state, parent, own, system, reaped, reaped_system, threads, began, pages = _FIELDS(fields)
    times = int(own) + int(system), int(reaped) + int(reaped_system)
    return Stat(state.decode(), int(parent), *times, int(threads), int(began), int(pages))


def stat_of(proc: Path, pid: int | str, data: bytes | None = None) -> Stat | None:
    """Return the state of a process, by `data` if that was read already; None if it has ended."""
    try:
        return parse_stat(data or read_small(f"{proc}/{pid}/stat"))
    except (OSError, ValueError):
        return None


def is_within(proc: Path, pid: int, first: int) -> bool | None:
    """Return whether the process `pid` is `first` or one of its descendants; None if there is no process `pid`."""
    parent: int | None = None
    for _ in range(MOST_ANCESTORS):
        if pid == first:
            return True
        if not (stat := stat_of(proc, pid)):  # the process, or an ancestor, has ended
            break
        parent = pid = stat.parent
    return None if parent is None else False


class TreeReading(NamedTuple):
    """The sums over a tree at one reading; None if unknown."""

    cpu: int
    """CPU time in clock ticks since a fixed moment; it never falls."""
    processes: int
    threads: int
    rss: int
    """Resident memory in bytes."""
    read: int | None
    """Bytes read since the start of the first process; `written` likewise."""
    written: int | None
    files: int | None


@dataclass(slots=True)
class Member:
    """A process of the tree at its last reading."""

    stat: Stat
    text: bytes = b""
    """The text of `stat`; most processes sleep between two readings, so that it is the same."""
    read: int = 0
    written: int = 0

    def runs(self) -> bool:
        """Return whether it still runs, and is not a zombie."""
        return self.stat.state != ZOMBIE


class ProcTree:
    """
    A process on Linux and all its descendants; those whose parents have ended stay members.

    Each reading lists all pids, and reads each member and each new pid. A process that starts and loses its parent
    between two readings is missed.
    """

    second = os.sysconf("SC_CLK_TCK")
    """Clock ticks of a second."""
    page = os.sysconf("SC_PAGE_SIZE")
    """Bytes of a page."""

    def __init__(self, config: Where, pid: int, *, detailed: bool) -> None:
        """Take the first process of the tree; raise ProcessLookupError if there is none."""
        self._config, self._detailed = config, detailed
        self._opened = ProcessFiles(config.proc)
        self._members: dict[int, Member] = {}
        if not (stat := self._stat(pid)):
            raise ProcessLookupError(pid)
        self._members[pid] = Member(stat)
        self._agent = self._own_pid()
        self._listed: AbstractSet[int] | None = None
        self._own = 0
        self._reaped, self._read, self._written = ReapedTotal(), ReapedTotal(), ReapedTotal()
        self._has_io = False
        self._files: int | None = None
        self.denied: set[str] = set()
        """Values (IO, FILES) that could not be read for some member in the last reading."""
        self.start_time = self._epoch(stat)
        """Start of the first process (ns since the epoch), or None."""
        self.is_whole = stat.began >= self._own_start()
        """True if the first process started after the agent, so that no part of the tree was missed."""

    def read(self, *, rescan: bool) -> TreeReading | None:
        """Return the current sums, or None once no member runs; with `rescan`, read all pids to find missed members."""
        if not self._members:
            return None
        self._has_io, self._files, self.denied = False, None, set()
        # The pids are listed before the members are read, so a process that starts in between is new in the next
        # reading. Parents are read before their children, so a child that is reaped in between appears in its
        # parent's totals one reading late, never too early.
        listed = self._list()
        ended = {pid: member for pid, member in self._members.items() if not self._refresh(pid, member)}
        parents = {pid: member.stat.parent for pid, member in self._members.items()}
        for pid in ended:
            del self._members[pid]
        if ended:
            self._opened.keep(self._members)
        living = {pid: member.runs() for pid, member in self._members.items()}
        self._add_descendants(listed, ended.keys(), rescan=rescan)
        self._update_totals(ended.values(), parents, living)
        if not (running := [member.stat for member in self._members.values() if member.runs()]):
            return None
        has_io = self._has_io and IO not in self.denied
        return TreeReading(
            cpu=self._own + self._reaped.total,
            processes=len(running),
            threads=sum(stat.threads for stat in running),
            rss=sum(stat.pages for stat in running) * self.page,
            read=self._read.total if has_io else None,
            written=self._written.total if has_io else None,
            files=None if FILES in self.denied else self._files,
        )

    def pids(self) -> frozenset[int]:
        """Return the pids of the members at the last reading, also of zombies."""
        return frozenset(self._members)

    def limits(self) -> CgroupLimits:
        """Return the limits of the first member that runs; call it only after a reading that found one."""
        pid = next(pid for pid, member in self._members.items() if member.runs())
        return cgroup.effective(self._config.proc, cgroup.of_process(self._config.proc, self._config.sys, pid), pid)

    def _refresh(self, pid: int, member: Member) -> bool:
        """Read a member again and note its gains; return False if it has ended."""
        stat, last = self._stat(pid), member.stat
        if stat is None or stat.began != last.began:
            return False
        if stat is not last:
            self._own += max(0, stat.own - last.own)
            self._reaped.gain(pid, stat.reaped - last.reaped)
            member.stat = stat
        if self._detailed:
            self._read_detail(pid, member, count=True)
        return True

    def _add_descendants(self, listed: AbstractSet[int], ended: AbstractSet[int], *, rescan: bool) -> None:
        """
        Add new descendants of the members, with their usage since they started.

        The usage of a descendant that existed at the last reading, and is found only now, counts from now on.
        """
        first, listed_before = self._listed is None, (self._listed or frozenset()) - ended
        self._listed = listed
        candidates = listed - self._members.keys() if rescan else listed - listed_before
        stats = {pid: stat for pid in sorted(candidates) if (stat := self._stat(pid))}
        while joined := [pid for pid, stat in stats.items() if stat.parent in self._members]:
            for pid in joined:
                stat = stats.pop(pid)
                if pid < stat.parent:  # pids wrapped, so the parent was read later and may have reaped it
                    again = self._stat(pid)
                    if not again or again.began != stat.began:
                        continue
                    stat = again
                member = self._members[pid] = Member(stat)
                started = not first and pid not in listed_before
                if started:
                    self._own += member.stat.own + member.stat.reaped
                if self._detailed:
                    self._read_detail(pid, member, count=started or first)

    def _read_detail(self, pid: int, member: Member, *, count: bool) -> None:
        """Read values that may need a permission; with `count`, note the I/O since the last reading."""
        if (files := self._try(FILES, self._open_files, pid)) is not None:
            self._files = (self._files or 0) + files
        if io := self._try(IO, self._io, pid):
            if count:
                self._read.gain(pid, io[0] - member.read)
                self._written.gain(pid, io[1] - member.written)
            member.read, member.written = io
            self._has_io = True

    def _try(self, name: str, call: Callable[[int], T], pid: int) -> T | None:
        try:
            return call(pid)
        except PermissionError:
            self.denied.add(name)
        except (FileNotFoundError, ProcessLookupError, IndexError, ValueError):
            pass  # the process has ended, or the system lacks the value
        return None

    def _update_totals(self, ended: Collection[Member], parents: Mapping[int, int], living: Mapping[int, bool]) -> None:
        """Update the three sums; `ended` are the members that have ended since the last reading."""
        self._reaped.update([(one.stat.parent, one.stat.own + one.stat.reaped) for one in ended], parents, living)
        self._read.update([(one.stat.parent, one.read) for one in ended], parents, living)
        self._written.update([(one.stat.parent, one.written) for one in ended], parents, living)

    def _epoch(self, stat: Stat) -> int | None:
        return epoch(self._config.proc, stat.began)

    def _own_pid(self) -> int | None:
        """Return the agent's own pid in this /proc, or None."""
        return count(link(f"{self._config.proc}/self"))

    def _own_start(self) -> float:
        """Return the agent's own start in the unit of Stat.began; infinity if unknown."""
        stat = stat_of(self._config.proc, "self")
        return stat.began if stat else math.inf

    def _list(self) -> AbstractSet[int]:
        """Return all pids except the agent's own: it does not count, even if the watched process started it."""
        names = os.listdir(self._config.proc)  # noqa: PTH208  # faster than a Path for each name
        return {*map(int, filter(str.isdecimal, names))} - {self._agent}

    def _stat(self, pid: int) -> Stat | None:
        member = self._members.get(pid)
        try:
            text = self._opened.read(pid, "stat", member is not None)
            if member and text == member.text:
                return member.stat
            stat = parse_stat(text)
        except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError):
            return None
        if member:
            member.text = text
        return stat if stat.state not in REAPED else None

    def _io(self, pid: int) -> tuple[int, int]:
        words = self._opened.read(pid, "io").split()  # https://man7.org/linux/man-pages/man5/proc_pid_io.5.html
        return int(words[9]), int(words[11])

    def _open_files(self, pid: int) -> int:
        """Return the number of open files; since Linux 6.2, it is the size of the folder (proc.rst of Linux)."""
        path = f"{self._config.proc}/{pid}/fd"
        return os.stat(path).st_size or len(os.listdir(path))  # noqa: PTH116, PTH208  # faster than a Path


if TYPE_CHECKING:
    import psutil


class PsutilTree(ProcTree):
    """The same on other systems, by psutil; it does not report the usage of children that have ended."""

    second = 1000
    page = 1

    def __init__(self, config: Where, pid: int, *, detailed: bool) -> None:
        """Take the first process of the tree; raise ProcessLookupError if there is none."""
        import psutil

        self._psutil = psutil
        self._kept: dict[int, psutil.Process] = {}
        super().__init__(config, pid, detailed=detailed)

    def limits(self) -> CgroupLimits:
        """Return the CPUs and the memory of the machine."""
        return CgroupLimits(self._psutil.cpu_count(), self._psutil.virtual_memory().total)

    def _update_totals(self, ended: Collection[Member], parents: Mapping[int, int], living: Mapping[int, bool]) -> None:
        del ended  # a parent's numbers never include its children's
        super()._update_totals((), parents, living)

    def _epoch(self, stat: Stat) -> int | None:
        return int(stat.began * SECOND)

    def _own_pid(self) -> int:
        return os.getpid()

    def _own_start(self) -> float:
        return float(self._psutil.Process().create_time())

    def _list(self) -> AbstractSet[int]:
        self._kept = {pid: self._kept[pid] for pid in self._members if pid in self._kept}
        return set(self._psutil.pids()) - {self._agent}

    def _stat(self, pid: int) -> Stat | None:
        try:
            process = self._kept.get(pid) or self._kept.setdefault(pid, self._psutil.Process(pid))
            with process.oneshot():
                times = process.cpu_times()
                return Stat(
                    state=ZOMBIE if process.status() == self._psutil.STATUS_ZOMBIE else "R",
                    parent=process.ppid(),  # raises if another process has the pid now
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
        except (self._psutil.Error, AttributeError) as error:  # macOS has no io_counters
            raise ProcessLookupError(pid) from error


def tree_of(config: Where, pid: int, *, detailed: bool = False) -> ProcTree:
    """Return the tree of `pid`, read in this system's way; raise ProcessLookupError if there is no such process."""
    return (ProcTree if sys.platform == "linux" else PsutilTree)(config, pid, detailed=detailed)
