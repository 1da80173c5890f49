"""A socket for http.client whose answer is bounded in time and in bytes, its head as well as its body."""

from __future__ import annotations

import io
import socket
import time
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class Endless(Exception):
    """The answer has more bytes than it may."""


class _Reader(io.RawIOBase):
    """What a socket says, until the deadline: a time-out of the socket itself begins anew with each byte."""

    def __init__(self, timed: TimedSocket) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        return self._timed.recv_into(buffer)


class TimedSocket:
    """As much of a socket as http.client uses."""

    def __init__(self, sock: socket.socket, deadline: float, *, pause: float = inf, most: float = inf) -> None:
        """Wait until `deadline` (monotonic seconds), no more than `pause` for a part; take at most `most` bytes."""
        self._socket, self._deadline, self._pause, self._left = sock, deadline, pause, most

    def sendall(self, data: bytes) -> None:
        """Send all; raise TimeoutError."""
        self._socket.settimeout(self._wait())
        self._socket.sendall(data)

    def recv_into(self, buffer: WriteableBuffer) -> int:
        """Return how many bytes were received; raise TimeoutError or Endless."""
        self._socket.settimeout(self._wait())
        count = self._socket.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise Endless
        return count

    def makefile(self, *_: object) -> io.BufferedReader:
        """Return the answer as a file."""
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Leave it to who opened it: http.client closes as soon as it knows that the answer ends the connection."""

    def _wait(self) -> float:
        return min(self._pause, left(self._deadline))


def left(deadline: float) -> float:
    """Return the seconds until `deadline` (monotonic seconds); raise TimeoutError."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds
