"""Finds the processes that use an accelerator by its open device file, since some drivers list no processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

REFRESH: Final = 60.0
"""Seconds after which all processes are searched again. In between, only new processes and known users are."""
MAX_FILES: Final = 4096
"""Most open files of a process that are read; a training process has a few hundred."""


class OpenDevices:
    """Finds the processes that have a device file open. Only root sees the files of other users' processes."""

    def __init__(self, proc: Path, pattern: str) -> None:
        """Look for device files whose whole path matches `pattern`."""
        self._proc, self._pattern = proc, re.compile(pattern)
        self._known: set[int] = set()
        self._seen: set[int] = set()
        self._due = float("-inf")

    def by_process(self) -> dict[int, set[str]] | None:
        """Return the device files that each process has open; None if other users' files cannot be seen."""
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
    """Yield the number and target of each open file of a process; none if it has ended or may not be read."""
    folder = f"{proc}/{pid}/fd"
    try:
        names = os.listdir(folder)[:MAX_FILES]  # noqa: PTH208  # no Path for each of a thousand files
    except OSError:
        return
    for name in names:
        with suppress(OSError):  # the file was closed in the meantime
            yield name, os.readlink(f"{folder}/{name}")  # noqa: PTH115  # the result may not be a path
