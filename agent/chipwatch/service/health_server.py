"""An optional HTTP server for the probes of Kubernetes and load balancers: /healthz and /readyz."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from chipwatch.base.redaction import redacted
from chipwatch.net.address import parse_address
from chipwatch.net.page_server import PageServer, Request, Response

Probe = Callable[[], tuple[bool, dict[str, Any]]]


class HealthServer:
    """Answers GET /healthz and /readyz with status 200 or 503 and a line of JSON, on a daemon thread."""

    def __init__(self, address: str, healthy: Probe, ready: Probe) -> None:
        """Listen on `address`; raise OSError if that fails, ValueError if it is not an address."""
        self._probes = {"/healthz": healthy, "/readyz": ready}
        self._server = PageServer(parse_address(address), self._answer)
        self.host, self.port, self.close = self._server.host, self._server.port, self._server.close

    def _answer(self, request: Request) -> Response:
        probe = self._probes.get(request.path)
        good, facts = probe() if probe else (False, {"error": "only /healthz and /readyz"})
        body = json.dumps(redacted({"ok": good, **facts})).encode() + b"\n"
        return Response((200 if good else 503) if probe else 404, body, (("Content-Type", "application/json"),))
