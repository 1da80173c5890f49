"""Reads what processes on an idle accelerator wait for: children that load data, or sockets."""

from __future__ import annotations

import math
import os
import re
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.contract.owner import ProcessUse
from chipwatch.host.cgroup import cpu_list
from chipwatch.host.open_devices import open_files
from chipwatch.host.process_tree import ProcTree, Stat, stat_of
from chipwatch.host.procfs import ProcessFiles, link, read, status_of, tcp_sockets

MAX_PROCESSES: Final = 64
"""Most processes on accelerators that are read in a tick."""
MAX_CHILDREN: Final = 64
"""Most children of a process, and most threads whose children are listed."""
MAX_BYTES: Final = 4 << 20
"""Most bytes that are read of the kernel's answer about sockets."""
WAKES: Final = 4.0
"""Most wake-ups per second of a thread that receives nothing; a stream of data wakes it more often."""
RECEIVES: Final = re.compile(r"wait_woken|sk_wait_data")
"""Functions of Linux in which a thread waits for one socket: net/core/sock.c, since Linux 4.9 and before."""
POLLS: Final = re.compile(r"(poll_schedule_timeout|do_sys_poll|do_poll|do_select|ep_poll|do_epoll_wait)\b")
"""Functions of Linux in which a thread waits for several files: fs/select.c, fs/eventpoll.c."""
REFRESH: Final = 60.0
"""Seconds for which a reading of a process's CPU affinity is used."""
LISTED: Final = 10.0
"""Seconds after which all threads are asked for children again; until then, the main thread and those that had some."""
ESTABLISHED: Final = 1
"""State of a connected TCP socket: include/net/tcp_states.h."""
REQUEST: Final = struct.Struct("=IHHII BBBBI 48x")
"""A netlink header and inet_diag_req_v2: include/uapi/linux/netlink.h, inet_diag.h."""
HEADER: Final = struct.Struct("=IHHII")
MESSAGE: Final = struct.Struct("=56xI8xI")
"""The fields rqueue and inode of inet_diag_msg: include/uapi/linux/inet_diag.h."""
TRAFFIC: Final = struct.Struct("=44xI4xI72xQ")
"""Fields of tcp_info: ms since data was sent, ms since data was received, bytes received (Linux 4.1): linux/tcp.h."""
INFO: Final = 2
DIAG_BY_FAMILY: Final = 20
DUMP: Final = 0x301
DONE: Final = 3


_Key = tuple[int, float]
"""PID and start of a process."""


class _Wait(NamedTuple):
    """A process whose main thread waits for data from a socket."""

    began: float
    sockets: frozenset[str]
    """Sockets, one of which it waits for, as links in /proc/PID/fd name them."""
    switches: int


class Waits:
    """
    Reads processes and their children; remembers which of them waited for a socket in the last reading.

    Sockets of other users' processes are visible only to root or with CAP_SYS_PTRACE.
    """

    def __init__(self, proc: Path, unanswered: Callable[[float], set[int]] | None = None) -> None:
        """`unanswered`: returns the inodes of sockets that have waited for an answer for a number of seconds."""
        self._proc, self.files = proc, ProcessFiles(proc)
        self._unanswered = unanswered or unanswered_sockets
        self._before: dict[int, _Wait] = {}
        self._moment: float | None = None
        self._bound: dict[_Key, tuple[float, frozenset[int]]] = {}
        """Process -> time of the reading (s), and the CPUs on which it may run."""
        self._threads: dict[_Key, tuple[float, list[str]]] = {}
        """Process -> time of the listing (s), and the threads to ask for children."""

    def read(
        self, pids: Collection[int], others: Collection[int], now: float, stats: Mapping[int, bytes] = {}
    ) -> dict[int, ProcessUse]:
        """
        Return the usage of `pids` at `now` (s); processes in `others` do not count as children.

        `stats` has what was read already of /proc/PID/stat.
        """
        before, seconds = self._before, 0.0 if self._moment is None else now - self._moment
        self._before, self._moment = {}, now
        tables: dict[str, set[str]] = {}
        uses, bound, self._bound = {}, self._bound, {}
        threads, self._threads = self._threads, {}
        for pid in sorted(pids)[:MAX_PROCESSES]:
            if stat := stat_of(self._proc, pid, stats.get(pid)):
                tasks = self._children((pid, stat.began), others, threads, now)
                children = {task: state for task in tasks if (state := stat_of(self._proc, task))}
                for task, state in {pid: stat, **children}.items():
                    with suppress(ValueError):  # a file has an unknown format
                        if wait := self._wait(task, state, seconds, tables):
                            self._before[task] = wait
                waits = any(_lasted(before.get(task), self._before.get(task), seconds) for task in (pid, *children))
                cpu = {(task, state.began): state.own / ProcTree.second for task, state in children.items()}
                delays = {key: delay for key in cpu if (delay := self.delay(key[0])) is not None}
                own = self._cpus_of((pid, stat.began), bound, now) if cpu else frozenset()
                theirs = frozenset[int]().union(*(self._cpus_of(key, bound, now) for key in cpu))
                uses[pid] = ProcessUse(
                    stat.own / ProcTree.second, cpu, waits, delays, len(theirs), shares_cpus=own <= theirs
                )
        self.files.keep(others)
        return uses

    def stat(self, pid: int) -> bytes:
        """Return /proc/PID/stat, which stays open; b"" if it cannot be read."""
        with suppress(OSError):
            return self.files.read(pid, "stat")
        return b""

    def delay(self, pid: int) -> float | None:
        """Return the seconds in which a process's main thread was ready to run but had no CPU; None if unknown."""
        words = read(f"{self._proc}/{pid}/schedstat").split()
        return int(words[1]) / 1e9 if len(words) > 1 and words[1].isdigit() else None

    def _cpus_of(self, key: _Key, bound: Mapping[_Key, tuple[float, frozenset[int]]], now: float) -> frozenset[int]:
        """Return the CPUs on which a process may run, read at most once a minute; empty if unknown."""
        if not (kept := bound.get(key)) or now - kept[0] > REFRESH:
            kept = now, frozenset(cpu_list(status_of(self._proc, key[0], "Cpus_allowed_list:")))
        self._bound[key] = kept
        return kept[1]

    def _children(
        self, key: _Key, others: Collection[int], before: Mapping[_Key, tuple[float, list[str]]], now: float
    ) -> list[int]:
        """Return the children of a process, from `before` or from a new list of its threads."""
        (listed, threads), first = before.get(key, (-math.inf, [])), f"{key[0]}"
        if now - listed > LISTED:
            with suppress(OSError):
                listed, threads = now, os.listdir(f"{self._proc}/{first}/task")[:MAX_CHILDREN]  # noqa: PTH208  # faster than a Path for each
        words = {one: read(f"{self._proc}/{first}/task/{one}/children").split() for one in threads}
        self._threads[key] = listed, [one for one in threads if words[one] or one == first]
        return [pid for each in words.values() for pid in map(int, each) if pid not in others][:MAX_CHILDREN]

    def _wait(self, pid: int, stat: Stat, seconds: float, tables: dict[str, set[str]]) -> _Wait | None:
        """Return the sockets for which a process's main thread waits; None if there is none, or if unknown."""
        where = read(f"{self._proc}/{pid}/wchan").decode("ascii", "replace")
        sockets: set[str] = set()
        if RECEIVES.match(where):
            words = read(f"{self._proc}/{pid}/syscall").split()
            if len(words) > 1:
                awaited = f"{self._proc}/{pid}/fd/{int(words[1], 16) & 0xFFFFFFFF}"
                sockets = {link(awaited)} & self._established(pid, tables)
        elif POLLS.match(where):
            if "diag" not in tables:
                tables["diag"] = {f"socket:[{inode}]" for inode in self._unanswered(seconds)}
            if tables["diag"]:
                sockets = {target for _, target in open_files(self._proc, pid)} & tables["diag"]
        sockets.discard("socket:[0]")  # connections that nobody has accepted yet
        switches = status_of(self._proc, pid, "voluntary_ctxt_switches:") if sockets else ""
        return _Wait(stat.began, frozenset(sockets), int(switches)) if switches else None

    def _established(self, pid: int, tables: dict[str, set[str]]) -> set[str]:
        """Return the connected sockets without unread data in the network namespace of a process."""
        network = link(f"{self._proc}/{pid}/ns/net")
        if network not in tables:
            tables[network] = {
                f"socket:[{int(fields[9])}]"
                for _, fields in tcp_sockets(f"{self._proc}/{pid}/net")
                if int(fields[3], 16) == ESTABLISHED and fields[4].endswith(b":00000000")
            }
        return tables[network]


def _lasted(before: _Wait | None, now: _Wait | None, seconds: float) -> bool:
    """Return True if a thread waited for the same socket in both readings and received nothing between them."""
    if before is None or now is None or before.began != now.began or not before.sockets & now.sockets:
        return False
    return now.switches - before.switches <= WAKES * seconds


FAMILIES: Final = (2, 10)
"""AF_INET and AF_INET6 of Linux: include/linux/socket.h."""


def unanswered_sockets(seconds: float) -> set[int]:
    """
    Return the inodes of connected TCP sockets that have waited for an answer for at least `seconds`.

    Such a socket has sent data after it last received some. One that never received any is left out: its other side
    does not answer at all. The kernel is asked (sock_diag(7)) about the network of this process; {} if it refuses.
    """
    inodes: set[int] = set()
    for family in FAMILIES:
        with suppress(OSError, AttributeError, struct.error):
            inodes |= {*_dump(family, 1000 * seconds)}
    return inodes


def _dump(family: int, least: float) -> Iterator[int]:
    if sys.platform != "linux":
        return
    ask = REQUEST.pack(
        REQUEST.size, DIAG_BY_FAMILY, DUMP, 1, 0, family, socket.IPPROTO_TCP, 1 << INFO - 1, 0, 1 << ESTABLISHED
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as link:
        link.settimeout(1.0)
        link.sendto(ask, (0, 0))
        taken = 0
        while taken < MAX_BYTES:
            data = link.recv(1 << 16)
            taken += len(data)
            while len(data) >= HEADER.size:
                length, kind, *_ = HEADER.unpack_from(data)
                if kind <= DONE or length < HEADER.size:
                    return
                if (number := _unanswered(data[HEADER.size : length], least)) is not None:
                    yield number
                data = data[(length + 3) & ~3 :]


def _unanswered(message: bytes, least: float) -> int | None:
    unread, inode = MESSAGE.unpack_from(message)
    rest = message[MESSAGE.size :]
    while not unread and len(rest) >= 4:
        size, kind = struct.unpack_from("=HH", rest)
        if kind == INFO:
            sent, received, answers = TRAFFIC.unpack_from(rest, 4)
            return inode if answers and received >= least and sent < received else None
        rest = rest[max(4, (size + 3) & ~3) :]
    return None
