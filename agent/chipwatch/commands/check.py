"""`chipwatch check`: reads each collector once, opens each sink, and prints a line about each."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from chipwatch.advisor.advisors import advisor_of
from chipwatch.base.redaction import one_line
from chipwatch.base.system import state_folder
from chipwatch.base.text import count, is_lacking
from chipwatch.commands import bundle
from chipwatch.commands.configured import configured
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
from chipwatch.engine.spool.file import Ledger, fits, shown
from chipwatch.engine.spool.sqlite import refuse_links, verified
from chipwatch.jobs.verdict.callers import NOT_FIT
from chipwatch.jobs.verdict.rules import LOGGED, Seen, reasons
from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.service.wanted import absent, check_places, owner_of_watched

TIMEOUT: Final = 8.0
"""Seconds to wait for the identity of this machine."""
PAUSE: Final = 0.3
"""Seconds between the two readings of a check."""
CHECK: Final = gauge("agent.check", "1", "The test point of `chipwatch check --send`; always 1.")
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
    destination: Mapping[str, str] = {}
    try:
        with plugins.blamed(plugins.SINKS, name, "it fails", (Retryable, Refused, BadBatch)):
            destination = destination_of(sink)
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
    if spool is None:
        return
    if fault := _spool_fault(spool):
        text = f"{fault}; points would be kept in memory only: choose another --spool"
        yield _line("spool", name, "FAILED", text)
    elif spool.exists():
        yield from _spool_lines(name, spool, destination)


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


def _spool_lines(name: str, path: Path, destination: Mapping[str, str]) -> Iterator[CheckLine]:
    """Check that the ledger of a spool balances. Write and lock nothing: a running agent may use it."""
    ledger, by_label = Ledger(), Counter[bytes]()
    try:
        refuse_links(path)
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            ledger.add(dict(db.execute("SELECT entry, points FROM ledger")))
            ledger.spooled = db.execute("SELECT coalesce(sum(points - done), 0) FROM chunk").fetchone()[0]
            rows = db.execute("SELECT destination, sum(points - done) FROM chunk GROUP BY destination")
            by_label.update({label: points for text, points in rows if (label := verified(text)) is not None})
    except (OSError, sqlite3.Error) as problem:
        yield _line("spool", name, "FAILED", f"{path}: {problem}")
        return
    yield _line("spool", name, "FAILED" if ledger.balance() else "ok", f"{path}: {ledger}")
    for label, points in by_label.items():
        if not fits(label, destination):
            yield _line("spool", name, "apart", f"{count(points, 'wait')} for another destination: {shown(label)}")


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
