"""A small HTTP/1.1 server for pages such as /metrics, with limits of connections, bytes and time."""

from __future__ import annotations

import contextlib
import logging
import random
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from chipwatch.base.side_thread import SIDE
from chipwatch.contract.errors import text_of
from chipwatch.net.address import listener

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_CONNECTIONS: Final = 64
MAX_HEAD: Final = 16_384
"""Most bytes of a request's first line and headers."""
MAX_DIGITS: Final = 18
"""Most digits of a Content-Length."""
REQUEST_SECONDS: Final = 10.0
"""Seconds for a TLS handshake and a whole request, and as many for the client to take the answer."""
IDLE_SECONDS: Final = 300.0
"""Seconds for which an idle connection is kept for the next request."""
MAX_ROUNDS: Final = 64
"""Rounds in which other connections are served before a slow answer must run."""
PAUSE: Final = 0.05
"""Seconds to wait if the system has no room for a new connection."""
CHUNK: Final = 65_536


class Request(NamedTuple):
    """A parsed request."""

    method: str
    path: str
    """The path without the query."""
    headers: Mapping[str, str]
    """The headers by name in lower case; the values of a repeated header are joined by commas."""
    peer: str = ""
    """Address of the client."""


class Response(NamedTuple):
    """An answer; the server adds its length."""

    status: int
    body: bytes
    headers: Sequence[tuple[str, str]] = (("Content-Type", "text/plain; charset=utf-8"),)


Answer = Callable[[Request], Response | Callable[[], Response]]
"""Function that answers a request: with a response, or with a slow function, which runs when no client waits."""


class BadRequest(Exception):
    """The request is malformed; its arguments are the status and the text of the answer."""


class _Connection:
    """A connection, with its request so far and the rest of its answer."""

    __slots__ = ("closing", "deadline", "idle", "out", "peer", "received", "secured", "sock")

    def __init__(self, sock: socket.socket, peer: str, deadline: float, *, secured: bool) -> None:
        self.sock, self.peer, self.deadline, self.secured = sock, peer, deadline, secured
        self.received, self.out = b"", memoryview(b"")
        self.closing = self.idle = False


class PageServer:
    """
    Answers GET and HEAD requests with what `answer` returns, which runs on the side thread.

    Between two slow answers, all other connections are served. A request that is too long or too slow ends its
    connection. A new connection above the limit ends the one that was idle longest.
    """

    def __init__(
        self,
        address: tuple[str, int],
        answer: Answer,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        *,
        connections: int = MAX_CONNECTIONS,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        """
        Listen at `address`, and answer from now on; raise OSError.

        `tls` returns the TLS context for a new connection, or None. A request may take `seconds`, and so may an answer.
        """
        self._answer, self._tls, self._connections, self._seconds = answer, tls, connections, seconds
        self._listener = listener(address, connections)
        self.host, self.port = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._open: dict[_Connection, None] = {}  # least recently used first
        self._later: dict[_Connection, tuple[Callable[[], Response], bool]] = {}
        self._bugs = set[type[Exception]]()
        self._rounds, self._lock = 0, threading.RLock()
        SIDE.add(self.turn, self._selector.fileno())

    def close(self) -> None:
        """Send the rest of each answer as far as its client has room, and stop listening; safe to call twice."""
        SIDE.remove(self.turn)
        with self._lock:
            for connection in [*self._open]:
                with contextlib.suppress(OSError):
                    connection.sock.send(connection.out)
                self._drop(connection)
            self._selector.close()
            self._listener.close()

    def turn(self) -> float | None:
        """Serve all connections that have something to read or room to write; return the seconds until one is late."""
        with self._lock:
            now = time.monotonic()
            for late in [connection for connection in self._open if connection.deadline <= now]:
                self._drop(late)
            events = self._selector.select(0) if self._listener.fileno() >= 0 else []
            for key, _ in events:
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data in self._open:
                    self._serve(key.data)
            self._rounds = self._rounds + 1 if events else MAX_ROUNDS
            if self._later and self._rounds >= MAX_ROUNDS:
                self._answer_one()
                self._rounds = 0
            return 0.0 if self._later else min((one.deadline - now for one in self._open), default=None)

    def _accept(self) -> None:
        try:
            sock, peer = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the client has gone
            return
        except OSError:  # no file descriptor is left
            time.sleep(PAUSE)
            return
        if len(self._open) >= self._connections:
            self._drop(next(iter(self._open)))
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context := self._tls():
            try:
                sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:
                sock.close()
                return
        connection = _Connection(sock, peer[0], time.monotonic() + self._seconds, secured=context is None)
        self._open[connection] = None
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def _drop(self, connection: _Connection) -> None:
        del self._open[connection]
        if self._later.pop(connection, None) is None:
            self._selector.unregister(connection.sock)
        connection.sock.close()

    def _answer_one(self) -> None:
        """Run one slow answer, of a random connection, so that none waits for ever."""
        connection = random.choice([*self._later])  # noqa: S311  # no secret
        answer, is_head = self._later.pop(connection)
        self._put(connection, self._survive(connection, answer), is_head=is_head)
        self._selector.register(connection.sock, selectors.EVENT_WRITE, connection)

    def _serve(self, connection: _Connection) -> None:
        """Serve a connection until it would block: receive and send at most once."""
        self._open[connection] = self._open.pop(connection)
        try:
            waits_for = self._advance(connection)
        except OSError as problem:
            waits_for = _waits_for(problem, connection)
        if connection in self._later:
            self._selector.unregister(connection.sock)
        elif waits_for:
            self._selector.modify(connection.sock, waits_for, connection)
        else:
            self._drop(connection)

    def _advance(self, connection: _Connection) -> int:
        """Receive and send once; return the event to wait for, 0 at the end. Raise OSError to wait, or if it fails."""
        if not connection.secured:
            connection.sock.do_handshake()  # type: ignore[attr-defined]
            connection.secured = True
        if not (connection.out or self._take_request(connection)):
            if not self._receive(connection):
                return 0
            if not self._take_request(connection):
                return selectors.EVENT_WRITE  # comes at once, since OpenSSL may have more
        if connection in self._later:
            return selectors.EVENT_WRITE
        connection.out = connection.out[connection.sock.send(connection.out[:CHUNK]) :]
        if connection.closing and not connection.out:
            return 0
        if connection.out or connection.received:
            return selectors.EVENT_WRITE
        connection.idle, connection.deadline = True, time.monotonic() + IDLE_SECONDS
        return selectors.EVENT_READ

    def _receive(self, connection: _Connection) -> bool:
        """Receive a part of a request; its time begins at the first byte. Return False if the client has ended."""
        data = connection.sock.recv(CHUNK)
        if connection.idle:
            connection.idle, connection.deadline = False, time.monotonic() + self._seconds
        connection.received += data
        return bool(data)

    def _take_request(self, connection: _Connection) -> bool:
        """Answer a request that has arrived; return False if its end has not."""
        connection.received = connection.received.lstrip(b"\r\n")
        head, end, rest = connection.received.partition(b"\r\n\r\n")
        if not end and len(head) <= MAX_HEAD:
            return False
        try:
            request, version = parse(head)
        except BadRequest as problem:
            connection.received, connection.closing = b"", True
            self._put(connection, _text(*problem.args), is_head=False)
            return True
        connection.received, is_head = rest, request.method == "HEAD"
        response = self._respond(connection, request, version)
        if isinstance(response, Response):
            self._put(connection, response, is_head=is_head)
        else:
            self._later[connection] = response, is_head
        return True

    def _put(self, connection: _Connection, response: Response, *, is_head: bool) -> None:
        connection.deadline = time.monotonic() + self._seconds
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in (("Content-Length", len(response.body)), *response.headers)]
        lines += ["Connection: close"] if connection.closing else []
        sent = "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if is_head else response.body)
        connection.out = memoryview(sent)

    def _respond(self, connection: _Connection, request: Request, version: str) -> Response | Callable[[], Response]:
        """Return the answer to a request, and decide whether the connection ends after it."""
        options = request.headers.get("connection", "").lower()
        has_body = {"content-length", "transfer-encoding"} & {*request.headers}
        is_old = version == "HTTP/1.0" and "keep-alive" not in options
        connection.closing = bool(has_body) or is_old or "close" in options
        if request.method not in ("GET", "HEAD"):
            refusal = _text(405, f"{request.method} is not allowed here, only GET and HEAD.")
            return refusal._replace(headers=(*refusal.headers, ("Allow", "GET, HEAD")))
        return self._survive(connection, partial(self._answer, request._replace(peer=connection.peer)))

    def _survive(self, connection: _Connection, answer: Callable[[], T]) -> T | Response:
        """Return what `answer` returns; after an exception, log it, and return an answer with status 500."""
        try:
            return answer()
        except Exception as bug:
            connection.closing = True
            level = logging.DEBUG if type(bug) in self._bugs else logging.ERROR
            self._bugs.add(type(bug))
            log.log(level, "port %s: cannot answer: %s", self.port, text_of(bug), exc_info=True)
            return _text(500, "This request met a bug; the agent's log says more.")


def _waits_for(problem: OSError, connection: _Connection) -> int:
    """Return the event that a connection waits for after `problem`, or 0 if it has failed; do not import ssl."""
    if isinstance(problem, BlockingIOError):
        return selectors.EVENT_WRITE if connection.out else selectors.EVENT_READ
    waits = {"SSLWantReadError": selectors.EVENT_READ, "SSLWantWriteError": selectors.EVENT_WRITE}
    return waits.get(type(problem).__name__, 0)


def _text(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode())


@lru_cache(maxsize=8)
def parse(head: bytes) -> tuple[Request, str]:
    """Return a request and its HTTP version; raise BadRequest. The cache helps, since a scraper repeats itself."""
    if len(head) > MAX_HEAD:
        raise BadRequest(431, f"A request may have {MAX_HEAD} bytes of headers.")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[0].isalpha() or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequest(400, "This is not an HTTP request.")
    method, target, version = words
    if "://" in target and target[0] != "/":  # the absolute form, which a server must accept: RFC 9112, 3.2.2
        target = f"/{target.partition('://')[2].partition('/')[2]}"
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400, "A header of this request is malformed.")
        key, value = name.lower(), value.strip()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal() and len(length) <= MAX_DIGITS):
        raise BadRequest(400, "The Content-Length of this request is malformed.")
    return Request(method, target.partition("?")[0], headers), version
