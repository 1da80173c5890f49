"""Records from a file descriptor, as far as they are there: without a thread, and all but without waiting."""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from agent.collectors.neuron.trouble import Trouble

LONGEST: Final = 16 << 20
"""Bytes of one record; the largest that was seen has 445 kB."""
CHUNK: Final = 1 << 18
MOST: Final = 32 << 20
"""Bytes that are read in one tick; the rest waits in the pipe, and so does whoever writes it."""
PIPE: Final = 1 << 20
"""Bytes that a pipe is asked to hold, so that a record need not wait for us; what Linux grants to anybody."""
BREATH: Final = 20
"""Milliseconds that a writer gets to go on with a record for which the pipe was too small."""
CLOSED: Final = "closed"


class Splitter:
    """
    Cuts bytes into records: one on a line, or one from `{` to `}` where each has a line for itself.

    The latter is for records that were printed for people. A record that is too long is passed over.
    """

    def __init__(self, trouble: Trouble, longest: int = LONGEST) -> None:
        """Note in `trouble` what is longer than `longest` bytes."""
        self._trouble, self._longest = trouble, longest
        self._line: list[bytes] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._skipping = False

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Yield the records that end in `data`; never a blank one."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield from self._end_line()
        self._add(rest)

    @property
    def within(self) -> bool:
        """Whether a record has begun and not ended."""
        return bool(self._line or self._lines or self._skipping)

    def rest(self) -> bytes:
        """Return what has not ended, and forget it; empty if all has, `{` if it was passed over."""
        rest = b"{" if self._skipping else b"\n".join([*self._lines, b"".join(self._line)]).strip()
        self._line, self._lines, self._size, self._skipping = [], [], 0, False
        return rest

    def _add(self, piece: bytes) -> None:
        if self._skipping or not piece:
            return
        self._size += len(piece)
        if self._size > self._longest:
            self._trouble.add(f"a record above {self._longest >> 20} MiB was passed over")
            self._line, self._lines, self._size, self._skipping = [], [], 0, True
        else:
            self._line.append(piece)

    def _end_line(self) -> Iterator[bytes]:
        line, self._line = b"".join(self._line), []
        if self._skipping:
            self._skipping = False
        elif line.rstrip() == b"{" or (self._lines and not line.startswith(b'{"')):
            if line.startswith(b"{"):
                yield from self._end_record()
            self._lines.append(line)
            if line.rstrip() == b"}":
                yield from self._end_record()
        else:
            yield from self._end_record()
            self._size = 0
            if line.strip():
                yield line

    def _end_record(self) -> Iterator[bytes]:
        if self._lines:
            record, self._lines, self._size = b"\n".join(self._lines), [], 0
            yield record


class Stream:
    """One end of a pipe. Whether something is there is asked first, so its mode, which others share, stays as it is."""

    def __init__(self, fd: int, trouble: Trouble) -> None:
        """Read from `fd`, which stays the caller's."""
        self._fd, self._splitter = fd, Splitter(trouble)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.ended: str | None = None
        """How it ended, or None."""
        self.unfinished = False
        """Whether it ended with something that had no end of its own, which was then the last record."""
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):  # no pipe, or too much for this user
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE)

    def chunks(self, most: int) -> Iterator[bytes]:
        """Yield the bytes that are there, about `most` of them."""
        left = most
        while left > 0 and self.ended is None and self.waits(BREATH if self._splitter.within else 0):
            try:
                data = os.read(self._fd, CHUNK)
            except BlockingIOError:
                return
            except OSError as problem:
                self.ended = problem.strerror or str(problem)
                return
            if not data:
                self.ended = CLOSED
                return
            left -= len(data)
            yield data

    def records(self) -> Iterator[bytes]:
        """Yield the records that are there; at the end also one that was not finished."""
        for data in self.chunks(MOST):
            yield from self._splitter.cut(data)
        if self.ended is not None and (rest := self._splitter.rest()):
            self.unfinished = True
            yield rest

    def waits(self, milliseconds: int = 0) -> bool:
        """Tell whether there is something to read, be it the end, or will be in so many milliseconds."""
        return bool(self._poll.poll(milliseconds))
