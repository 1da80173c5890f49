"""`agent run`: from the first reading to the last delivery."""

from __future__ import annotations

import dataclasses
import gc
import logging
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from agent import identity
from agent.assemble import assemble, validate
from agent.config import Config, ConfigError
from agent.pipeline import Pipeline
from agent.watched import FORWARDED, Watched

if TYPE_CHECKING:
    from agent.health import Health

log = logging.getLogger(__name__)

ONCE_PAUSE: Final = 1.0
"""Seconds between the two readings of --once."""
STOPPING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


def run(config: Config, command: Sequence[str], *, once: bool = False, duration: float | None = None) -> int:
    """
    Collect and send until stopped, until `duration` seconds have passed, or until `command` has ended.

    Return the exit code: 0, or that of `command`. Raise ConfigError, NotLoaded, NotStarted, UnknownIdentity.
    """
    if command and config.pid is not None:
        raise ConfigError("pid: --pid and a command after -- exclude each other")
    common = identity.resolve(config.common_dims, config.dims)
    watched: Watched | None = None
    if command:
        validate(config)  # first of all, so that a wrong option does not cost a training run
        watched = Watched(command)
        config = dataclasses.replace(config, pid=watched.pid)
    pipeline = assemble(config, common)
    if watched:
        _handle(FORWARDED, watched.forward)
        watched.on_end(pipeline.stop)
    else:
        _handle(STOPPING, lambda number, _: _stop(pipeline, number))
    health = _serve_health(config, pipeline)
    pipeline.start()
    gc.freeze()  # what is made by now stays: the collector need not look at it again
    if once:
        pipeline.once(min(ONCE_PAUSE, config.interval or ONCE_PAUSE))
    else:
        pipeline.run(duration)
    pipeline.close()
    if health:
        health.close()
    return watched.code() if watched else 0


def _handle(signals: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> None:
    for number in signals:
        signal.signal(number, handler)


def _stop(pipeline: Pipeline, number: int) -> None:
    """Stop; a second signal of the same kind ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    pipeline.stop()


def _serve_health(config: Config, pipeline: Pipeline) -> Health | None:
    if config.health is None:
        return None
    from agent.health import Health  # noqa: PLC0415  # two MB, and only where it is asked for

    assert config.interval is not None
    late = 3 * config.interval

    def healthy() -> tuple[bool, dict[str, Any]]:
        since = None if pipeline.ticked is None else time.monotonic() - pipeline.ticked
        return since is not None and since < late, {"seconds_since_tick": since}

    def ready() -> tuple[bool, dict[str, Any]]:
        refused = {o.name: o.worker.refused for o in pipeline.outlets if o.worker.refused}
        owed = {o.name: o.spool.ledger.spooled for o in pipeline.outlets}
        return healthy()[0] and not refused, {"refused": refused, "spooled": owed}

    try:
        server = Health(config.health, healthy, ready)
    except (OSError, ValueError) as problem:
        raise ConfigError(f"health: {problem}") from problem
    log.info("health: http://%s:%d/healthz and /readyz", server.host, server.port)
    return server
