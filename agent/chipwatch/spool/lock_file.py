"""The file beside a spool's database: it locks the spool, and has counts to compare the database with."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

try:
    import fcntl
except ImportError:  # Windows: nothing stops two agents that use one spool there
    fcntl = None  # type: ignore[assignment]

NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
NUMBERS: Final = Struct("<qqq")


class Busy(Exception):
    """Another running agent holds this spool."""


class Counts(NamedTuple):
    """The points that the database collected and has not yet sent, and the samples of the open window."""

    collected: int = 0
    unsent: int = 0
    samples: int = 0


def with_checksum(text: bytes) -> bytes:
    """Return `text` with its CRC-32 appended."""
    return b"%b%08x" % (text, zlib.crc32(text))


def verified(text: object) -> bytes | None:
    """Return `text` without the checksum that was appended, or None if the checksum is wrong."""
    return text[:-8] if isinstance(text, bytes) and with_checksum(text[:-8]) == text else None


class LockFile:
    """Locks a spool until it is closed. Its counts are not flushed to the disk, as those of the database are not."""

    def __init__(self, path: Path) -> None:
        """Lock the spool whose database is at `path`; raise Busy or OSError."""
        self._fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            counts = verified(os.read(self._fd, NUMBERS.size + 8))
        except BlockingIOError:
            os.close(self._fd)
            raise Busy(f"{path} is in use by another agent: give each its own --spool") from None
        except BaseException:
            os.close(self._fd)
            raise
        self.found = Counts(*NUMBERS.unpack(counts)) if counts else Counts()
        """The counts that the last run left."""
        self.counts = Counts()

    def add(self, change: Mapping[str, int]) -> None:
        """Add what a transaction added to the ledger."""
        collected, unsent, samples = self.counts
        fresh = change.get("collected", 0)
        self.write(Counts(collected + fresh, unsent + 2 * fresh - sum(change.values()), samples))

    def write(self, counts: Counts) -> None:
        """Replace the counts."""
        self.counts = counts
        with contextlib.suppress(OSError):
            os.lseek(self._fd, 0, os.SEEK_SET)
            os.write(self._fd, with_checksum(NUMBERS.pack(*counts)))

    def close(self) -> None:
        """Unlock; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
