"""Finds the processes that have device files open, for accelerators whose drivers list no processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

REFRESH: Final = 60.0
"""Seconds between two looks at all processes; between these only those are read that are new or known to have one."""
MAX_FILES: Final = 4096
"""Open files of a process that are read; a training process has a few hundred."""


class OpenDevices:
    """Finds the processes that have device files open; the files of other users are seen by root only."""

    def __init__(self, proc: Path, pattern: str) -> None:
        """Look for device files whose whole path matches `pattern`."""
        self._proc, self._pattern = proc, re.compile(pattern)
        self._known: set[int] = set()
        self._seen: set[int] = set()
        self._due = float("-inf")

    def by_process(self) -> dict[int, set[str]] | None:
        """Return the device files of each process that has one, None without the right to see other users' files."""
        try:
            os.listdir(self._proc / "1/fd")  # noqa: PTH208  # faster than a Path for each
            listed = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}  # noqa: PTH208  # the same
        except OSError:
            return None
        now = time.monotonic()
        if now >= self._due:
            self._due, self._seen = now + REFRESH, set()
        files_of: dict[int, set[str]] = {}
        for pid in self._known & listed | listed - self._seen:
            if files := {file for _, file in open_files(self._proc, pid) if self._pattern.fullmatch(file)}:
                files_of[pid] = files
        self._known, self._seen = set(files_of), listed
        return files_of


def open_files(proc: Path | str, pid: int) -> Iterator[tuple[str, str]]:
    """Yield number and target of each file that a process has open; none once it has ended or without the right."""
    folder = f"{proc}/{pid}/fd"
    try:
        names = os.listdir(folder)[:MAX_FILES]  # noqa: PTH208  # no Path for each of a thousand files
    except OSError:
        return
    for name in names:
        with suppress(OSError):  # it was closed meanwhile
            yield name, os.readlink(f"{folder}/{name}")  # noqa: PTH115  # the result may not be a path
