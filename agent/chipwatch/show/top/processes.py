"""Processes of the host, read from /proc: a row for each, and the details of one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from chipwatch.base.text import duration
from chipwatch.contract.facts import DeviceProcess
from chipwatch.host.owners import UserNames
from chipwatch.host.process_tree import ProcTree, Stat, parse_stat
from chipwatch.host.procfs import read
from chipwatch.jobs.device_key import device_of
from chipwatch.show.top.machine import ListedProcess

PAGES: Final = os.sysconf("SC_PHYS_PAGES")
PATIENCE: Final = 200
"""A reading of all processes waits this many times its duration for the next one: it takes 0.5 % of a core."""
MOST: Final = 1000
"""Most processes of a host in the table."""
LONGEST: Final = 300
"""Most characters of a command line in a row."""
MOST_ANCESTORS: Final = 16
HERE: Final = "/proc"


class KnownProcess(NamedTuple):
    """The last reading of a process: its CPU ticks at the time `at` (s), its user and its command."""

    user: str
    command: str
    ticks: int
    at: float


class ProcessTable:
    """Reads rows for the table: user, command, CPU and memory of processes."""

    def __init__(self, proc: str = HERE, root: Path = Path("/")) -> None:
        """`proc` and `root`: where the node's /proc and / are mounted."""
        self._proc, self._users = proc, UserNames(root)
        self._known: dict[tuple[int, float], KnownProcess] = {}
        """PID and start -> the last reading of that process."""
        self._all: list[ListedProcess] = []
        self._due = 0.0

    def on_devices(self, processes: Iterable[DeviceProcess]) -> list[ListedProcess]:
        """Return a row for each of these processes on devices."""
        processes, now = [*processes], time.monotonic()
        rows = {pid: self._row(pid, now) for pid in {process.pid for process in processes}}
        self._forget(rows.values())
        missing = ListedProcess(command="(not a process here: it has ended, or is of another container)")
        return [(rows[each.pid] or missing)._replace(
            device=device_of(each.dims), pid=each.pid, memory=each.memory, share=each.utilization)
            for each in processes]  # fmt: skip

    def of_host(self) -> list[ListedProcess]:
        """Return the processes that use most CPU and memory; they are read again only after a pause."""
        now = time.monotonic()
        if now >= self._due:
            try:
                pids = [int(path.name) for path in Path(self._proc).iterdir() if path.name.isdecimal()]
            except OSError:
                pids = []
            rows = [row for pid in pids if (row := self._row(pid, now))]
            self._forget(rows)
            self._all = sorted(rows, key=lambda row: (-(row.cpu or 0), -(row.resident or 0)))[:MOST]
            self._due = now + PATIENCE * (time.monotonic() - now)
        return self._all

    def _row(self, pid: int, now: float) -> ListedProcess | None:
        if not (current := stat_of(self._proc, pid)):
            return None
        name, stat = current
        known, cpu = self._known.get((pid, stat.began)), None
        if known and now > known.at:
            cpu = 100 * (stat.own - known.ticks) / ProcTree.second / (now - known.at)
        user, command = (known.user, known.command) if known else self._names(pid, name)
        self._known[pid, stat.began] = KnownProcess(user, command, stat.own, now)
        resident = 100 * stat.pages / PAGES
        return ListedProcess((), pid, user, None, None, cpu, command, "", resident, _age(stat), stat.began)

    def _names(self, pid: int, name: str) -> tuple[str, str]:
        """Return the name or number of the process's user, and its command."""
        user = ""
        with suppress(OSError):
            user = self._users.name(f"{Path(f'{self._proc}/{pid}').stat().st_uid}")
        return user, shortened(command_of(self._proc, pid, name))

    def _forget(self, rows: Iterable[ListedProcess | None]) -> None:
        """Forget the processes that are not in `rows`."""
        present = {(row.pid, row.began) for row in rows if row}
        self._known = {key: known for key, known in self._known.items() if key in present}


def stat_of(proc: str, pid: int) -> tuple[str, Stat] | None:
    """Return the name and the figures of a process; None if it has ended or cannot be read."""
    line = read(f"{proc}/{pid}/stat")
    with suppress(ValueError):  # it has ended
        return os.fsdecode(line[line.index(b"(") + 1 : line.rindex(b")")]), parse_stat(line)
    return None


def command_of(proc: str, pid: int, name: str) -> str:
    """Return the command line; for a thread of the kernel, its name in brackets."""
    line = read(f"{proc}/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ")
    return os.fsdecode(line) or f"[{name}]"


def shortened(command: str) -> str:
    """Return a command line without the folders of the program and of a Python script."""
    program, *words = command[:LONGEST].split(" ")
    if not program.startswith("["):
        program = PurePath(program).name or program
    if program.startswith("python") and words and words[0].startswith("/"):
        words[0] = PurePath(words[0]).name
    return " ".join((program, *words))


def _age(stat: Stat) -> float:
    """Return the seconds since the start of a process."""
    if sys.platform != "linux":
        return 0.0  # not reached: there is no /proc
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - stat.began / ProcTree.second)


def details(process: ListedProcess, proc: str = HERE) -> Mapping[str, str]:
    """Return the details of a process: parents, children, cgroup, and the names of its environment variables."""
    pid = process.pid
    current = stat_of(proc, pid)
    if not current or current[1].began != process.began:
        return {"process": f"{pid} has ended, or is of another container"}
    name, stat = current
    began = time.localtime(time.time_ns() / 1e9 - _age(stat))
    parents = [stat.parent]
    while len(parents) < MOST_ANCESTORS and (parent := stat_of(proc, parents[-1])):
        parents.append(parent[1].parent)
    children = read(f"{proc}/{pid}/task/{pid}/children").split()
    cgroups = {line.rpartition(":")[2] for line in os.fsdecode(read(f"{proc}/{pid}/cgroup")).splitlines()}
    variables = read(f"{proc}/{pid}/environ", 1 << 20).split(b"\0")
    names = sorted({os.fsdecode(variable.partition(b"=")[0]) for variable in variables if b"=" in variable})
    return {
        "process": f"{pid}, {name}, state {stat.state}, {stat.threads} threads",
        "command": command_of(proc, pid, name),
        "user": process.user,
        "job": process.job or "none is known",
        "began": f"{time.strftime('%Y-%m-%d %H:%M:%S', began)}, {duration(_age(stat), 2)} ago",
        "CPU time": duration(stat.own / ProcTree.second, 2),
        "memory": f"{stat.pages * ProcTree.page / 2**20:,.0f} MiB, {100 * stat.pages / PAGES:.1f} %",
        "parents": " < ".join(_named(proc, parent) for parent in takewhile(bool, parents)) or "none",
        "children": ", ".join(_named(proc, int(child)) for child in children[:MOST_ANCESTORS]) or "none",
        "cgroup": ", ".join(sorted(cgroups)) or "unknown",
        "environment": " ".join(names) or "not permitted, or empty",
    }


def _named(proc: str, pid: int) -> str:
    process = stat_of(proc, pid)
    return f"{pid} {process[0]}" if process else f"{pid}"
