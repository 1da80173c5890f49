"""Linux's /proc and /sys as files: kept open, read whole, from wherever the host's tree is mounted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CHUNK = 1 << 16
MOST = 1 << 24


class KeptFile:
    """
    A small file of /proc or /sys that stays open: one pread a reading instead of open, read and close.

    Raises OSError from the constructor and from `read`.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        """Open `path`."""
        self.path = path
        self._fd = -1  # for __del__, where the next line fails
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> bytes:
        """Return the whole content as it is now, at most 16 MiB; the kernel hands out some files by the page."""
        data = os.pread(self._fd, CHUNK, 0)
        while len(data) < MOST and (more := os.pread(self._fd, CHUNK, len(data))):
            data += more
        return data

    def parse(self, parser: Callable[[bytes], T]) -> T:
        """Return what `parser` makes of the content; raise OSError where that is not as the kernel writes it."""
        data = self.read()
        try:
            return parser(data)
        except (ValueError, LookupError, ArithmeticError) as problem:
            raise OSError(f"{self.path} is not as Linux writes it: {problem!r}") from problem

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        """Close the file of a reader that was dropped."""
        self.close()


def boot_time(proc: Path) -> int | None:
    """Return when the machine booted (ns since the epoch), or None; read it once: it moves with the clock."""
    try:
        for line in (proc / "stat").read_bytes().splitlines():
            if line.startswith(b"btime "):
                return int(line.split()[1]) * 1_000_000_000
    except (OSError, ValueError, IndexError):
        pass
    return None
