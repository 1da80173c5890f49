"""An endpoint on loopback that answers with pages of metrics, and misbehaves on demand."""

import gzip
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

from tests.doubles.web import WebDouble

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
HUGE = 1_000_000_000


class Exporter(WebDouble):
    """An exporter; `page`, `kind`, `zipped` and `answer` may be changed while it runs."""

    def __init__(self, page: str = "up 1\n", tls: ssl.SSLContext | None = None) -> None:
        self.page, self.kind, self.zipped = page, TEXT, False
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self.well
        """Its reaction to a request: one of the methods below."""
        self.requests: list[dict[str, str]] = []
        """The headers of each request, their names in lower case, and its `path`."""
        self.at_once = self.most_at_once = 0
        self.sent = 0
        """Bytes of the body that was last sent."""
        self.gate = threading.Event()
        """Opened, those that hang go on."""
        self._lock = threading.Lock()
        super().__init__(tls=tls)
        self.url += "/metrics"

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        with self._lock:
            self.requests.append({"path": http.path, **{key.lower(): value for key, value in http.headers.items()}})
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            with suppress(OSError):
                self.answer(http)
        finally:
            with self._lock:
                self.at_once -= 1

    def head(self, http: BaseHTTPRequestHandler, status: int = 200, **headers: str) -> None:
        http.send_response(status)
        for key, value in headers.items():
            http.send_header(key.replace("_", "-"), value)
        http.end_headers()

    def well(self, http: BaseHTTPRequestHandler) -> None:
        body = self.page.encode()
        if self.zipped:
            body = gzip.compress(body)
        more = {"Content_Encoding": "gzip"} if self.zipped else {}
        self.head(http, Content_Type=self.kind, Content_Length=str(len(body)), **more)
        http.wfile.write(body)

    def hang(self, http: BaseHTTPRequestHandler) -> None:
        """Take the request and say nothing, until the gate opens."""
        self.gate.wait(30)
        self.well(http)

    def trickle_head(self, http: BaseHTTPRequestHandler) -> None:
        """Send a byte now and then, so that no time-out of a socket ever ends it, and never end the head."""
        http.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not self.gate.wait(0.02):
            http.wfile.write(b"x")

    def trickle_body(self, http: BaseHTTPRequestHandler) -> None:
        self.head(http, Content_Type=self.kind, Content_Length="1000")
        while not self.gate.wait(0.02):
            http.wfile.write(b"#")

    def promise_more(self, http: BaseHTTPRequestHandler) -> None:
        """Tell a length that is not reached."""
        self.head(http, Content_Type=self.kind, Content_Length=str(len(self.page) + 10))
        http.wfile.write(self.page.encode())

    def promise_huge(self, http: BaseHTTPRequestHandler) -> None:
        self.head(http, Content_Type=self.kind, Content_Length=str(HUGE))
        self._flood(http)

    def huge(self, http: BaseHTTPRequestHandler) -> None:
        """Send a body without end, as long as anybody listens."""
        self.head(http, Content_Type=self.kind)
        self._flood(http)

    def bomb(self, http: BaseHTTPRequestHandler) -> None:
        """Send a small body that unpacks to a very large one."""
        body = gzip.compress(bytes(64_000_000), 1)
        self.head(http, Content_Type=self.kind, Content_Encoding="gzip", Content_Length=str(len(body)))
        http.wfile.write(body)

    def cut_gzip(self, http: BaseHTTPRequestHandler) -> None:
        body = gzip.compress(self.page.encode())[:-9]
        self.head(http, Content_Type=self.kind, Content_Encoding="gzip", Content_Length=str(len(body)))
        http.wfile.write(body)

    def no_gzip(self, http: BaseHTTPRequestHandler) -> None:
        self.head(http, Content_Type=self.kind, Content_Encoding="gzip", Content_Length=str(len(self.page)))
        http.wfile.write(self.page.encode())

    def fail(self, http: BaseHTTPRequestHandler) -> None:
        self.head(http, 500, Content_Length="0")

    def html(self, http: BaseHTTPRequestHandler) -> None:
        self.head(http, Content_Type="text/html; charset=utf-8")
        http.wfile.write(b"<html><body>up 1\n</body></html>")

    def redirect(self, http: BaseHTTPRequestHandler) -> None:
        """Send the client to a metadata service."""
        self.head(http, 302, Location="http://169.254.169.254/latest/meta-data/iam", Content_Length="0")

    def no_http(self, http: BaseHTTPRequestHandler) -> None:
        http.wfile.write(b"\x00\xffSSH-2.0-OpenSSH_9.6\r\n\r\n")

    def _flood(self, http: BaseHTTPRequestHandler) -> None:
        self.sent = 0
        block = b"#" * 65536
        while self.sent < HUGE:
            http.wfile.write(block)
            self.sent += len(block)

    def close(self) -> None:
        self.gate.set()
        super().close()
