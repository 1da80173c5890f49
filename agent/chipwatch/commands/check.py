"""
`chipwatch check`: reads each collector once, opens each sink, and prints a line about each.

`chipwatch status --spool FOLDER`: what the spools of an agent keep, also while none runs.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from chipwatch.advisor.advisors import advisor_of
from chipwatch.base.redaction import one_line
from chipwatch.base.system import state_folder
from chipwatch.base.text import count, duration, is_lacking
from chipwatch.commands import answers, bundle
from chipwatch.commands.configured import configured
from chipwatch.commands.health import folder_of
from chipwatch.commands.output import FAILED, OK, say_if_slow, show
from chipwatch.config import plugins
from chipwatch.config.identity.resolver import Identity, UnknownIdentity, sources
from chipwatch.config.instances import NotLoaded, build_collectors, build_plugin, build_processors, build_sinks, hints
from chipwatch.config.load import asked_collectors, chosen
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Datapoint, Dimensions, gauge
from chipwatch.contract.errors import BadBatch, ConfigError, Refused, Retryable, os_text
from chipwatch.contract.sink import Sink, destination_of
from chipwatch.engine import preflight
from chipwatch.engine.build import build_sources, declared, duplicates, faults, spool_path, validate, view
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.derivation import Derivation
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.spool.file import Chunk, Ledger, shown
from chipwatch.engine.spool.sqlite import FILES, Store, Tables, refuse_links, set_file_aside
from chipwatch.jobs.verdict.callers import NOT_FIT
from chipwatch.jobs.verdict.rules import LOGGED, Seen, reasons
from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.service.wanted import absent, check_places, owner_of_watched
from chipwatch.show.report.amounts import binary, utc

TIMEOUT: Final = 8.0
"""Seconds to wait for the identity of this machine."""
PAUSE: Final = 0.3
"""Seconds between the two readings of a check."""
CHECK: Final = gauge("agent.check", "1", "The test point of `chipwatch check --send`; always 1.")
UNREAD: Final = tuple(f"SQLITE_{word}" for word in ("BUSY", "CANTOPEN", "FULL", "IOERR_SHM", "PERM", "READONLY"))
"""Starts of the names of SQLite's errors that say nothing about the content of a file."""
RFC3339: Final = "%Y-%m-%dT%H:%M:%SZ"
CheckLine = tuple[bool, str]
"""A line of the report: False if it is a fault, and its text."""


def main(given: SimpleNamespace) -> int:
    """Print a line for each part, then the faults and their number; return FAILED if there is a fault."""
    config = configured(given)
    logging.disable(logging.ERROR)  # each line of the report says what is wrong
    if hasattr(given, "bundle"):
        bundle.check_new(Path(given.bundle))
    lines, faults, missing, machine = [], [], [], dict[str, str]()
    for good, line in check(config, machine, send=hasattr(given, "send")):
        lines.append(one_line(line))
        if not good:
            faults.append(lines[-1])
        elif (name := name_if_absent(lines[-1])) and not hasattr(given, "verbose"):
            missing.append(name)
        else:
            show(lines[-1])
    if missing:
        show(f"absent here: {', '.join(missing)} (-v says why)")
    show("\n".join((*faults, summary(lines, len(faults)))))
    if hasattr(given, "bundle"):
        bundle.pack(Path(given.bundle), config, lines, machine)
        show(f"bundle     {given.bundle}: read it before you send it; names, addresses and secrets are replaced")
    return FAILED if faults else OK


def _line(kind: str, name: str, word: str, text: object, *, good: bool | None = None, width: int = 12) -> CheckLine:
    """Return a line of the report; a line with the word FAILED is a fault unless `good` is given."""
    return (word != "FAILED" if good is None else good), f"{kind:10} {name:{width}} {word:8} {text}"


def check(config: Config, machine: dict[str, str], *, send: bool = False) -> Iterator[CheckLine]:
    """
    Read each collector once and open each sink; yield a line for each. Raise ConfigError.

    With `send`, each sink sends one test point. The dimensions of this machine are added to `machine`.
    """
    check_places(config)
    validate(config, with_refusals=False)
    collectors, processors, sinks = build_collectors(config), build_processors(config), build_sinks(config)
    samplers, derivations = build_sources(collectors, processors, config)
    pipeline = Pipeline(samplers, (), interval=8.0, derivations=derivations)
    ticks: list[Sequence[Datapoint]] = []
    pipeline.listeners.append(lambda points, _: ticks.append(points))
    pipeline.start()
    pipeline.once(PAUSE)
    yield from _lines_of_left_out("collectors", collectors, config)
    by_name = {sampler.name: sampler for sampler in samplers}
    missing = {name for names in asked_collectors(config) if absent(by_name, names) for name in names}
    for sampler in samplers:
        asked_for = sampler.name in {*missing, *config.collector, *config.collectors}
        yield _plugin_line(sampler, missing=sampler.name in missing, asked_for=asked_for)
    last = ticks[-1] if ticks else ()
    for reason in reasons(Seen(one.metric.name, one.dims, one.value) for one in last if one.metric.name in LOGGED):
        word = "FAILED" if reason.severity == NOT_FIT else "DEGRADED"
        yield _line("device", reason.about, word, f"{reason.says}. {reason.do}")
    yield from _lines_of_left_out("processors", processors, config)
    for derivation in derivations:
        yield _plugin_line(derivation)
    among = sources(os.environ, config.sys, owner_of_watched(config))
    identity = Identity(config.common_dims, config.dims, among, hints(config))
    identity_lines = [*_identity_lines(identity, config)]
    machine.update(identity.known() or {})
    for name, sink in sinks.items():
        common = view(identity.known, sink, config, hints(config))() if send else None
        spool = spool_path(name, sink, state_folder(config.spool, os.environ))
        for good, line in _sink_lines(name, sink, spool, common):
            is_held = not good and sink.limits.scraped
            yield (_held(config, name, line) if is_held else None) or (good, line)
        yield from _fault_lines(name, faults(name, sink, config, declared(collectors, processors)))
        try:
            advisor_of(name, config)
        except ConfigError as problem:
            yield _line("sink", name, "FAILED", problem)
    for name, text in duplicates(sinks, config, collectors):
        yield _line("sink", name, "twice", text)
    pipeline.close(0)
    yield from identity_lines
    dims = {word: machine[word] for word in config.common_dims if word in machine and word not in config.dims}
    for name, sink in sinks.items():
        yield from _fault_lines(name, preflight.dimension_faults(name, sink, dims, "common_dims"))


def _held(config: Config, name: str, problem: str) -> CheckLine | None:
    """Return a good line for a sink that failed because the running agent holds its port; otherwise None."""
    if os.strerror(errno.EADDRINUSE) not in problem:
        return None
    with suppress(NoAgent):
        running = ask(state_folder(config.spool, os.environ), "status")
        theirs = running.get("sinks", {}).get(name, {})
        if theirs and not theirs.get("last_error"):
            return _line("sink", name, "ok", f"the running agent (pid {running.get('pid')}) holds its port")
    return None


def name_if_absent(line: str) -> str | None:
    """Return the plugin's name if its line says that its hardware or configuration is absent; otherwise None."""
    kind, name, word, text = [*line.split(maxsplit=3), "", "", "", ""][:4]
    return name if kind in ("collector", "processor") and word == "absent" and is_lacking(text) else None


def summary(lines: Iterable[str], faults: int) -> str:
    """Return the last line of the report: the number of working parts, or of faults above."""
    if faults:
        return f"not fine: {faults} fault{'s' * (faults > 1)}, in the line{'s' * (faults > 1)} above"
    words = Counter(tuple(line.split()[:3:2]) for line in lines)
    read, sinks = words["collector", "ok"], words["sink", "ok"]
    return f"fine: {read} collector{'s' * (read != 1)} read, {sinks} sink{'s' * (sinks != 1)} ready"


def _fault_lines(name: str, reported: Iterable[preflight.Fault]) -> Iterator[CheckLine]:
    return (_line("sink", name, "FAILED", fault.text) for fault in reported)


def _lines_of_left_out(group: str, built: Collection[str], config: Config) -> Iterator[CheckLine]:
    """Yield a line for each plugin of `group` that could not be built, so that the agent runs without it."""
    for name in chosen(group, config):
        if name not in built:
            try:
                build_plugin(f"chipwatch.{group}", name, config)
            except (ConfigError, NotLoaded) as problem:
                yield _line(group.removesuffix("s"), name, "FAILED", problem)


def _plugin_line(runner: Sampler | Derivation, *, missing: bool = False, asked_for: bool = False) -> CheckLine:
    """Return the line about a collector or processor; `asked_for`: a partial failure is a fault."""
    kind = "collector" if isinstance(runner, Sampler) else "processor"
    if isinstance(runner, Sampler) and runner.unavailable is not None:
        return _line(kind, runner.name, "MISSING" if missing else "absent", runner.unavailable, good=not missing)
    if runner.ok is False or (runner.ok is None and kind == "collector"):
        return _line(kind, runner.name, "FAILED", runner.trouble or "its reading does not return")
    try:
        with plugins.blamed(f"chipwatch.{kind}s", runner.name, "describe fails"):
            plugin = runner.collector if isinstance(runner, Sampler) else runner.processor
            description = f"{plugin.describe()}"
    except ConfigError as bug:
        return _line(kind, runner.name, "FAILED", bug)
    earlier = None if runner.yielded else runner.earlier
    troubles = filter(None, dict.fromkeys((runner.trouble, earlier, *runner.validation.breaches.values())))
    trouble = "".join(f"; in part: {text}" if n == 0 else f"; {text}" for n, text in enumerate(troubles))
    level = " at this level" if kind == "collector" and not (runner.yielded or trouble) else ""
    text = f"{runner.yielded} series{level}{f': {description}' if description else ''}{trouble}"
    good = not (trouble and asked_for)
    return _line(kind, runner.name, "ok" if good else "IN PART", text, good=good)


def _sink_lines(name: str, sink: Sink, spool: Path | None, common: Dimensions | None) -> Iterator[CheckLine]:
    """Open a sink and check its spool; if `common` is given, send a test point with these dimensions."""
    try:
        with plugins.blamed(plugins.SINKS, name, "it fails", (Retryable, Refused, BadBatch)):
            sink.open()
            destination = destination_of(sink)
            text = f"{sink.describe()}" or ", ".join(f"{key} {value}" for key, value in destination.items() if value)
            contact = "; not contacted: --send sends a test point" if sink.limits.durable else ""
            with say_if_slow(f"waiting for {name}"):
                rejected = sink.write([CHECK.point(time.time_ns(), 1.0, common)]) if common is not None else []
            if common is not None:
                contact = f"; {CHECK.name}: {f'rejected: {rejected[0].reason}' if rejected else 'accepted'}"
        yield _line("sink", name, "FAILED" if rejected else "ok", f"{text}{contact}")
    except (Retryable, Refused, BadBatch, ConfigError) as problem:
        yield _line("sink", name, "FAILED", problem)
    try:
        with plugins.blamed(plugins.SINKS, name, "close fails"):
            sink.close()
    except ConfigError as problem:
        yield _line("sink", name, "FAILED", problem)
    if spool and (fault := _spool_fault(spool)):
        text = f"{fault}; points would be kept in memory only: choose another --spool"
        yield _line("spool", name, "FAILED", text)


def _spool_fault(path: Path) -> str | None:
    """Return why `path` cannot be a spool; None if it can. Write nothing."""
    try:
        refuse_links(path)
        for file in (path, path.with_suffix(".lock"), Path(f"{path}-wal")):
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(file.lstat().st_mode):
                    return f"{file} is not a regular file"
        there = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
        folder = path.parent if there == path else there
        return next((f"{place} is not writable" for place in (there, folder) if not os.access(place, os.W_OK)), None)
    except OSError as problem:
        return f"{problem.filename or path}: {os_text(problem)}"


def _identity_lines(identity: Identity, config: Config) -> Iterator[CheckLine]:
    """Yield a line for each dimension with its source, then a line with all, or why they are unknown."""
    with suppress(UnknownIdentity):
        identity.start()
        identity.wait(TIMEOUT)
    identity.close()
    dims = identity.known()
    for word, value, remark in identity.entries():
        if value is not None:
            yield _line("identity", word, "ok", f"{value}, from {remark}", width=18)
        elif dims is not None:
            yield _line("identity", word, "absent", f"left out until it is known: {remark}", width=18)
    if dims is None:
        yield False, f"identity   FAILED   {identity.unknown()}"
    else:
        common = (f"{key}={dims[key]}" for key in dims if key in {*config.common_dims, *config.dims})
        yield True, f"identity   {', '.join(common) or 'no common dimensions asked for'}"


def spools(given: SimpleNamespace) -> int:
    """
    Print the agent's state if one runs, and what its spools keep; return FAILED if a part of these is damaged.

    With `--repair`, set damaged files aside and return OK. Raise NoAgent if there is neither, or ConfigError.
    """
    folder, code = folder_of(given), OK
    path = folder
    try:
        paths = [path for path in sorted(folder.glob("*.db")) if path.is_symlink() or path.stat().st_size]
        try:
            answers.status(given)
        except NoAgent:
            if not paths:
                raise
            show(f"no agent runs in {folder}")
        for path in paths:
            survey = repair(path) if hasattr(given, "repair") else Survey(path)
            show("\n".join(map(one_line, survey.lines())))
            code = FAILED if survey.damaged and not survey.aside else code
    except (OSError, *Tables.failures) as problem:
        raise ConfigError(f"{path}: {os_text(problem)}") from problem
    return code


class Survey:
    """One spool: the chunks that it keeps, and its damaged parts."""

    def __init__(self, path: Path) -> None:
        """Read all that can be read; raise OSError or sqlite3.Error if the file cannot be opened."""
        self.path, self.aside, self.ledger, self.memos = path, "", Ledger(), dict[str, bytes]()
        self.damaged: dict[str, str] = {}
        """The fault of each damaged part."""
        self.chunks: dict[int, tuple[Chunk, int, int]] = {}
        """Key -> chunk, and the times of its oldest and newest point that waits (ns since the epoch)."""
        with closing(Tables(path)) as tables:
            # From both ends: a damaged page then hides only its own chunks.
            for read in (self._read_chunks, lambda of: self._read_chunks(of, newest_first=True), Tables.check):
                try:
                    read(tables)
                except Tables.failures as problem:
                    if getattr(problem, "sqlite_errorname", "").startswith(UNREAD):
                        raise
                    self.damaged["the file"] = str(problem)
            with suppress(*Tables.failures):
                self.ledger.add(tables.ledger())
                self.memos = tables.memos()
        if "no such table" in self.damaged.get("the file", "") and not (self.ledger.collected or self.memos):
            raise OSError("it is a database of another program: give the folder of an agent's spool")
        if not self.damaged and (missing := self.ledger.balance()):
            text = f"it counts {count(missing)} that no chunk has" if missing > 0 else "it counts too few points"
            self.damaged["the ledger"] = text

    def _read_chunks(self, tables: Tables, *, newest_first: bool = False) -> None:
        for chunk in tables.rows(newest_first=newest_first):
            if chunk.key in self.chunks:
                return
            try:
                times = [point.at for point in tables.read(chunk)[0][chunk.done :]]
            except (LookupError, *Tables.failures) as problem:
                known = f"; {count(chunk.left)} until {utc(chunk.newest, RFC3339)}" if chunk.left else ""
                self.damaged[f"chunk {chunk.key}"] = f"{problem}{known}"
                continue
            self.chunks[chunk.key] = chunk, min(times), max(times)
            self.ledger.spooled += chunk.left

    def lines(self) -> list[str]:
        """Return the ledger, a line for each destination and each damaged part, and how many points are lost."""
        lines, name, lost = [f"{self.path}: {self.ledger}"], self.path.stem, self.ledger.balance()
        for label in dict.fromkeys(chunk.destination for chunk, _, _ in self.chunks.values()):
            its = [of for of in self.chunks.values() if of[0].destination == label]
            chunks, oldest, newest = zip(*its, strict=True)
            points, size = sum(chunk.left for chunk in chunks), binary(sum(chunk.size for chunk in chunks))
            age = duration(max(0.0, (time.time_ns() - min(oldest)) / 1e9), 2)
            span = f"{utc(min(oldest), RFC3339)} ({age} ago) to {utc(max(newest), RFC3339)}"
            lines.append(f"{name}: {count(points, 'wait')} ({size}) from {span} for {shown(label)}")
        lines += [f"damaged: {self.path}, {part}: {why}" for part, why in self.damaged.items()]
        if self.damaged:
            text = f"{count(lost, 'are')} lost" if lost >= 0 and self.ledger.collected else "the loss is not known"
            lines.append(f"{name}: {text}; {self.aside or 'stop the agent, then use --repair'}")
        return lines


def repair(path: Path) -> Survey:
    """
    Put what can be read of a damaged spool into a new file, and rename the old one; return what was found.

    Raise OSError, also while an agent holds the spool, or sqlite3.Error.
    """
    new = path.with_suffix(".repaired")
    with closing(Store(new)) as store, ExitStack() as at_end:  # its lock is that of `path`
        for suffix in FILES:
            at_end.callback(Path(f"{new}{suffix}").unlink, missing_ok=True)  # also where the disk is full
        # A repair that was killed has left a part.
        store.acknowledge([of.key for of in store.chunks()], None, {of: -n for of, n in store.ledger().items()})
        survey = Survey(path)
        with closing(Tables(path)) as old:
            for _, (chunk, *_) in sorted(survey.chunks.items()) if survey.damaged else ():
                points, common = old.read(chunk)
                store.add(replace(chunk, points=points[chunk.done :], count=chunk.left, common=common))
        lost, change = survey.ledger.balance(), Counter(survey.ledger.ended())
        change["dropped:unreadable" if lost > 0 else "collected"] += abs(lost)
        store.acknowledge([], None, change, **survey.memos)
        store.shrink(always=True)  # fails on a full disk, where a close would leave all in the WAL
        Tables.close(store)  # the lock stays until each file has its name
        if survey.damaged:
            os.chown(new, path.lstat().st_uid, path.lstat().st_gid, follow_symlinks=False)  # root may repair
            ending = f".damaged-{utc(time.time_ns(), '%Y%m%dT%H%M%SZ')}"
            set_file_aside(path, survey.damaged, ending)
            new.rename(path)
            survey.aside = f"the damaged file is {path.with_suffix(ending)}, and a new one has the rest"
    return survey
