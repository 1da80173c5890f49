"""`chipwatch run`: from the first reading to the last delivery."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chipwatch.commands.waiting import say_if_slow
from chipwatch.config.instances import build_sinks, hints
from chipwatch.config.load import chosen, level_of, recorder_options
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import ConfigError, text_of
from chipwatch.contract.extensions import ChecksStart, IsScraped
from chipwatch.contract.redaction import one_line
from chipwatch.contract.text import count
from chipwatch.identity.local import RecordsSource
from chipwatch.identity.resolver import Identity, sources
from chipwatch.logs.file import LOG_NAME, to_file
from chipwatch.logs.formats import to_stderr
from chipwatch.pipeline.build import assemble, validate
from chipwatch.pipeline.clock import DEADLINE, Pipeline
from chipwatch.runtime.announcements import Announcements
from chipwatch.runtime.device_log import DeviceLog
from chipwatch.runtime.signals import Signals, end_in_time, handle, note_hang_ups
from chipwatch.runtime.wanted import Wanted, check_places, owner_of_watched, spared
from chipwatch.status import heartbeat

if TYPE_CHECKING:
    from chipwatch.recording.file import RecordFile
    from chipwatch.runtime.recorder import Recorder
    from chipwatch.runtime.wrapped import WrappedCommand
    from chipwatch.status.server import HealthServer

log = logging.getLogger(__name__)

SETTLE: Final = 8.0
"""Seconds that a single reading waits for an identity that a platform is slow to tell."""
EARLY: Final = 15.0
"""Seconds after which a command's user hears that a sink has got nothing."""
ONCE_PAUSE: Final = 1.0
"""Seconds between the two readings of --once."""


@dataclasses.dataclass
class _Run:
    """A configuration that runs, with its identity, pipeline and server of health."""

    config: Config
    common: Identity
    record: Path | None = None
    once: bool = False
    duration: float | None = None
    pipeline: Pipeline | None = None
    recorder: Recorder | None = None
    file: RecordFile | None = None
    """The file of `record` that was made before the run."""
    health: HealthServer | None = None

    @property
    def brief(self) -> bool:
        """True for a run that ends by itself."""
        return self.once or self.duration is not None

    def serve_health(self) -> None:
        """Serve /healthz and /readyz if the configuration wants it; raise ConfigError."""
        if self.config.health is not None:
            from chipwatch.runtime.life import serve_health  # noqa: PLC0415  # 0.8 MB with sockets

            self.health = serve_health(self.config, self.common, lambda: self.pipeline)

    def start_recorder(self, state: Path) -> None:
        """Record to a ring in the folder `state`, unless the run is brief, and to `record`; raise CommandError."""
        is_kept = not self.brief and recorder_options(self.config) is not None
        if self.pipeline and (self.record or is_kept):
            from chipwatch.runtime.recorder import Recorder  # noqa: PLC0415  # a single reading goes without

            self.make_file()
            folder = None if self.brief else state
            self.recorder = Recorder(self.config, self.pipeline, self.common.known, folder, self.file)

    def make_file(self) -> None:
        """Make the file of `record`, if there is one; raise CommandError."""
        if self.record and not self.file:
            from chipwatch.runtime.recorder import open_file  # noqa: PLC0415  # only where it is asked for

            self.file = open_file(self.config, self.common.known, self.record)

    def seal(self, *words: str) -> Mapping[str, Any]:
        """Begin an incident because somebody asks for it; return the answer."""
        return self.recorder.seal(*words) if self.recorder else {}

    def seal_last(self, watched: WrappedCommand | None) -> None:
        """Seal an incident that is open, or that a failed command is."""
        if self.recorder:
            self.recorder.end(watched.failure() if watched else None)

    def close(self) -> None:
        """Stop recording, asking who this machine is, and serving its health."""
        if self.recorder:
            self.recorder.close()
        self.common.close()
        if self.health:
            self.health.close()


def run(
    config: Config,
    command: Sequence[str],
    *,
    once: bool = False,
    duration: float | None = None,
    tell: Callable[[str], None] = log.info,
    load: Callable[[], Config] | None = None,
    beside: tuple[Path | None, int | None] = (None, None),
    record: Path | None = None,
) -> int:
    """
    Collect and send until stopped, until `duration` seconds have passed, or until `command` has ended.

    With `once` or `duration` nothing is left on disk unless the configuration names a spool. At SIGHUP the
    configuration that `load` returns takes the place of the old one. Return the exit code: 0, that of `command`, or 1
    where an input ended within a record, where the points of `once` were not delivered, or where points of `duration`
    were lost. Raise ConfigError, NotLoaded, NotStarted, UnknownIdentity.

    `record` gets the whole run. The terminal belongs to `command` until it ends; then `tell` gets a summary.
    """
    if once and duration is not None:
        raise ConfigError("--once, --duration: a single reading has no duration; leave one of them out")
    if command and any(beside):
        raise ConfigError("--summary, --parent: not for a command after --, which has a summary; leave them out")
    if beside[1] not in (None, os.getppid()):
        ours = f"whose parent is {os.getppid()}"
        raise ConfigError(f"--parent {beside[1]}: it has ended, or did not start this process, {ours}")
    hang_ups = [] if command else note_hang_ups()
    check_places(config)
    _check_collectors(config)
    _log_to_stderr(config, quiet=once or duration is not None or bool(command))
    if once:
        _check_once(config)
    _check_sinks(config)
    if command:
        _check_command(config)  # first of all, so that a wrong option does not cost a training run
    identity = identify(config, SETTLE if once else 0.0, wrapped=bool(command))
    current = _Run(config, identity, record, once, duration)
    current.serve_health()  # nor a port that is taken
    if command:
        return _run_command(current, command, tell)
    renew = partial(_renewed, load) if load and not current.brief and not config.stdin else None
    return _run_beside(current, beside, renew, hang_ups)


def _run_beside(
    current: _Run,
    beside: tuple[Path | None, int | None],
    renew: Callable[[_Run, _Run | None], _Run | None] | None,
    hang_ups: Sequence[int],
) -> int:
    """
    Collect until stopped; return the exit code. Raise ConfigError.

    `beside`: the file for a summary of the watched process, and the parent process with which the run ends;
    `hang_ups` came before.
    """
    signals, (path, parent) = Signals(current, renew, hang_ups), beside
    if with_details := path is not None:
        from chipwatch.report.summary import KeptSummary  # noqa: PLC0415  # 1 MB

        summary = KeptSummary(path, current.config.pid, current.config.proc)

    def on_start(pipeline: Pipeline) -> None:
        signals.watch(pipeline)
        if with_details:
            summary.listen(pipeline)
        if parent is not None:
            pipeline.after_tick.append(lambda: None if os.getppid() == parent else pipeline.stop())

    whole = _collect(current, on_start, with_details=with_details)
    while following := signals.take_next():
        current = following
        _log_to_stderr(current.config, quiet=False)
        if not current.health:
            current.serve_health()
        whole = _collect(current, on_start, with_details=with_details)
    if with_details:
        summary.keep()  # with the last delivery
    return 0 if whole else 1


def _run_command(this: _Run, command: Sequence[str], tell: Callable[[str], None]) -> int:
    """Collect while `command` runs; return its exit code."""
    from chipwatch.report.summary import RunSummary  # noqa: PLC0415  # these take 1 MB, only if there is a command
    from chipwatch.runtime.wrapped import FORWARDED, NotStarted, WrappedCommand, is_first_rank  # noqa: PLC0415

    config, lines, early = this.config, [], list[int]()
    this.make_file()  # nor a file that cannot be written
    handle(FORWARDED, lambda number, _: early.append(number))
    try:
        watched = WrappedCommand(command)
    except NotStarted:
        if this.file:
            this.file.path.unlink()
        raise
    handle(FORWARDED, watched.forward)
    for number in early:  # signals that came while it started
        watched.forward(number, None)
    logs = to_file(config.log_level or "warning", heartbeat.state_folder(config.spool, os.environ) / LOG_NAME)
    summary = RunSummary(watched.pid, config.proc) if not config.quiet and is_first_rank(os.environ) else None

    def on_start(pipeline: Pipeline) -> None:
        if summary:
            summary.listen(pipeline)
            _tell_early(pipeline, watched.tell)

        def end() -> None:
            pipeline.stop()
            end_in_time(watched.code())

        watched.on_end(end)

    with watched:
        this.config = dataclasses.replace(config, pid=watched.pid)
        _collect(this, on_start, watched, with_details=bool(summary))
    with watched:
        if summary:
            files, trouble = (this.recorder.files(), this.recorder.trouble) if this.recorder else ((), "")
            lines = [*summary.lines(watched, files, trouble)]
    for line in (*lines, *logs.trouble(only_errors=config.quiet)):
        tell(line)
    return watched.code()


def _tell_early(pipeline: Pipeline, tell: Callable[[str], None]) -> None:
    """Tell once, EARLY seconds after the start or later, which sinks have got nothing, and why."""
    start = time.monotonic()

    def look() -> None:
        if time.monotonic() - start < EARLY:
            return
        silent = [route for route in pipeline.routes if route.worker.health.delivered is None]
        if all(route.worker.health.last_error for route in silent):
            pipeline.after_tick.remove(look)
            for route in silent:
                why = one_line(route.worker.health.last_error or "")
                tell(f"chipwatch: {route.name}: nothing is sent so far: {why}")

    pipeline.after_tick.append(look)


def _check_command(config: Config) -> None:
    """Raise ConfigError for options that a command after `--` excludes, and for any other fault."""
    if config.pid is not None:
        label = config.sources.get("pid", "pid")
        raise ConfigError(f"{label} {config.pid}: the command after -- is watched instead; leave one of them out")
    if config.stdin:
        label = config.sources.get("stdin", "stdin")
        raise ConfigError(
            f"{label} {config.stdin}: standard input belongs to the command after --; leave one of them out"
        )
    for name, sink in build_sinks(config).items():
        if sink.limits.standard_output:
            raise ConfigError(
                f"sinks.{name}: standard output belongs to the command after --; write to a file with"
                f" [sinks.{name}] path = FILE, or choose another sink"
            )
    validate(config, spared(config))


def _log_to_stderr(config: Config, *, quiet: bool) -> None:
    """Log from `log_level` up, by default from `info`; from `warning` if a script rather than a person waits."""
    to_stderr(config.log_level or ("warning" if quiet or _is_for_script(config) else "info"), config.log_format)


def _is_for_script(config: Config) -> bool:
    """Return whether all points are printed, and not on a terminal."""
    is_terminal = sys.stdout and sys.stdout.isatty()
    return all(sink.limits.standard_output for sink in build_sinks(config).values()) and not is_terminal


def _check_collectors(config: Config) -> None:
    """Raise ConfigError where no collector is left to run."""
    if not chosen("collectors", config) and not config.stdin:
        label, names = config.sources.get("no_collector", "no_collector"), ",".join(config.no_collector)
        raise ConfigError(f"{label} {names}: no collector is left to run; name fewer")


def _check_once(config: Config) -> None:
    """Raise ConfigError where --once ends before anyone could scrape its only sinks; warn of such beside others."""
    scraped = [name for name, sink in build_sinks(config).items() if isinstance(sink, IsScraped)]
    text = f"--once: it ends before anything can scrape {' and '.join(scraped)}; leave it out, or give --duration"
    if scraped and len(scraped) == len(config.sink):
        raise ConfigError(text)
    if scraped:
        log.warning("%s", text)


def _check_sinks(config: Config) -> None:
    """Raise ConfigError for what a sink says is missing; warn where it could be sent all the same."""
    for name, sink in build_sinks(config).items():
        try:
            warning = sink.check_start([*config.common_dims, *config.dims]) if isinstance(sink, ChecksStart) else None
        except ConfigError as problem:
            raise ConfigError(f"{name}: {problem}") from problem
        if warning:
            log.warning("%s: %s", name, warning)


def _renewed(load: Callable[[], Config], newest: _Run, waiting: _Run | None) -> _Run | None:
    """Return the run of a new configuration in the place of one that is `waiting`; None if nothing changed."""
    config = load()
    if config == newest.config:
        return None
    check_places(config)
    validate(config, spared(config))
    new = _Run(config, identify(config, 0.0), newest.record)
    if config.health != newest.config.health:
        new.serve_health()
    if waiting:
        waiting.close()
    return new


def _collect(
    this: _Run, on_start: Callable[[Pipeline], None], watched: WrappedCommand | None = None, *, with_details: bool
) -> bool:
    """
    Run a pipeline to its end; return whether all went well.

    `on_start` is called with it before it starts. `with_details`: collectors read at least the level `detailed`.
    """
    config, common, brief, once = this.config, this.common, this.brief, this.once
    keep, folder = not brief or config.spool is not None, heartbeat.state_folder(config.spool, os.environ)
    ring = None if brief else recorder_options(config)
    least = Level.DETAILED if with_details or this.record else level_of(ring.level if ring and ring.level else "basic")
    state = folder if keep else None
    pipeline = this.pipeline = assemble(config, common.known, common.offer, state, least, spared=spared(config))
    this.start_recorder(folder)
    on_start(pipeline)
    is_durable = any(route.worker.sink.limits.durable for route in pipeline.routes)
    is_shown = keep and not once if is_durable else not (brief or _is_for_script(config))
    alive = contextlib.ExitStack()
    if is_shown:
        from chipwatch.runtime.life import show_life  # noqa: PLC0415  # 0.8 MB with sockets

        alive = show_life(config, folder, pipeline, common, this.seal)
    wanted = Wanted(config, pipeline, brief=brief)
    pipeline.after_tick.append(wanted.look)
    announcements = Announcements(config, pipeline, state)
    pipeline.listeners.append(DeviceLog().take)
    pipeline.start()
    gc.freeze()  # objects that exist now live until the end: the garbage collector can skip them
    if once:
        pipeline.once(min(ONCE_PAUSE, config.interval or ONCE_PAUSE))
    else:
        pipeline.run(this.duration)
    if watched and watched.has_ended:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the last delivery
    this.seal_last(watched)
    text = f"sending the last points, for at most {DEADLINE:g} s; Ctrl-C ends this"
    with say_if_slow(text, watched.standard_error if watched else 2):
        pipeline.close()
    this.close()
    alive.close()
    for route in pipeline.routes if brief else ():
        if not route.worker.join(0):
            log.error("%s: no answer within %g s of the end", route.name, DEADLINE)
    if not watched:
        announcements.end(once=once)
    lost = brief and any(route.spool.lost for route in pipeline.routes)
    for route in pipeline.routes if lost and this.duration is not None and not keep else ():
        if route.spool.lost and route.worker.sink.limits.durable:
            number = count(route.spool.lost, "are")
            log.error("%s: %s lost: --duration keeps no spool; set --spool DIR", route.name, number)
    for text in wanted.undelivered() if brief and not wanted.missing else ():
        log.error("%s", text)
        lost = True
    owes = once and any(route.spool.is_due for route in pipeline.routes)
    return _all_is_well(pipeline, common) and not (lost or wanted.missing or owes)


def _all_is_well(pipeline: Pipeline, common: Identity) -> bool:
    """Log how the inputs ended; return whether each that ended was whole and was sent."""
    ends = [sampler.ended for sampler in pipeline.samplers if sampler.ended]
    for end in ends:
        log.log(logging.INFO if end.clean else logging.ERROR, "%s", text_of(end))
    if common.known() is None:
        left = sum(route.spool.ledger.spooled for route in pipeline.routes)
        unsent = count(left, "were")
        log.error("%s; %s not sent; those on disk are sent after the next start", common.unknown(), unsent)
    return not ends or (all(end.clean for end in ends) and common.known() is not None)


def identify(config: Config, acknowledge: float, *, wrapped: bool = False) -> Identity:
    """
    Return who this machine is, or will be; wait up to `acknowledge` seconds for all of it. Raise UnknownIdentity.

    `wrapped`: a command will run in the cgroup of this process.
    """
    among = sources(os.environ, config.sys, owner_of_watched(config, wrapped=wrapped))
    among = (RecordsSource(), *among) if config.stdin else among
    identity = Identity(config.common_dims, config.dims, among, hints(config))
    identity.start()
    if acknowledge and not identity.wait(acknowledge):
        identity.close()
        raise identity.unknown()
    return identity
