"""A server of HTTP on loopback, the base of doubles; a double says what it answers."""

import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class WebDouble:
    """A context manager that serves from the start; `url` is where."""

    def __init__(self, host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None, version: str = "1.0") -> None:
        """Take a port of `host`; `version` is that of HTTP, of which 1.1 keeps connections."""
        self.closed = threading.Event()
        """Set once it closes, for a request that hangs."""
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = f"HTTP/{version}"

            def do_GET(self) -> None:
                double.handle(self)

            do_POST = do_PUT = do_GET  # noqa: N815  # names of http.server

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """A client may leave."""

        self._server = Server((host, 0), Handler)
        self.port = self._server.server_port
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' * bool(tls)}://{f'[{host}]' if ':' in host else host}:{self.port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        """Answer a request, of any method."""
        raise NotImplementedError

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def give(http: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    """Answer; an underscore in the name of a header is a hyphen."""
    http.send_response(status)
    for key, value in ({"Content-Length": str(len(body))} | headers).items():
        http.send_header(key.replace("_", "-"), value)
    http.end_headers()
    http.wfile.write(body)


def reset(http: BaseHTTPRequestHandler) -> None:
    """Cut the connection of a request, as where nobody listens."""
    http.close_connection = True
    http.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    http.connection.close()
