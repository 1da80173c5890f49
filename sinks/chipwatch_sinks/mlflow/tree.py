"""Reads the environments and programs of the watched processes, which may name an MLflow run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

MAX_PROCESSES: Final = 1000
"""Most processes that are read: the watched one and its descendants."""
MAX_ENVIRONMENT: Final = 1 << 20
"""Most bytes that are read of an environment; Linux allows 128 KiB for one variable."""
MAX_STAT: Final = 4096
PARENT: Final = 1
STARTED: Final = 19
"""Indexes of ppid and starttime among the fields of /proc/PID/stat after the name: proc_pid_stat(5)."""


class ProcessFacts(NamedTuple):
    """The environment and the programs of one process."""

    env: Mapping[str, str]
    programs: frozenset[str] = frozenset()
    """File names in its command line; for `-m package.module` also `module.py`."""


def started(proc: Path, pid: int) -> str:
    """Return when the process started, in clock ticks since boot, or ""; with the PID it identifies the process."""
    fields = _stat(proc / str(pid))
    return fields[STARTED] if fields else ""


def started_at(proc: Path, pid: int, now: int) -> int:
    """Return when the process started (ms since the epoch), or 0 if unknown; `now` is in ns."""
    try:
        up = float((proc / "uptime").read_text().split()[0])
        return int(now / 1e6 - 1000 * (up - int(started(proc, pid)) / os.sysconf("SC_CLK_TCK")))
    except (OSError, ValueError, IndexError):
        return 0


def processes(proc: Path, pid: int) -> Iterator[ProcessFacts]:
    """Yield the process and its descendants, parents first."""
    children: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for folder in proc.iterdir():
            if folder.name.isdecimal() and (fields := _stat(folder)):
                children.setdefault(fields[PARENT], []).append(folder.name)
    left = [str(pid)]
    for _ in range(MAX_PROCESSES):
        if not left:
            return
        left += children.get(left[0], ())
        folder = proc / left.pop(0)
        with contextlib.suppress(OSError):
            yield ProcessFacts(_environment(folder / "environ"), _programs(folder / "cmdline"))


def _stat(folder: Path) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; none if the process is gone."""
    try:
        with (folder / "stat").open("rb") as file:
            fields = file.read(MAX_STAT).rpartition(b") ")[2].decode("ascii", "replace").split()
    except OSError:
        return []
    return fields if len(fields) > STARTED else []


def _environment(file: Path) -> dict[str, str]:
    return {name: value for name, found, value in (pair.partition("=") for pair in _texts(file)) if found}


def _programs(file: Path) -> frozenset[str]:
    words = _texts(file)
    modules = (f"{module.rpartition('.')[2]}.py" for flag, module in pairwise(words) if flag == "-m")
    return frozenset(name for name in (*(Path(word).name for word in words), *modules) if name)


def _texts(file: Path) -> list[str]:
    """Return the texts of a file in which a zero byte ends each text; raise OSError."""
    with file.open("rb") as opened:
        return opened.read(MAX_ENVIRONMENT).decode(errors="replace").split("\0")
