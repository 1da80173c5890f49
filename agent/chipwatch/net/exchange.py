"""
One request to a server and its answer, in HTTP/1.1 (RFC 9112), within limits of time and bytes.

The standard library's client reads headers with its parser of mail: that costs five times as much, and 2 MB.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

MAX_LINE: Final = 1 << 16
"""Most bytes of a line."""
MAX_HEADERS: Final = 100
MAX_INTERIM: Final = 20
"""Most interim answers (status 1xx) to a request."""
SWITCHING: Final = 101
CHUNK: Final = 1 << 16
HEX: Final = "0123456789abcdefABCDEF"
"""The digits of a chunk's size: `int` would take signs, 0x and underscores too."""


class TooLarge(Exception):
    """The answer has more bytes than are allowed."""


class NotHttp(Exception):
    """The answer is not valid HTTP."""


class BadStatusLine(NotHttp):
    """The first line is not that of an answer in HTTP/1."""


class Incomplete(NotHttp):
    """The answer ends too early."""


class Head(NamedTuple):
    """The part of an answer before its body."""

    version: str
    """Such as HTTP/1.1."""
    status: int
    headers: Mapping[str, str]
    """The headers by name in lower case, up to one that is malformed; of repeated ones, the first."""

    @property
    def is_bare(self) -> bool:
        """True if no body can follow."""
        return self.status in (204, 304)

    @property
    def is_last(self) -> bool:
        """True if the server ends the connection after this answer."""
        options = self.headers.get("connection", "").lower()
        if "close" in options or (self.version == "HTTP/1.0" and "keep-alive" not in options):
            return True
        return not (self.is_bare or {"transfer-encoding", "content-length"} & self.headers.keys())


class Exchange:
    """Sends a request over a socket, and reads the answer. All methods raise OSError."""

    def __init__(
        self, sock: socket.socket, host: str, deadline: float, *, pause: float = inf, max_bytes: float = inf
    ) -> None:
        """
        Talk to `host`, as `host_of` returns it.

        Let the answer take until `deadline` (monotonic seconds), and each wait in it at most `pause` seconds.
        """
        self._socket, self._host, self._deadline, self._pause, self._left = sock, host, deadline, pause, max_bytes
        self._received = bytearray()

    def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None) -> Head:
        """
        Send a request; return the head of the final answer. Interim answers are skipped (RFC 9110, section 15.2).

        Raise TimeoutError, TooLarge, NotHttp, or ValueError for a request that has forbidden characters.
        """
        own, given = {"Host": self._host, "Accept-Encoding": "identity"}, {name.lower() for name in headers}
        if body is not None or method in ("POST", "PUT"):
            own["Content-Length"] = f"{len(body or b'')}"
        every = {**{name: value for name, value in own.items() if name.lower() not in given}, **headers}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in every.items())]
        text = "\r\n".join(lines)
        if any(text.count(end) >= len(lines) for end in "\r\n") or "\0" in text or lines[0].count(" ") != 2:
            raise ValueError("a request may have no line feed or other control character in a header")
        rest = memoryview(f"{text}\r\n\r\n".encode("latin-1") + (body or b""))
        while rest:  # by TLS, each record that sendall sends may take the whole time
            self._socket.settimeout(self._wait())
            rest = rest[self._socket.send(rest) :]
        for _ in range(MAX_INTERIM + 1):
            head = self._head()
            if head.status >= 200:
                return head
            if head.status == SWITCHING:  # another protocol follows, which nobody asked for
                raise BadStatusLine
        raise NotHttp

    def body(self, head: Head, most: float = inf) -> bytes:
        """
        Return the body of the answer to any request but HEAD, at most `most` bytes of it.

        Raise TimeoutError, TooLarge, or NotHttp.
        """
        if head.is_bare:
            return b""
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks(most)
        length = head.headers.get("content-length", "")
        if length.isascii() and length.isdecimal():
            return self._take(min(float(length), most))  # int refuses 5000 digits
        while len(self._received) < most and self._receive():
            pass
        return self._take(min(len(self._received), most))

    def _head(self) -> Head:
        version, _, rest = self._line(is_first=True).partition(" ")
        code, headers, is_sound = rest.partition(" ")[0], dict[str, str](), True
        if not (version.startswith("HTTP/1.") and len(code) == 3 and code.isascii() and code.isdecimal()):
            raise BadStatusLine
        for _ in range(MAX_HEADERS + 1):
            if not (line := self._line()):
                return Head(version, int(code), headers)
            name, colon, value = line.partition(":")
            name, value = name.lower(), value.strip()
            if not colon or not name.isascii() or " " in name:
                is_sound = is_sound and line[0] in " \t"  # the value before goes on
            elif is_sound and headers.setdefault(name, value) != value and name == "content-length":
                raise NotHttp
        raise NotHttp

    def _chunks(self, most: float) -> bytes:
        body = bytearray()
        while len(body) < most:
            digits = self._line().partition(";")[0].strip()
            if not digits or digits.strip(HEX):
                raise NotHttp
            if not (size := int(digits, 16)):
                while self._line():  # fields after the last chunk
                    pass
                break
            body += self._take(size)
            if self._line():
                raise NotHttp
        return bytes(body[: int(min(most, len(body)))])

    def _line(self, *, is_first: bool = False) -> str:
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > MAX_LINE:
                raise NotHttp
            if not self._receive():
                if is_first and not self._received:
                    raise ConnectionResetError("Remote end closed connection without response")
                raise Incomplete
        line = self._received[:end].rstrip(b"\r").decode("latin-1")
        del self._received[: end + 1]
        return line

    def _take(self, count: float) -> bytes:
        while len(self._received) < count:
            if not self._receive():
                raise Incomplete
        taken = bytes(self._received[: int(count)])
        del self._received[: int(count)]
        return taken

    def _receive(self) -> int:
        """Receive some bytes; return how many, 0 at the end."""
        self._socket.settimeout(self._wait())
        data = self._socket.recv(CHUNK)
        self._left -= len(data)
        if self._left < 0:
            raise TooLarge
        self._received += data
        return len(data)

    def _wait(self) -> float:
        return min(self._pause, left(self._deadline))


def left(deadline: float) -> float:
    """Return the seconds until `deadline` (monotonic seconds); raise TimeoutError if it has passed."""
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return seconds


def host_of(host: str, port: int, default: int = 80) -> str:
    """Return host and port as the header Host has them, without the `default` port."""
    name = f"[{host.partition('%')[0]}]" if ":" in host else host.encode("ascii" if host.isascii() else "idna").decode()
    return name if port == default else f"{name}:{port}"
