"""`chipwatch run` and `chipwatch record`: check the options, then collect and send until something ends the run."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.base.system import state_folder
from chipwatch.commands import output
from chipwatch.commands.configured import configured, reader
from chipwatch.commands.run_life import AgentRun, is_for_script
from chipwatch.config.identity.local import RecordsSource
from chipwatch.config.identity.resolver import Identity, sources
from chipwatch.config.instances import build_sinks, hints
from chipwatch.config.load import chosen
from chipwatch.config.options import Config
from chipwatch.contract.errors import ConfigError
from chipwatch.engine.build import validate
from chipwatch.engine.clock import Pipeline
from chipwatch.service.log_file import LOG_NAME, to_file
from chipwatch.service.log_formats import to_stderr
from chipwatch.service.signals import Signals, end_in_time, handle, note_hang_ups
from chipwatch.service.wanted import check_places, owner_of_watched, spared

log = logging.getLogger(__name__)

RECORDING: Final = 1.0
"""Default interval of `chipwatch record` (s)."""
SETTLE: Final = 8.0
"""Seconds that --once waits for the identity of this machine."""
EARLY: Final = 15.0
"""Seconds after which a wrapped command's user is warned that a sink could not send anything."""


def main(given: SimpleNamespace) -> int:
    """
    Collect and send until stopped, until `--duration` has passed, or until the command after `--` has ended.

    A command has the terminal until it ends; then a summary is printed. SIGHUP reads the configuration again. With
    `--once` or `--duration`, nothing stays on disk unless the configuration names a spool.
    Return the exit code: that of the command, or 0; 1 if an input ended within a record, if points of `--once` were
    not delivered, or if points of `--duration` were lost.
    Raise ConfigError, NotLoaded, NotStarted or UnknownIdentity before anything is collected.
    """
    config, command = configured(given), given.wrapped
    record, duration = getattr(given, "record", None), getattr(given, "duration", None)
    once, beside = hasattr(given, "once"), (getattr(given, "summary", None), getattr(given, "parent", None))
    if given.command == "record":
        record = _file_of(given.words)
        if "interval" not in config.sources and not config.high_resolution_metrics:
            config = dataclasses.replace(config, interval=RECORDING)
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
        _check_command(config)  # before the command starts: a wrong option must not waste a training run
    identity = identify(config, SETTLE if once else 0.0, wrapped=bool(command))
    current = AgentRun(config, identity, record, once, duration)
    current.serve_health()  # also before the command, because its port may be taken
    if command:
        return _run_command(current, command)
    renew = None if current.brief or config.stdin else partial(_renewed, partial(reader(given), again=True))
    return _run_beside(current, beside, renew, hang_ups)


def _file_of(words: Sequence[str]) -> Path:
    """Return the file to record to; raise ConfigError."""
    if not words:
        raise ConfigError("record: FILE is missing: chipwatch record run.chipwatch, or chipwatch record --seal")
    if len(words) > 1:
        raise ConfigError(f"record: {words[1]}: a recording has one FILE; or write record list, or record export FILE")
    return Path(words[0])


def _run_beside(
    current: AgentRun,
    beside: tuple[Path | None, int | None],
    renew: Callable[[AgentRun, AgentRun | None], AgentRun | None] | None,
    hang_ups: Sequence[int],
) -> int:
    """
    Collect until stopped; return the exit code. Raise ConfigError.

    `beside`: a file for the summary of the watched process, and the parent process whose end also ends the run.
    `renew`: see Signals. `hang_ups`: signals that came before.
    """
    signals, (path, parent) = Signals(current, renew, hang_ups), beside
    if with_details := path is not None:
        from chipwatch.show.report.summary import KeptSummary

        summary = KeptSummary(path, current.config.pid, current.config.proc)

    def on_start(pipeline: Pipeline) -> None:
        signals.watch(pipeline)
        if with_details:
            summary.listen(pipeline)
        if parent is not None:
            pipeline.after_tick.append(lambda: None if os.getppid() == parent else pipeline.stop())

    whole = current.collect(on_start, with_details=with_details)
    while following := signals.take_next():
        current = following
        _log_to_stderr(current.config, quiet=False)
        if not current.health:
            current.serve_health()
        whole = current.collect(on_start, with_details=with_details)
    if with_details:
        summary.keep()  # once more, with the counts of the last delivery
    return 0 if whole else 1


def _run_command(this: AgentRun, command: Sequence[str]) -> int:
    """Collect while `command` runs; return its exit code."""
    from chipwatch.host.wrapped import FORWARDED, NotStarted, WrappedCommand, is_first_rank
    from chipwatch.show.report.summary import RunSummary

    config, lines, early = this.config, [], list[int]()
    this.make_file()  # before the command starts, because it may fail
    handle(FORWARDED, lambda number, _: early.append(number))
    try:
        watched = WrappedCommand(command)
    except NotStarted:
        if this.file:
            this.file.path.unlink()
        raise
    handle(FORWARDED, watched.forward)
    for number in early:  # signals that came while the command started
        watched.forward(number, None)
    logs = to_file(config.log_level or "warning", state_folder(config.spool, os.environ) / LOG_NAME)
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
        this.collect(on_start, watched, with_details=bool(summary))
    with watched:
        if summary:
            files, trouble = (this.recorder.files(), this.recorder.trouble) if this.recorder else ((), "")
            lines = [*summary.lines(watched, files, trouble)]
    for line in (*lines, *logs.trouble(only_errors=config.quiet)):
        output.tell(line)
    return watched.code()


def _tell_early(pipeline: Pipeline, tell: Callable[[str], None]) -> None:
    """Tell the user once, EARLY seconds after the start or later, about sinks that only had errors so far."""
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
    """Raise ConfigError for an option that is not possible with a command after `--`, and for any invalid option."""
    whose = {
        "pid": "the command after -- is watched instead",
        "stdin": "standard input belongs to the command after --",
    }
    for key, why in whose.items():
        if value := getattr(config, key):
            raise ConfigError(f"{config.sources.get(key, key)} {value}: {why}; leave one of them out")
    for name, sink in build_sinks(config).items():
        if sink.limits.standard_output:
            raise ConfigError(
                f"sinks.{name}: standard output belongs to the command after --; write to a file with"
                f" [sinks.{name}] path = FILE, or choose another sink"
            )
    validate(config, spared(config))


def _log_to_stderr(config: Config, *, quiet: bool) -> None:
    """Log to standard error at `log_level`; by default `info`, or `warning` if `quiet` or for a script."""
    to_stderr(config.log_level or ("warning" if quiet or is_for_script(config) else "info"), config.log_format)


def _check_collectors(config: Config) -> None:
    """Raise ConfigError if `no_collector` leaves no collector to run."""
    if not chosen("collectors", config) and not config.stdin:
        label, names = config.sources.get("no_collector", "no_collector"), ",".join(config.no_collector)
        raise ConfigError(f"{label} {names}: no collector is left to run; name fewer")


def _check_once(config: Config) -> None:
    """Raise ConfigError if all sinks of --once wait to be scraped, which nobody can in time; warn if only some do."""
    scraped = [name for name, sink in build_sinks(config).items() if sink.limits.scraped]
    text = f"--once: it ends before anything can scrape {' and '.join(scraped)}; leave it out, or give --duration"
    if scraped and len(scraped) == len(config.sink):
        raise ConfigError(text)
    if scraped:
        log.warning("%s", text)


def _check_sinks(config: Config) -> None:
    """Let each sink check the configuration: raise ConfigError for a fault, log a warning for less."""
    for name, sink in build_sinks(config).items():
        try:
            warning = sink.check_start([*config.common_dims, *config.dims])
        except ConfigError as problem:
            raise ConfigError(f"{name}: {problem}") from problem
        if warning:
            log.warning("%s: %s", name, warning)


def _renewed(load: Callable[[], Config], newest: AgentRun, waiting: AgentRun | None) -> AgentRun | None:
    """Return a run with the present configuration, None if it is unchanged; close the run that was `waiting`."""
    config = load()
    if config == newest.config:
        return None
    check_places(config)
    validate(config, spared(config))
    new = AgentRun(config, identify(config, 0.0), newest.record)
    if config.health != newest.config.health:
        new.serve_health()
    if waiting:
        waiting.close()
    return new


def identify(config: Config, acknowledge: float, *, wrapped: bool = False) -> Identity:
    """
    Start to find the identity of this machine; wait up to `acknowledge` seconds for it. Raise UnknownIdentity.

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
