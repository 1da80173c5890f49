"""Measures the processes of a program from /proc: CPU, memory, context switches, calls of read and write, bytes written."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from tests.bench.figure import MB, cpu_seconds

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """Counters of one process since its start."""

    cpu: float
    """Seconds, with the children that it has waited for."""
    switches: int
    calls: int
    """Calls of read and write, and of their variants (syscr + syscw of /proc/PID/io)."""
    written: int
    """Bytes that were sent to a disk on behalf of this process."""


@dataclass(frozen=True)
class Usage:
    """Usage of a program: each value is per second, or at the end."""

    cpu: float
    """Milliseconds a second."""
    rss: float
    """MB; pages that several of its processes share count for each."""
    pss: float
    """MB; a shared page counts in parts for all processes of the machine that have it."""
    threads: float
    switches: float
    calls: float
    written: float
    sent: float = 0.0
    """Bytes a second that the receiver counted."""


def fields_of(path: Path) -> dict[str, str]:
    """Return the lines `key: value` of a file."""
    pairs = (line.partition(":") for line in path.read_text().splitlines())
    return {key: value.strip() for key, _, value in pairs}


def stat_of(pid: int, proc: Path) -> list[str]:
    """Return /proc/PID/stat from the state on, which is the third field."""
    return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()


def tree(pid: int, proc: Path = PROC) -> list[int]:
    """Return a process and its descendants; empty when it has ended."""
    parents = {}
    for path in proc.glob("[0-9]*"):
        try:
            state, parent = stat_of(int(path.name), proc)[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(path.name)] = int(parent)
    members = [pid] if pid in parents else []
    for member in members:
        members += [child for child, parent in parents.items() if parent == member]
    return members


def process(pid: int, proc: Path = PROC, clock: Callable[[int], float] = cpu_seconds) -> Process:
    """Read the counters of one process."""
    stat, used = stat_of(pid, proc), fields_of(proc / str(pid) / "io")
    return Process(
        clock(pid) + (int(stat[13]) + int(stat[14])) / TICKS,
        switches(pid, proc),
        int(used["syscr"]) + int(used["syscw"]),
        int(used["write_bytes"]),
    )


def switches(pid: int, proc: Path = PROC) -> int:
    """Return the context switches of all threads of a process that live; each wake-up is one at least."""
    total = 0
    for task in (proc / str(pid) / "task").iterdir():
        try:
            lines = fields_of(task / "status")
        except OSError:
            continue
        total += int(lines["voluntary_ctxt_switches"]) + int(lines["nonvoluntary_ctxt_switches"])
    return total


def counters(
    pid: int, proc: Path = PROC, clock: Callable[[int], float] = cpu_seconds
) -> tuple[float, dict[int, Process]]:
    """Return the moment and the counters of a program, by process."""
    members = {}
    for member in tree(pid, proc):
        try:
            members[member] = process(member, proc, clock)
        except OSError:
            continue
    return time.monotonic(), members


def usage(
    before: tuple[float, dict[int, Process]], after: tuple[float, dict[int, Process]], proc: Path = PROC
) -> Usage:
    """Return what was used between two readings; a process that came in between counts from its start."""
    seconds, zero = after[0] - before[0], Process(0, 0, 0, 0)
    rates = {
        field.name: sum(
            max(0.0, getattr(now, field.name) - getattr(before[1].get(pid, zero), field.name))
            for pid, now in after[1].items()
        )
        / seconds
        for field in fields(Process)
    }
    rates["cpu"] *= 1000
    rss, pss = (total(after[1], "smaps_rollup", key, proc) * 1024 / MB for key in ("Rss", "Pss"))
    threads = total(after[1], "status", "Threads", proc)
    return Usage(rss=rss, pss=pss, threads=threads, **rates)


def total(pids: Iterable[int], file: str, key: str, proc: Path = PROC) -> int:
    """Return the sum of a value over processes; one that has just ended counts nothing."""
    values = []
    for pid in pids:
        with suppress(OSError, KeyError):  # a zombie has no memory
            values.append(int(fields_of(proc / str(pid) / file)[key].split()[0]))
    return sum(values)


def ratios(runs: Sequence[Usage], base: Sequence[Usage]) -> list[float]:
    """Return the CPU of each run by that of the other program in the same round."""
    return [mine.cpu / theirs.cpu for mine, theirs in zip(runs, base, strict=False)]
