"""A server that answers each request with bytes that a test chose, whatever these are."""

import itertools
import socketserver
import threading
from collections.abc import Callable, Iterable
from typing import Self


def http(status: int = 200, body: bytes = b"", *headers: str, length: int | None = None) -> bytes:
    """Return an answer; `length` is what it says of the length of its body, if that is a lie."""
    size = len(body) if length is None else length
    head = [f"HTTP/1.1 {status} Words", f"Content-Length: {size}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body


class RawServer:
    """A context manager; `url` is where it listens, `answers` what it gives, one a request, the last one for ever."""

    def __init__(self, answers: Iterable[bytes | Callable[[bytes], bytes | Iterable[bytes]]]) -> None:
        """Give `answers` one after the other; a function is given the request's body, and may return parts."""
        given = [*answers]
        self._answers = itertools.chain(given, itertools.repeat(given[-1]))
        self.requests: list[bytes] = []
        """The head of each request."""
        self.connections = 0
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer.connections += 1
                while line := self.rfile.readline():
                    head = line
                    while (line := self.rfile.readline()) not in {b"\r\n", b""}:
                        head += line
                    sizes = [part.split(b":")[1] for part in head.lower().split(b"\r\n") if b"content-length:" in part]
                    body = self.rfile.read(int(sizes[0]) if sizes else 0)
                    outer.requests.append(head)
                    answer = next(outer._answers)
                    sent = answer(body) if callable(answer) else answer
                    try:
                        for part in [sent] if isinstance(sent, bytes) else sent:
                            self.wfile.write(part)
                    except OSError:
                        return
                    if not isinstance(sent, bytes) or b"HTTP/1.1 200 OK\r\n" not in sent:
                        return

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


OK = (
    b"HTTP/1.1 200 OK\r\nx-amzn-RequestId: 1\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\n\r\n{}"
)
"""CloudWatch's own answer to a good request."""
BODIES = {
    "page": b"<!DOCTYPE html><title>Stra\xdfe</title>",
    "xml": b"<ErrorResponse><Error>",
    "utf-16": '{"__type": "Throttling"}'.encode("utf-16"),
    "list": b"[]",
    "text": b'"text"',
    "null": b"null",
    "number": b"5",
    "long number": b"9" * 5000,
    "type": b'{"__type": 5}',
    "message": b'{"message": {"a": [1]}}',
    "lists": b"[" * 100_000,
    "objects": b'{"a":' * 100_000,
    "half": b'{"__type": "Thrott',
    "member": b'{"__type": "InvalidParameterValue", "message": "MetricData.member.' + b"9" * 5000 + b'.Value"}',
    "nothing": b"",
    "huge": b"x" * (3 << 20),
}
"""Answers that CloudWatch never gives."""
WRECKS = {
    "truncated": http(200, b'{"a', length=500),
    "truncated error": http(503, b'{"__ty', length=500),
    "negative length": http(503, b"{}", length=-5),
    "bad chunks": b"HTTP/1.1 200 Words\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "chunks cut short": b"HTTP/1.1 503 Words\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
    "no gzip": http(503, b"\x1f\x8bxxxx", "Content-Encoding: gzip"),
    "no HTTP": b"\x00\xff\x16garbage\r\n\r\n",
    "silence": b"",
    "bad headers": http(503, b"{}", "\xff\xfe: \xe9", "Retry-After: " + "9" * 400, "Date: x"),
    "bad date": http(503, b"{}", "Date: Mon, 99 Foo 99999 99:99:99 GMT"),
    "bad code": http(400, b'{"__type": "a#b"}', "x-amzn-query-error: ;;;;"),
}
"""Answers that are not even HTTP, or break off."""
STATUSES = (200, 201, 300, 301, 302, 307, 308, 400, 403, 407, 408, 429, 500, 502, 503, 504, 599)
