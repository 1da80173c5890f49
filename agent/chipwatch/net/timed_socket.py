"""A socket for http.client that limits the time and the bytes of a whole answer, with its headers."""

from __future__ import annotations

import io
import time
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from _typeshed import WriteableBuffer


class TooLarge(Exception):
    """The answer has more bytes than are allowed."""


class _Reader(io.RawIOBase):
    """Reads until a deadline. A socket's own timeout begins again with each byte."""

    def __init__(self, timed: TimedSocket) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        return self._timed.recv_into(buffer)


class TimedSocket:
    """A socket with only the methods that http.client uses."""

    def __init__(self, sock: socket.socket, deadline: float, *, pause: float = inf, max_bytes: float = inf) -> None:
        """Let the answer take until `deadline` (monotonic seconds), and each wait in it at most `pause` seconds."""
        self._socket, self._deadline, self._pause, self._left = sock, deadline, pause, max_bytes

    def sendall(self, data: bytes) -> None:
        """Send all of `data`; raise TimeoutError."""
        self._socket.settimeout(self._wait())
        self._socket.sendall(data)

    def recv_into(self, buffer: WriteableBuffer) -> int:
        """Receive into `buffer` and return the number of bytes; raise TimeoutError or TooLarge."""
        self._socket.settimeout(self._wait())
        count = self._socket.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise TooLarge
        return count

    def makefile(self, *_: object) -> io.BufferedReader:
        """Return a file from which the answer is read."""
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Do nothing, since http.client calls it before the answer is read; the caller closes the socket later."""

    def _wait(self) -> float:
        return min(self._pause, left(self._deadline))


def left(deadline: float) -> float:
    """Return the seconds until `deadline` (monotonic seconds); raise TimeoutError if it has passed."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds
