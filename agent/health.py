"""/healthz and /readyz for probes; nothing listens unless it was asked for, and then on the address given."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Probe = Callable[[], tuple[bool, dict[str, Any]]]


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `[HOST:]PORT`, on loopback unless a host is given; raise ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"expected [HOST:]PORT, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


class Health:
    """A server on a daemon thread that answers GET /healthz and /readyz with 200 or 503 and a line of JSON."""

    def __init__(self, address: str, healthy: Probe, ready: Probe) -> None:
        """Bind `address`; raise OSError where that fails, ValueError where it is no address."""
        probes = {"/healthz": healthy, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:  # the standard library's name
                probe = probes.get(self.path)
                good, facts = probe() if probe else (False, {"error": "only /healthz and /readyz"})
                body = json.dumps({"ok": good, **facts}).encode() + b"\n"
                self.send_response((200 if good else 503) if probe else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing: a probe comes every few seconds."""

        self._server = ThreadingHTTPServer(parse_address(address), Handler)
        self.host, self.port = self._server.server_address[0], self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
