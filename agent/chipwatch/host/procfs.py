"""Files of Linux's /proc and /sys that stay open between readings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from os import pread
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from chipwatch.base.system import NO_WAIT

T = TypeVar("T")
CHUNK = 1 << 16
MAX_BYTES = 1 << 24
PAGE = 1 << 12
RECORD = 1 << 11
"""More bytes than any record has that is not of a table of mounts."""
MAX_SOCKETS = 1 << 20
"""Bytes that are read of a table of sockets: about 7,000 of them."""
LONGEST = 19
"""Digits of the largest count of 63 bits; drivers set all 64 bits where they have no count."""


class Closes(Protocol):
    """Anything that is closed."""

    def close(self) -> None:
        """Close it."""


class OpenFile:
    """A file that stays open until `close`, or until its reader is dropped; the constructor raises OSError."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1  # for __del__, if the next line fails
        self._fd = os.open(path, os.O_RDONLY | NO_WAIT)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class KeptFile(OpenFile):
    """A small file: a reading takes one pread instead of open, read and close; it raises OSError."""

    __slots__ = ()

    def read(self, record: int = PAGE) -> bytes:
        """
        Return the current content, at most 16 MiB; the kernel returns some files page by page.

        A page ends early only where the next record does not fit, and none has more than `record` bytes: so a shorter
        answer is the whole file (seq_read_iter in fs/seq_file.c of Linux).
        """
        data = pread(self._fd, CHUNK, 0)
        if len(data) <= PAGE - record:
            return data
        while len(data) < MAX_BYTES and (more := pread(self._fd, CHUNK, len(data))):
            data += more
        return data

    def parse(self, parser: Callable[[bytes], T]) -> T:
        """Return the parsed content; raise OSError if it is not as the kernel writes it."""
        data = self.read(RECORD)
        try:
            return parser(data)
        except (ValueError, LookupError, ArithmeticError) as problem:
            raise OSError(f"{self.path} has an unknown format: {problem!r}") from problem


class SystemSource(Generic[T]):
    """A reading of a file of /proc on Linux, and of psutil elsewhere."""

    def __init__(self, path: Path, parse: Callable[..., T], other: Callable[..., T]) -> None:
        """`parse` takes the content of the file last, `other` the module psutil; raise OSError without the file."""
        self.path, self._parse, self._other = path, parse, other
        self.psutil: Any = None
        self._file = KeptFile(path) if sys.platform == "linux" else None
        if not self._file:
            import psutil

            self.psutil = psutil

    def read(self, *how: Any) -> T:
        """Return the reading now, with further arguments for `parse` and `other`; raise OSError."""
        if self._file:
            return self._file.parse(partial(self._parse, *how) if how else self._parse)
        return self._other(*how, self.psutil)

    def close(self) -> None:
        """Close the file."""
        close_all(self._file)

    def __str__(self) -> str:
        return str(self.path) if self._file else "psutil"


def read_small(path: str | Path, size: int = PAGE) -> bytes:
    """Return the start of a file of /sys or /proc, at most `size` bytes; raise OSError."""
    fd = os.open(path, os.O_RDONLY | NO_WAIT)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def read(path: str | Path, size: int = 1 << 14) -> bytes:
    """Return the start of a file, at most `size` bytes, or b"" if it cannot be read."""
    try:
        return read_small(path, size)
    except OSError:
        return b""


def number(path: str | Path) -> int | None:
    """Return the count in a file of /sys; None if it cannot be read or holds none."""
    return count(read(path, PAGE))


def count(data: str | bytes) -> int | None:
    """Return `data` as a count that fits into 63 bits, or None."""
    data = data.strip()
    value = int(data) if data.isascii() and data.isdigit() and len(data) <= LONGEST else None
    return value if value is None or value < 1 << 63 else None


def text(path: Path) -> str:
    """Return the content of a file with escapes for odd bytes, at most 16 MiB, or "" if it cannot be read."""
    try:
        return KeptFile(path).read().decode(errors="backslashreplace").strip()
    except OSError:
        return ""


def link(path: str | Path) -> str:
    """Return the target of a link, which need not be a path, or "" if it cannot be read."""
    try:
        return os.readlink(path)  # noqa: PTH115  # an inode or a pid is not a path
    except OSError:
        return ""


def tcp_sockets(network: str) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the table and the fields of each TCP socket in a folder net/ of /proc; the tables may be cut."""
    for name in "tcp", "tcp6":
        try:
            with Path(network, name).open("rb") as file:
                lines = file.read(MAX_SOCKETS).splitlines()[1:]
        except OSError:
            continue
        yield from ((name, fields) for fields in map(bytes.split, lines) if len(fields) > 9)


def close_all(*parts: Closes | None) -> None:
    """Close what there is; each part is safe to close twice."""
    for part in parts:
        if part:
            part.close()


def open_kept(path: Path) -> KeptFile | None:
    """Return the file, or None if it cannot be opened."""
    try:
        return KeptFile(path)
    except OSError:
        return None


def boot_time(proc: Path) -> int | None:
    """Return the boot time (ns since the epoch), or None; the kernel shifts it when the clock is set."""
    try:
        for line in (proc / "stat").read_bytes().splitlines():
            if line.startswith(b"btime "):
                return int(line.split()[1]) * 1_000_000_000
    except (OSError, ValueError, IndexError):
        pass
    return None


def epoch(proc: Path, began: float) -> int | None:
    """Return a start time in clock ticks after the boot as ns since the epoch; None if the boot is not known."""
    boot = boot_time(proc)
    return boot and boot + int(began) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
