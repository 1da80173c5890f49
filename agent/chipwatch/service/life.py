"""Keeps and shows the state of a run: heartbeat, status socket, saved state of processors, health server."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chipwatch.base.redaction import one_line
from chipwatch.config.identity.resolver import Identity
from chipwatch.config.options import Config
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.derivation import Derivation
from chipwatch.history.job_records import append, records_of
from chipwatch.host.state_file import read_state, write_state
from chipwatch.net import status_socket as socket
from chipwatch.service import heartbeat
from chipwatch.service.log_formats import Recent
from chipwatch.service.snapshot import CpuUsage, snapshot

if TYPE_CHECKING:
    from chipwatch.service.health_server import HealthServer

log = logging.getLogger(__name__)
Answer = Callable[..., Mapping[str, Any]]
"""Returns the answer to a question on the status socket; its arguments are the words after the question's name."""

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


def serve_health(config: Config, common: Identity, pipeline: Callable[[], Pipeline | None]) -> HealthServer | None:
    """Start a server of /healthz and /readyz if the configuration asks for one; raise ConfigError."""
    if config.health is None:
        return None
    from chipwatch.service.health_server import HealthServer

    assert config.interval is not None
    late = heartbeat.tick_timeout(config.interval)

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
        health = HealthServer(config.health, healthy, ready)
    except OSError as problem:
        label, fault = config.sources.get("health", "health"), os_text(problem)
        raise ConfigError(f"{label} {config.health}: {fault}; choose another address or port") from problem
    log.info("health: http://%s:%d/healthz and /readyz", health.host, health.port)
    return health
