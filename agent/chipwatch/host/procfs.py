"""Reads files of Linux's /proc and /sys, some of which stay open between readings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from functools import partial
from os import pread
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
from typing import Any, Generic, Protocol, TypeVar

from chipwatch.base.system import NO_WAIT

T = TypeVar("T")
CHUNK = 1 << 16
MAX_BYTES = 1 << 24
PAGE = 1 << 12
RECORD = 1 << 11
"""More bytes than one record has in any file that is read here, except the table of mounts."""
LIMIT = getrlimit(RLIMIT_NOFILE)[0]
MAX_OPEN = 512 if LIMIT == RLIM_INFINITY else min(512, LIMIT // 2)
"""Most files of processes that stay open, of all readers; an agent may usually open 1024 files."""
_OPEN: set[int] = set()
"""The descriptors of these files."""
MAX_SOCKETS = 1 << 20
"""Most bytes that are read of a table of sockets, which is about 7,000 sockets."""
LONGEST = 19
"""Digits of the largest number of 63 bits; drivers set all 64 bits if they have no number."""


class Closes(Protocol):
    """Anything with a method `close`."""

    def close(self) -> None:
        """Close it."""


class OpenFile:
    """A file that stays open until `close`, or until this object is deleted; the constructor raises OSError."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1  # for __del__ if the next line raises
        self._fd = os.open(path, os.O_RDONLY | NO_WAIT)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class KeptFile(OpenFile):
    """A small file that stays open, so that a reading is one system call. Reading raises OSError."""

    __slots__ = ()

    def read(self, record: int = RECORD) -> bytes:
        """
        Return the current content, at most 16 MiB.

        The kernel may return a page at a time, and a page ends early only if the next record does not fit. No record
        has more than `record` bytes, so a page with more room is the last one (seq_read_iter in fs/seq_file.c).
        With PAGE as `record`, it is read until nothing comes.
        """
        data = pread(self._fd, CHUNK, 0)
        if len(data) <= PAGE - record:
            return data
        while len(data) < MAX_BYTES and (more := pread(self._fd, CHUNK, len(data))):
            data += more
        return data

    def parse(self, parser: Callable[[bytes], T]) -> T:
        """Return the content, parsed by `parser`; raise OSError if it has an unknown format."""
        data = self.read()
        try:
            return parser(data)
        except (ValueError, LookupError, ArithmeticError) as problem:
            raise OSError(f"{self.path} has an unknown format: {problem!r}") from problem


class ProcessFiles:
    """Reads small files of processes, which stay open: to open a file takes longer than to read it."""

    def __init__(self, proc: Path) -> None:
        """Take the host's /proc."""
        self._proc = str(proc)
        self._open: dict[tuple[int, str], int] = {}
        """The descriptors by pid and name."""

    def again(self, pid: int, name: str) -> bytes | None:
        """Return the start of a file that stayed open: its process is the same as before. Else None. Raise OSError."""
        if (fd := self._open.get((pid, name))) is None:
            return None
        try:
            return pread(fd, PAGE, 0)
        except ProcessLookupError:  # the process has ended, and another one may have its pid
            self.keep({of for of, _ in self._open} - {pid})
        return None

    def read(self, pid: int, name: str, stays: bool = True) -> bytes:  # noqa: FBT001, FBT002  # called often
        """Return the start of a file, at most a page; with `stays`, it stays open. Raise OSError."""
        if (data := self.again(pid, name)) is not None:
            return data
        path = f"{self._proc}/{pid}/{name}"
        if not stays or len(_OPEN) >= MAX_OPEN:
            return read_small(path)
        fd = self._open[pid, name] = os.open(path, os.O_RDONLY | NO_WAIT)
        _OPEN.add(fd)
        return pread(fd, PAGE, 0)

    def keep(self, pids: Container[int]) -> None:
        """Close the files of all processes but these."""
        for key in [key for key in self._open if key[0] not in pids]:
            fd = self._open.pop(key)
            _OPEN.discard(fd)
            os.close(fd)

    def close(self) -> None:
        """Close all files; safe to call twice."""
        self.keep(())

    def __del__(self) -> None:
        self.close()


class SystemSource(Generic[T]):
    """A source that is a file of /proc on Linux, and psutil on other systems."""

    def __init__(self, path: Path, parse: Callable[..., T], other: Callable[..., T]) -> None:
        """Call `parse` with the file's content, or `other` with the module psutil, as last argument; raise OSError."""
        self.path, self._parse, self._other = path, parse, other
        self.psutil: Any = None
        self._file = KeptFile(path) if sys.platform == "linux" else None
        if not self._file:
            import psutil

            self.psutil = psutil

    def read(self, *how: Any) -> T:
        """Return a new reading; `how` are first arguments for `parse` or `other`. Raise OSError."""
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
    """Return the whole number in a file of /sys; None if it cannot be read, or has something else."""
    return count(read(path, PAGE))


def count(data: str | bytes) -> int | None:
    """Return `data` as a whole number from 0 that fits into 63 bits, or None."""
    data = data.strip()
    value = int(data) if data.isascii() and data.isdigit() and len(data) <= LONGEST else None
    return value if value is None or value < 1 << 63 else None


def text(path: Path) -> str:
    """Return the text of a file, at most 16 MiB, with escapes for bytes that are not UTF-8; "" if unreadable."""
    with suppress(OSError):
        return KeptFile(path).read(PAGE).decode(errors="backslashreplace").strip()
    return ""


def field(lines: str, key: str) -> str:
    """Return the rest of the line that begins with `key`, or ""."""
    return f"\n{lines}".partition(f"\n{key}")[2].partition("\n")[0].strip()


def status_of(proc: Path, pid: int | str, key: str) -> str:
    """Return the rest of the line of /proc/PID/status that begins with `key`, or ""."""
    return field(text(proc / str(pid) / "status"), key)


def link(path: str | Path) -> str:
    """Return the target of a link, which may be something else than a path; "" if unreadable."""
    try:
        return os.readlink(path)  # noqa: PTH115  # an inode or a pid is not a path
    except OSError:
        return ""


def tcp_sockets(network: str) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the name of the table, and the fields, of each TCP socket in a folder net/ of /proc."""
    for name in "tcp", "tcp6":
        try:
            with Path(network, name).open("rb") as file:
                lines = file.read(MAX_SOCKETS).splitlines()[1:]
        except OSError:
            continue
        yield from ((name, fields) for fields in map(bytes.split, lines) if len(fields) > 9)


def close_all(*parts: Closes | None) -> None:
    """Close the parts that are not None."""
    for part in parts:
        if part:
            part.close()


def open_kept(path: Path) -> KeptFile | None:
    """Return the open file, or None if it cannot be opened."""
    with suppress(OSError):
        return KeptFile(path)
    return None


def boot_time(proc: Path) -> int | None:
    """Return the time of the boot (ns since the epoch), or None; the kernel shifts it when the clock is set."""
    seconds = count(field(text(proc / "stat"), "btime "))
    return seconds and seconds * 1_000_000_000


def epoch(proc: Path, began: float) -> int | None:
    """Return a start time, given in clock ticks after the boot, in ns since the epoch; None if unknown."""
    boot = boot_time(proc)
    return boot and boot + int(began) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
