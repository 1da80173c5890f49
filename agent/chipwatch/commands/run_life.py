"""One run, step by step: assembles its parts, collects, delivers, closes, and checks that all went well."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chipwatch.base.system import state_folder
from chipwatch.base.text import count
from chipwatch.commands.waiting import say_if_slow
from chipwatch.config.identity.resolver import Identity
from chipwatch.config.instances import build_sinks
from chipwatch.config.load import level_of, recorder_options
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import text_of
from chipwatch.engine.build import assemble
from chipwatch.engine.clock import DEADLINE, Pipeline
from chipwatch.service.announcements import Announcements
from chipwatch.service.device_log import DeviceLog
from chipwatch.service.wanted import Wanted, spared

if TYPE_CHECKING:
    from chipwatch.history.record_file import RecordFile
    from chipwatch.host.wrapped import WrappedCommand
    from chipwatch.jobs.verdict.events import EventHistory
    from chipwatch.service.health_server import HealthServer
    from chipwatch.service.recorder import Recorder

log = logging.getLogger(__name__)

ONCE_PAUSE: Final = 1.0
"""Seconds between the two readings of --once."""


@dataclasses.dataclass
class RunParts:
    """A configuration with the parts of its run: identity, pipeline, recorder, health server."""

    config: Config
    common: Identity
    record: Path | None = None
    once: bool = False
    duration: float | None = None
    pipeline: Pipeline | None = None
    recorder: Recorder | None = None
    file: RecordFile | None = None
    """The open file of `record`; it may be created before the run."""
    health: HealthServer | None = None
    _history: EventHistory | None = None

    @property
    def brief(self) -> bool:
        """True for a run that ends by itself: --once or --duration."""
        return self.once or self.duration is not None

    def serve_health(self) -> None:
        """Start the server of /healthz and /readyz if the configuration asks for it; raise ConfigError."""
        if self.config.health is not None:
            from chipwatch.service.life import serve_health

            self.health = serve_health(self.config, self.common, lambda: self.pipeline)

    def history(self, pipeline: Pipeline) -> EventHistory:
        """Return the history for verdicts and incidents; the first call creates it."""
        if self._history is None:
            from chipwatch.jobs.verdict.events import EventHistory

            born = time.time_ns()  # compared with the points' time
            self._history = EventHistory(pipeline.samplers, born, self.config.interval or 0.0)
            pipeline.listeners.append(self._history.take)
        return self._history

    def start_recorder(self, state: Path) -> None:
        """Record to the file of `record`, and unless the run is brief to a ring in `state`; raise CommandError."""
        is_kept = not self.brief and recorder_options(self.config) is not None
        if self.pipeline and (self.record or is_kept):
            from chipwatch.service.recorder import Recorder

            self.make_file()
            folder = None if self.brief else state
            history = self.history(self.pipeline)
            self.recorder = Recorder(self.config, self.pipeline, self.common.known, folder, self.file, history=history)

    def make_file(self) -> None:
        """Create the file of `record`, if that is set; raise CommandError."""
        if self.record and not self.file:
            from chipwatch.service.recorder import open_file

            self.file = open_file(self.config, self.common.known, self.record)

    def seal(self, *words: str) -> Mapping[str, Any]:
        """Begin an incident because a user asks for it; return the answer for the status socket."""
        return self.recorder.seal(*words) if self.recorder else {}

    def seal_last(self, watched: WrappedCommand | None) -> None:
        """End the open incident; a command that failed begins one."""
        if self.recorder:
            self.recorder.end(watched.failure() if watched else None)

    def close(self) -> None:
        """Stop the recorder, the search for the identity, and the health server."""
        if self.recorder:
            self.recorder.close()
        if self.file:  # also after its disk has failed: the next run of a reload records there again
            self.file.lock.close()
        self.common.close()
        if self.health:
            self.health.close()


def collect(
    this: RunParts, on_start: Callable[[Pipeline], None], watched: WrappedCommand | None = None, *, with_details: bool
) -> bool:
    """
    Run a pipeline to its end; return True if all went well. Raise CommandError before it starts.

    `on_start` gets the pipeline before it starts. `with_details`: collectors read at least the level `detailed`.
    """
    life = RunLife(this, watched, with_details=with_details)
    on_start(life.pipeline)
    life.show()
    life.announce()
    life.collect()
    life.deliver()
    life.close()
    return life.went_well()


class RunLife:
    """
    One run from the first reading to the last delivery. Call each method once, in the order of their definitions.

    The order matters for parts that act after each tick: the status must know a tick before anybody can ask, and a
    run that lacks a needed collector must stop before it is announced.
    """

    def __init__(self, this: RunParts, watched: WrappedCommand | None, *, with_details: bool) -> None:
        """Assemble the pipeline and start the recorder, before any reading; raise CommandError."""
        self._run, self._watched = this, watched
        config, common = this.config, this.common
        self._is_kept = not this.brief or config.spool is not None
        self._folder = state_folder(config.spool, os.environ)
        ring = None if this.brief else recorder_options(config)
        basic = level_of(ring.level if ring and ring.level else "basic")
        least = Level.DETAILED if with_details or this.record else basic
        self.pipeline = this.pipeline = assemble(
            config, common.known, common.offer, self._state, least, spared=spared(config)
        )
        this.start_recorder(self._folder)
        self._alive = contextlib.ExitStack()
        self._wanted: Wanted | None = None
        self._announcements: Announcements | None = None

    @property
    def _state(self) -> Path | None:
        """The state folder; None if this run leaves nothing on disk."""
        return self._folder if self._is_kept else None

    def show(self) -> None:
        """Start heartbeat, status socket and saved state, unless the run is too short for anybody to ask."""
        this, routes = self._run, self.pipeline.routes
        is_durable = any(route.worker.sink.limits.durable for route in routes)
        if self._is_kept and not this.once if is_durable else not (this.brief or is_for_script(this.config)):
            from chipwatch.service.life import show_life

            answers: dict[str, Callable[..., Mapping[str, Any]]]
            answers = {"verdict": this.history(self.pipeline).answer, "seal": this.seal}
            self._alive = show_life(this.config, self._folder, self.pipeline, this.common, answers)

    def announce(self) -> None:
        """Start to log: missing collectors, the start of the run, and faults of devices."""
        config, pipeline = self._run.config, self.pipeline
        self._wanted = Wanted(config, pipeline, brief=self._run.brief)
        pipeline.after_tick.append(self._wanted.look)
        self._announcements = Announcements(config, pipeline, self._state)
        pipeline.listeners.append(DeviceLog().take)

    def collect(self) -> None:
        """Collect until something stops the pipeline."""
        this = self._run
        self.pipeline.start()
        gc.freeze()  # existing objects live until the end, so the garbage collector may skip them
        if this.once:
            self.pipeline.once(min(ONCE_PAUSE, this.config.interval or ONCE_PAUSE))
        else:
            self.pipeline.run(this.duration)

    def deliver(self) -> None:
        """End the open incident, then send the last points, which name its file."""
        watched = self._watched
        if watched and watched.has_ended:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the last delivery
        self._run.seal_last(watched)
        text = f"sending the last points, for at most {DEADLINE:g} s; Ctrl-C ends this"
        with say_if_slow(text, watched.standard_error if watched else 2):
            self.pipeline.close()

    def close(self) -> None:
        """Close all other parts; the heartbeat is last, because its lock keeps another run out."""
        self._run.close()
        self._alive.close()

    def went_well(self) -> bool:
        """Log what went wrong; return True if nothing did."""
        this, routes, wanted = self._run, self.pipeline.routes, self._wanted
        assert wanted
        assert self._announcements
        for route in routes if this.brief else ():
            if not route.worker.join(0):
                log.error("%s: no answer within %g s of the end", route.name, DEADLINE)
        if not self._watched:
            self._announcements.end(once=this.once)
        lost = this.brief and any(route.spool.lost for route in routes)
        cut = this.file and this.recorder and this.recorder.trouble  # the recorder has logged it
        for route in routes if lost and this.duration is not None and not self._is_kept else ():
            if route.spool.lost and route.worker.sink.limits.durable:
                number = count(route.spool.lost, "are")
                log.error("%s: %s lost: --duration keeps no spool; set --spool DIR", route.name, number)
        for text in wanted.undelivered() if this.brief and not wanted.missing else ():
            log.error("%s", text)
            lost = True
        owes = this.once and any(route.spool.is_due for route in routes)
        return _all_is_well(self.pipeline, this.common) and not (lost or cut or wanted.missing or owes)


def _all_is_well(pipeline: Pipeline, common: Identity) -> bool:
    """Log how inputs ended; return True if they all ended cleanly and their points could be sent."""
    ends = [sampler.ended for sampler in pipeline.samplers if sampler.ended]
    for end in ends:
        log.log(logging.INFO if end.clean else logging.ERROR, "%s", text_of(end))
    if common.known() is None:
        left = sum(route.spool.ledger.spooled for route in pipeline.routes)
        unsent = count(left, "were")
        log.error("%s; %s not sent; those on disk are sent after the next start", common.unknown(), unsent)
    return not ends or (all(end.clean for end in ends) and common.known() is not None)


def is_for_script(config: Config) -> bool:
    """Return True if all points go to standard output and that is not a terminal."""
    is_terminal = sys.stdout and sys.stdout.isatty()
    return all(sink.limits.standard_output for sink in build_sinks(config).values()) and not is_terminal
