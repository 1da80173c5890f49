"""An optional HTTP server for the probes of Kubernetes and load balancers: /healthz and /readyz."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from chipwatch.base.redaction import one_line, redacted
from chipwatch.config.identity.resolver import Identity
from chipwatch.config.options import Config
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.engine.clock import Pipeline
from chipwatch.net.address import parse_address
from chipwatch.net.page_server import PageServer, Request, Response
from chipwatch.service.heartbeat import tick_timeout

log = logging.getLogger(__name__)
Probe = Callable[[], tuple[bool, dict[str, Any]]]


def serve_health(config: Config, common: Identity, pipeline: Callable[[], Pipeline | None]) -> PageServer:
    """Serve the health of a run at the address that the configuration has; raise ConfigError."""
    assert config.health is not None
    assert config.interval is not None
    late = tick_timeout(config.interval)

    def healthy() -> tuple[bool, dict[str, Any]]:
        running = pipeline()
        ticked = running.ticked if running else None
        since = None if ticked is None else time.monotonic() - ticked
        return since is not None and since < late, {"seconds_since_tick": since}

    def ready() -> tuple[bool, dict[str, Any]]:
        running = pipeline()
        routes = running.routes if running else ()
        refused = {o.name: one_line(why) for o in routes if (why := o.worker.health.refused)}  # another thread sets it
        kept = {o.name: o.spool.ledger.spooled for o in routes}
        stuck = {o.name: o.worker.stuck for o in routes if o.worker.stuck}
        identified = common.known() is not None
        good = healthy()[0] and not refused and not stuck and identified
        return good, {"refused": refused, "stuck": stuck, "spooled": kept, "identified": identified}

    try:
        health = health_server(config.health, healthy, ready)
    except OSError as problem:
        label, fault = config.sources.get("health", "health"), os_text(problem)
        raise ConfigError(f"{label} {config.health}: {fault}; choose another address or port") from problem
    log.info("health: http://%s:%d/healthz and /readyz", health.host, health.port)
    return health


def health_server(address: str, healthy: Probe, ready: Probe) -> PageServer:
    """
    Answer GET /healthz and /readyz at `address` with status 200 or 503 and a line of JSON.

    Raise OSError if it cannot listen there, ValueError if that is not an address.
    """
    probes = {"/healthz": healthy, "/readyz": ready}

    def answer(request: Request) -> Response:
        probe = probes.get(request.path)
        good, facts = probe() if probe else (False, {"error": "only /healthz and /readyz"})
        body = json.dumps(redacted({"ok": good, **facts})).encode() + b"\n"
        return Response((200 if good else 503) if probe else 404, body, (("Content-Type", "application/json"),))

    return PageServer(parse_address(address), answer)
