"""The state of the running agent: the answer to `status` on its socket."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from chipwatch.base.redaction import one_line
from chipwatch.base.version import __version__
from chipwatch.config import plugins
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.sink import Sink
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.route import Route
from chipwatch.engine.validation import PluginRunner

SETTLED: Final = 10.0
"""Seconds after the second tick at which the CPU usage is first known."""


class CpuUsage:
    """The CPU usage of this process without its start, which takes as much CPU time as minutes of collecting."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._since: tuple[float, float] | None = None
        self._pipeline = pipeline
        pipeline.after_tick.append(self._note)

    def percent(self) -> float | None:
        """Return the CPU usage since the second tick (% of a core); None during the first seconds."""
        if self._since is None or (elapsed := time.monotonic() - self._since[0]) < SETTLED:
            return None
        return round(100 * (time.process_time() - self._since[1]) / elapsed, 3)

    def _note(self) -> None:
        if self._pipeline.ticks >= 2:
            self._since = time.monotonic(), time.process_time()
            self._pipeline.after_tick.remove(self._note)


def snapshot(
    pipeline: Pipeline, started: float, why_not_ready: Callable[[], str | None], usage: CpuUsage
) -> dict[str, Any]:
    """
    Return the state of this agent, for JSON; `started`: its start in monotonic seconds.

    The values are read without locks: each has one writer, which never waits for a reader.
    """
    now = time.monotonic()
    return {
        "version": __version__,
        "pid": os.getpid(),
        "uptime_seconds": round(now - started, 3),
        "cpu_seconds": round(time.process_time(), 3),
        "cpu_percent": usage.percent(),
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
    delivered = worker.health.delivered
    return {
        "collected": ledger.collected,
        "sent": ledger.sent,
        "rejected": dict(ledger.rejected),
        "dropped": dict(ledger.dropped),
        "series_left_out": route.left_out,
        "kept": ledger.spooled,
        "kept_bytes": route.spool.bytes,
        "retried": worker.health.counts["retried"],
        "refused": worker.health.refused,
        "last_error": worker.health.last_error,
        "seconds_since_delivery": None if delivered is None else round(time.monotonic() - delivered, 3),
        "status": _own_words(route.name, worker.sink),
    }


def _own_words(name: str, sink: Sink) -> str:
    """Return the sentence of a scraped sink about its state; "" for other sinks, and if it fails."""
    with suppress(ConfigError), plugins.blamed(plugins.SINKS, name, "status fails"):
        return one_line(sink.status()) if sink.limits.scraped else ""
    return ""
