"""A socket for http.client that limits time and bytes of the whole answer, including its headers."""

from __future__ import annotations

import io
import time
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from _typeshed import WriteableBuffer


class TooLarge(Exception):
    """The answer has more bytes than allowed."""


class _Reader(io.RawIOBase):
    """Reads until the deadline; a socket's own timeout would restart with each byte."""

    def __init__(self, timed: TimedSocket) -> None:
        self._timed = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        return self._timed.recv_into(buffer)


class TimedSocket:
    """The methods of a socket that http.client uses."""

    def __init__(self, sock: socket.socket, deadline: float, *, pause: float = inf, max_bytes: float = inf) -> None:
        """Wait until `deadline` (monotonic seconds), at most `pause` seconds for each part."""
        self._socket, self._deadline, self._pause, self._left = sock, deadline, pause, max_bytes

    def sendall(self, data: bytes) -> None:
        """Send all; raise TimeoutError."""
        self._socket.settimeout(self._wait())
        self._socket.sendall(data)

    def recv_into(self, buffer: WriteableBuffer) -> int:
        """Return the number of received bytes; raise TimeoutError or TooLarge."""
        self._socket.settimeout(self._wait())
        count = self._socket.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise TooLarge
        return count

    def makefile(self, *_: object) -> io.BufferedReader:
        """Return the answer as a file."""
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Do nothing: http.client closes the socket before the answer is read; the caller closes it later."""

    def _wait(self) -> float:
        return min(self._pause, left(self._deadline))


def left(deadline: float) -> float:
    """Return the seconds until `deadline` (monotonic seconds); raise TimeoutError."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds
