"""Reads the kernel's log record by record: /dev/kmsg (Documentation/ABI/testing/dev-kmsg of Linux)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chipwatch.host.procfs import OpenFile

MAX_RECORD: Final = 8192
"""Bytes of the longest record; the kernel refuses a smaller buffer (CONSOLE_EXT_LOG_MAX before 6.4)."""
MAX_RECORDS: Final = 50_000
"""Most records of one reading; the next reading takes the rest."""
KERNEL: Final = 8
"""Priorities below this belong to messages of the kernel; programs have written the others."""


class KernelLog(OpenFile):
    """An open log whose `read` yields each record once. Set `next` to skip records that an earlier run has read."""

    def __init__(self, path: Path) -> None:
        """Open the log at its oldest record; raise OSError."""
        super().__init__(path)
        self.next: int | None = None
        """Number of the next record to read; None for any."""
        self.first: int | None = None
        """Number of the oldest record in the log; None before the first was read."""
        self.lost = 0
        """Number of records that were overwritten before they were read."""
        self.is_drained = False
        """True if the last reading reached the end of the log."""

    def read(self) -> Iterator[tuple[int, bytes]]:
        """
        Yield (time, text) of the kernel's messages since the last reading, at most MAX_RECORDS; raise OSError.

        The time is in microseconds since the boot, on a clock that stops during suspend. Further lines of a text name
        the device.
        """
        for _ in range(MAX_RECORDS):
            try:
                record = os.read(self._fd, MAX_RECORD)
            except BlockingIOError:
                record = b""
            except OSError as problem:
                if problem.errno != errno.EPIPE:
                    raise
                continue  # the record was overwritten; the next call returns the oldest one that is left
            if not record:
                self.is_drained = True
                return
            head, _, text = record.partition(b";")
            try:
                priority, number, time = map(int, head.split(b",", 4)[:3])
            except ValueError as problem:
                raise OSError(f"{self.path} is not a log of the kernel") from problem
            self.first = number if self.first is None else self.first
            if self.next is not None and number < self.next:
                continue
            self.lost += number - (number if self.next is None else self.next)
            self.next = number + 1
            if priority < KERNEL:
                yield time, text
        self.is_drained = False
