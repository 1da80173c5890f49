"""Keeps and shows the state of a run: heartbeat, status socket, saved state of processors, the answer to `status`."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from chipwatch.base.redaction import one_line
from chipwatch.base.version import __version__
from chipwatch.config import plugins
from chipwatch.config.identity.resolver import Identity
from chipwatch.config.options import Config
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.contract.sink import Sink
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.derivation import Derivation
from chipwatch.engine.route import Route
from chipwatch.engine.validation import PluginRunner
from chipwatch.history.job_records import append, records_of
from chipwatch.host.state_file import read_state, write_state
from chipwatch.net import status_socket as socket
from chipwatch.service import heartbeat
from chipwatch.service.log_formats import Recent

log = logging.getLogger(__name__)
Answer = Callable[..., Mapping[str, Any]]
"""Returns the answer to a question on the status socket; its arguments are the words after the question's name."""

SETTLED: Final = 10.0
"""Seconds after the second tick at which the CPU usage is first known."""
RETRY: Final = 60.0
"""Seconds between attempts to take the heartbeat while another run holds it."""
MAX_STATE: Final = 4 << 20
"""Most bytes of a file of saved state."""


def show_life(
    config: Config, folder: Path, pipeline: Pipeline, common: Identity, answers: Mapping[str, Answer]
) -> contextlib.ExitStack:
    """
    Keep a heartbeat and a status socket in `folder`; the caller closes the result.

    If another run holds the folder, try again every RETRY seconds.
    `answers`: answers of the socket in addition to the status, the log and the processors.
    """
    open_now, started, interval = contextlib.ExitStack(), time.monotonic(), config.interval
    assert interval is not None
    why_not_ready = partial(_why_not_ready, pipeline, common)
    is_durable = any(route.worker.sink.limits.durable for route in pipeline.routes)

    def start(level: int = logging.DEBUG) -> bool:
        if not (alive := heartbeat.start(folder, interval, level)):
            return False
        open_now.callback(alive.close)
        pipeline.after_tick.append(lambda: alive.beat(why_not_ready()))
        # Only the holder of the heartbeat's lock may replace a socket that an ended run left behind.
        recent = Recent()
        logging.getLogger().addHandler(recent)
        open_now.callback(logging.getLogger().removeHandler, recent)
        usage = CpuUsage(pipeline)
        served_by: dict[str, Answer] = {
            "status": partial(snapshot, pipeline, started, why_not_ready, usage),
            "log": lambda: {"lines": [*recent.lines]},
            **{one.name: one.processor.answer for one in pipeline.derivations},
            **answers,
        }
        keep_state(folder, pipeline.derivations)
        if served := socket.serve(folder, served_by, level):
            open_now.callback(served.close)
        return True

    def retry() -> None:
        if pipeline.ticks % math.ceil(RETRY / interval) == 0 and start():
            pipeline.after_tick.remove(retry)

    if not start(logging.INFO if is_durable else logging.DEBUG):
        pipeline.after_tick.append(retry)
    return open_now


def keep_state(folder: Path, derivations: Collection[Derivation]) -> None:
    """
    Restore processors from `folder`, and keep their state and records there; the caller holds the folder's lock.

    A file that cannot be read is logged, and its processor starts without state.
    """
    for derivation in derivations:
        path = folder / f"{derivation.name}.json"
        derivation.append = partial(append, records_of(folder, derivation.name))
        if not derivation.needs.state:
            continue
        try:
            with contextlib.suppress(FileNotFoundError):
                derivation.restore(read_state(path, MAX_STATE), path)
        except OSError as problem:
            log.warning("%s: %s; %s begins without its state", path, problem.strerror, derivation.name)
        derivation.keep = partial(_keep, path, set())


def _keep(path: Path, failures: set[str], saved: bytes) -> None:
    """
    Write the state of a processor. If that fails, remove the file: an old state would count time twice.

    `failures`: reasons since the last success; each is logged once.
    """
    try:
        write_state(path, saved)
        failures.clear()
    except OSError as problem:
        if (why := os_text(problem)) not in failures:
            failures.add(why)
            log.warning("%s is not saved: %s", path, why)
        with contextlib.suppress(OSError):
            path.unlink()


def _why_not_ready(pipeline: Pipeline, common: Identity) -> str | None:
    """Return why points cannot be sent; None if they can. A failing network does not count."""
    if common.known() is None:
        return "it is not known yet who this machine is"
    workers = [route.worker for route in pipeline.routes]
    stuck = next((f"{worker.name}: {worker.stuck}" for worker in workers if worker.stuck), None)
    refused = ((worker.name, worker.health.refused) for worker in workers)
    return stuck or next((f"{name} refuses: {why}" for name, why in refused if why), None)


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
    with contextlib.suppress(ConfigError), plugins.blamed(plugins.SINKS, name, "status fails"):
        return one_line(sink.status()) if sink.limits.scraped else ""
    return ""
