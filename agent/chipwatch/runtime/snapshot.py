"""The state of the running agent, as the status socket answers it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from chipwatch.config import plugins
from chipwatch.errors import ConfigError
from chipwatch.extensions import IsScraped
from chipwatch.pipeline.clock import Pipeline
from chipwatch.pipeline.route import Route
from chipwatch.pipeline.sampler import PluginRunner
from chipwatch.redaction import one_line
from chipwatch.sink import Sink
from chipwatch.version import __version__


def snapshot(pipeline: Pipeline, started: float, why_not_ready: Callable[[], str | None]) -> dict[str, Any]:
    """
    Return the state of this agent; `started` is in monotonic seconds.

    The values are read without locks: each has one writer, which never waits for a reader.
    """
    now = time.monotonic()
    return {
        "version": __version__,
        "pid": os.getpid(),
        "uptime_seconds": round(now - started, 3),
        "cpu_seconds": round(time.process_time(), 3),
        "seconds_since_tick": None if pipeline.ticked is None else round(now - pipeline.ticked, 3),
        "ticks": pipeline.ticks,
        "missed_ticks": pipeline.missed,
        "not_ready": why_not_ready(),
        "collectors": {sampler.name: _source(sampler) for sampler in pipeline.samplers},
        "processors": {derivation.name: _source(derivation) for derivation in pipeline.derivations},
        "sinks": {route.name: _sink(route) for route in pipeline.routes},
    }


def _source(source: PluginRunner) -> dict[str, Any]:
    return {
        "state": "absent" if source.unavailable else {True: "ok", False: "failing", None: "starting"}[source.ok],
        "points": source.yielded,
        "seconds": round(source.seconds, 6),
        "error": source.unavailable or source.trouble,
    }


def _sink(route: Route) -> dict[str, Any]:
    ledger, worker = route.spool.ledger, route.worker
    return {
        "collected": ledger.collected,
        "sent": ledger.sent,
        "rejected": dict(ledger.rejected),
        "dropped": dict(ledger.dropped),
        "kept": ledger.spooled,
        "kept_bytes": route.spool.bytes,
        "retried": worker.counts["retried"],
        "refused": worker.refused,
        "last_error": worker.last_error,
        "seconds_since_delivery": None if worker.delivered is None else round(time.monotonic() - worker.delivered, 3),
        "status": _own_words(route.name, worker.sink),
    }


def _own_words(name: str, sink: Sink) -> str:
    """Return the status of a scraped sink in its words, nothing if that fails."""
    with suppress(ConfigError), plugins.blamed(plugins.SINKS, name, "status fails"):
        return one_line(sink.status()) if isinstance(sink, IsScraped) else ""
    return ""
