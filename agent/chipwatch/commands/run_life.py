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
from chipwatch.commands.output import say_if_slow
from chipwatch.config.identity.resolver import Identity
from chipwatch.config.instances import build_sinks
from chipwatch.config.load import recorder_options
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import text_of
from chipwatch.engine.build import assemble
from chipwatch.engine.clock import DEADLINE, Pipeline
from chipwatch.host.failures import file_of
from chipwatch.service.announcements import Announcements
from chipwatch.service.wanted import Wanted, spared

if TYPE_CHECKING:
    from chipwatch.history.record_file import RecordFile
    from chipwatch.host.wrapped import WrappedCommand
    from chipwatch.jobs.verdict.events import EventHistory
    from chipwatch.net.page_server import PageServer
    from chipwatch.service.recorder import Recorder

log = logging.getLogger(__name__)

ONCE_PAUSE: Final = 1.0
"""Seconds between the two readings of --once."""


@dataclasses.dataclass
class AgentRun:
    """One run, from the first reading to the last delivery: its configuration and its parts."""

    config: Config
    common: Identity
    record: Path | None = None
    once: bool = False
    duration: float | None = None
    pipeline: Pipeline | None = None
    recorder: Recorder | None = None
    file: RecordFile | None = None
    """The open file of `record`; it may be created before the run."""
    health: PageServer | None = None

    @property
    def brief(self) -> bool:
        """True for a run that ends by itself: --once or --duration."""
        return self.once or self.duration is not None

    def serve_health(self) -> None:
        """Start the server of /healthz and /readyz if the configuration asks for it; raise ConfigError."""
        if self.config.health is not None:
            from chipwatch.service.health_server import serve_health

            self.health = serve_health(self.config, self.common, lambda: self.pipeline)

    def make_file(self) -> None:
        """Create the file of `record`, if that is set; raise CommandError."""
        if self.record and not self.file:
            from chipwatch.service.recorder import open_file

            self.file = open_file(self.config, self.common.known, self.record)

    def collect(
        self, on_start: Callable[[Pipeline], None], watched: WrappedCommand | None = None, *, with_details: bool
    ) -> bool:
        """
        Run a pipeline to its end; return True if all went well. Raise CommandError before it starts.

        `on_start` gets the pipeline before it starts. `with_details`: collectors read at least the level `detailed`.
        The order matters for parts that act after each tick: the status must know a tick before anybody can ask, and a
        run that lacks a needed collector must stop before it is announced.
        """
        from chipwatch.jobs.verdict.events import EventHistory

        config, common, folder = self.config, self.common, state_folder(self.config.spool, os.environ)
        is_kept = not self.brief or config.spool is not None
        state = folder if is_kept else None  # where the run leaves something on disk
        ring = None if self.brief else recorder_options(config)
        basic = Level[ring.level.upper()] if ring and ring.level else Level.BASIC
        least = Level.DETAILED if with_details or self.record else basic
        pipeline = assemble(config, common.known, common.offer, state, least, spared=spared(config))
        self.pipeline = pipeline
        failures = None if self.brief else file_of(folder, config.root, config.sys)
        history = EventHistory(pipeline.samplers, time.time_ns(), config.interval or 0.0, failures)
        pipeline.listeners.append(history.take)
        self._start_recorder(pipeline, history, None if self.brief else folder, is_kept=ring is not None)
        on_start(pipeline)
        shown = self._show(pipeline, history, folder, is_kept=is_kept)
        wanted = Wanted(config, pipeline, brief=self.brief)
        (pipeline.after_tick if self.once else pipeline.listeners).append(wanted.look)
        announcements = Announcements(config, pipeline, state)
        pipeline.start()
        gc.freeze()  # existing objects live until the end, so the garbage collector may skip them
        gc.set_threshold(50_000)  # with 700, looking for garbage takes a third of the CPU of many series
        if self.once:
            pipeline.once(min(ONCE_PAUSE, config.interval or ONCE_PAUSE))
        else:
            pipeline.run(self.duration)
        self._deliver(pipeline, watched)
        self.close()
        shown.close()  # last, because the lock of the heartbeat keeps another run out
        for route in pipeline.routes if self.brief else ():
            if not route.worker.join(0):
                log.error("%s: no answer within %g s of the end", route.name, DEADLINE)
        if not watched:
            announcements.end(once=self.once)
        return self._went_well(pipeline, wanted, is_kept=is_kept)

    def close(self) -> None:
        """Stop the recorder, the search for the identity, and the health server."""
        if self.recorder:
            self.recorder.close()
        if self.file:  # also after its disk has failed: the next run of a reload records there again
            self.file.lock.close()
        self.common.close()
        if self.health:
            self.health.close()

    def _start_recorder(self, pipeline: Pipeline, history: EventHistory, folder: Path | None, *, is_kept: bool) -> None:
        """Record to the file of `record`, and if `is_kept` to a ring in `folder`; raise CommandError."""
        if self.record or is_kept:
            from chipwatch.service.recorder import Recorder

            self.make_file()
            self.recorder = Recorder(self.config, pipeline, self.common.known, folder, self.file, history=history)

    def _show(self, pipeline: Pipeline, history: EventHistory, folder: Path, *, is_kept: bool) -> contextlib.ExitStack:
        """Start heartbeat, status socket and saved state, unless the run is too short for anybody to ask."""
        is_durable = any(route.worker.sink.limits.durable for route in pipeline.routes)
        if not (is_kept and not self.once if is_durable else not (self.brief or is_for_script(self.config))):
            return contextlib.ExitStack()
        from chipwatch.service.life import show_life

        seal = self.recorder.seal if self.recorder else lambda *_: {}

        def verdict() -> Mapping[str, Any]:
            names = {name: dict(dims) for facts in pipeline.devices.values() for name, dims in facts.names.items()}
            return {**history.answer(), "names": names}

        return show_life(self.config, folder, pipeline, self.common, {"verdict": verdict, "seal": seal})

    def _deliver(self, pipeline: Pipeline, watched: WrappedCommand | None) -> None:
        """End the open incident, or begin one for a failed command; then send the last points, which name its file."""
        if watched and watched.has_ended:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the last delivery
        if self.recorder:
            self.recorder.end(*(watched.end() if watched else ()))
        text = f"sending the last points, for at most {DEADLINE:g} s; Ctrl-C ends this"
        with say_if_slow(text, watched.standard_error if watched else 2):
            pipeline.close()

    def _went_well(self, pipeline: Pipeline, wanted: Wanted, *, is_kept: bool) -> bool:
        """Log what went wrong; return True if nothing did."""
        routes = pipeline.routes
        lost = self.brief and any(route.spool.lost for route in routes)
        cut = self.file and self.recorder and self.recorder.trouble  # the recorder has logged it
        for route in routes if lost and self.duration is not None and not is_kept else ():
            if route.spool.lost and route.worker.sink.limits.durable:
                number = count(route.spool.lost, "are")
                log.error("%s: %s lost: --duration keeps no spool; set --spool DIR", route.name, number)
        for text in wanted.undelivered() if self.brief and not wanted.missing else ():
            log.error("%s", text)
            lost = True
        owes = self.once and any(route.spool.is_due for route in routes)
        ends = [sampler.ended for sampler in pipeline.samplers if sampler.ended]
        for end in ends:
            log.log(logging.INFO if end.clean else logging.ERROR, "%s", text_of(end))
        if is_unknown := self.common.known() is None:
            unsent = count(sum(route.spool.ledger.spooled for route in routes), "were")
            log.error("%s; %s not sent; those on disk are sent after the next start", self.common.unknown(), unsent)
        is_broken = ends and (is_unknown or not all(end.clean for end in ends))
        return not (lost or cut or wanted.missing or owes or is_broken)


def is_for_script(config: Config) -> bool:
    """Return True if all points go to standard output and that is not a terminal."""
    is_terminal = sys.stdout and sys.stdout.isatty()
    return all(sink.limits.standard_output for sink in build_sinks(config).values()) and not is_terminal
