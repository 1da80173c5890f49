"""Reads a pipe without waiting and splits the data into lines."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

CHUNK: Final = 1 << 16
"""Bytes of one read."""
MAX_READ: Final = 4 << 20
"""Bytes read in one tick; the rest stays in the pipe, and the writer waits."""
MAX_LINE: Final = 1 << 20
"""Bytes of one line; the longest line of a known tool has about 10 kB."""
CLOSED: Final = "closed"


class LineSplitter:
    """Splits bytes into lines; skips blank lines and lines that are too long."""

    what = "a line"
    """The name of the skipped data in messages."""

    def __init__(self, report: Callable[[str], None], max_size: int = MAX_LINE) -> None:
        """Report lines longer than `max_size` bytes."""
        self._report, self._max_size = report, max_size
        self._line: list[bytes] = []
        self._size = 0
        self._skipping = False

    def split(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that end in `data`."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield from self._end_line()
        self._add(rest)

    @property
    def is_within(self) -> bool:
        """True if a line has begun and not ended."""
        return bool(self._line or self._skipping)

    def wait_ms(self) -> int:
        """Return the milliseconds to wait for more data."""
        return 0

    def take_rest(self) -> bytes:
        """Return the unfinished line and forget it; b"" if there is none or it was too long."""
        rest = b"" if self._skipping else b"".join(self._line)
        self._reset(skipping=False)
        return rest

    def _add(self, piece: bytes) -> None:
        if self._skipping or not piece:
            return
        self._size += len(piece)
        if self._size > self._max_size:
            self._report(f"{self.what} above {self._max_size >> 20} MiB was skipped")
            self._reset(skipping=True)
        else:
            self._line.append(piece)

    def _end_line(self) -> Iterator[bytes]:
        line = self.take_rest()
        if line.strip():
            yield line

    def _reset(self, *, skipping: bool) -> None:
        self._line, self._size, self._skipping = [], 0, skipping


class Pipe:
    """
    The reading end of a pipe, or of a file.

    It polls before each read, since the descriptor may be blocking: other processes share its mode.
    """

    def __init__(self, fd: int, *, size: int = 0) -> None:
        """Read from `fd`, which the caller closes; ask the kernel to make the pipe hold `size` bytes."""
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.ended: str | None = None
        """None while it is open, CLOSED at its end, else the error."""
        if size:
            import fcntl  # noqa: PLC0415  # not on Windows

            with suppress(OSError, AttributeError):  # no pipe, more than this user may have, or not Linux
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)

    def chunks(self, limit: int = MAX_READ, wait: Callable[[], int] = lambda: 0) -> Iterator[bytes]:
        """Yield available data, up to about `limit` bytes; wait for more as many milliseconds as `wait` returns."""
        while limit > 0 and self.ended is None and self.is_readable(wait()):
            try:
                data = os.read(self._fd, CHUNK)
            except BlockingIOError:
                return
            except OSError as error:
                self.ended = error.strerror or str(error)
                return
            if not data:
                self.ended = CLOSED
                return
            limit -= len(data)
            yield data

    def is_readable(self, milliseconds: int = 0) -> bool:
        """Return whether there are data, or the end, now or within so many milliseconds."""
        return bool(self._poll.poll(milliseconds))
