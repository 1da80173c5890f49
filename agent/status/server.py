"""An optional HTTP server for probes: /healthz and /readyz."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from agent.net.address import parse_address

POLL: Final = 0.1
"""Interval of the server's checks whether to end, in seconds; `close` may wait as long."""
Probe = Callable[[], tuple[bool, dict[str, Any]]]


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the standard library's DNS lookup of the host name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


class Health:
    """Answers GET /healthz and /readyz with 200 or 503 and a line of JSON, on a daemon thread."""

    def __init__(self, address: str, healthy: Probe, ready: Probe) -> None:
        """Bind `address`; raise OSError if that fails, ValueError if it is not an address."""
        probes = {"/healthz": healthy, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:  # name of the standard library
                probe = probes.get(self.path)
                good, facts = probe() if probe else (False, {"error": "only /healthz and /readyz"})
                body = json.dumps({"ok": good, **facts}).encode() + b"\n"
                self.send_response((200 if good else 503) if probe else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing: probes come every few seconds."""

        self._server = _Server(parse_address(address), Handler)
        self.host, self.port = self._server.server_address[0], self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(POLL,), name="health", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
