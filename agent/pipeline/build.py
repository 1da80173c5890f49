"""A configuration -> the parts that do it, put together."""

from __future__ import annotations

import logging
import os
import platform
import queue
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from agent.collector import Collector
from agent.config import load as configuration
from agent.config import plugins
from agent.config.convert import ConfigError
from agent.config.load import Config, SinkOptions
from agent.datapoint import HIDDEN, Datapoint, Dimensions, Level, Metric
from agent.naming import rename
from agent.pipeline import preflight
from agent.pipeline.cardinality_limit import CardinalityLimit
from agent.pipeline.clock import Pipeline
from agent.pipeline.delivery import Worker
from agent.pipeline.derivation import Derivation
from agent.pipeline.route import Filter, Route
from agent.pipeline.sampler import Reading, Sampler
from agent.pipeline.self_metrics import AgentCollector
from agent.pipeline.window import Window
from agent.processor import Processor
from agent.sink import Limits, Sink
from agent.spool.queue import Spool
from agent.status.heartbeat import state_folder

log = logging.getLogger(__name__)

FIRST: Final = 10.0
"""Seconds after which the first window of all ends: who sets an agent up need not wait for a minute to see it."""


class NotLoaded(Exception):
    """A plugin that was asked for cannot be imported; the message says what to install."""


def load_plugin(group: str, name: str, config: Config) -> Any:
    """Import the class of one plugin, for a sink that of its type; raise ConfigError, or NotLoaded."""
    registered = configuration.sink_type(name, config) if group == plugins.SINKS else name
    try:
        cls = plugins.load(group, registered)
        for module in getattr(cls, "needs", ()):
            if find_spec(module.partition(".")[0]) is None or find_spec(module) is None:
                raise ModuleNotFoundError(f"No module named {module!r}")
    except ImportError as problem:
        kind = group.removeprefix("agent.").removesuffix("s")
        extra = f"; install chipwatch with the extra '{registered}'" if isinstance(problem, ModuleNotFoundError) else ""
        raise NotLoaded(f"{kind} {name} cannot be loaded: {problem}{extra}") from problem
    plugins.check(group, registered, cls)
    return cls


def build_plugin(group: str, name: str, config: Config) -> Any:
    """Import and build one plugin; raise ConfigError, or NotLoaded."""
    cls = load_plugin(group, name, config)
    return plugins.build(group, name, cls, configuration.plugin_config(cls, group.removeprefix("agent."), name, config))


def build_collectors(config: Config) -> dict[str, Collector]:
    """
    Return the collectors that the configuration asks for, or all that are installed; raise as build_plugin.

    One that is fed from standard input is always among them.
    """
    fed = (config.stdin,) if config.stdin else ()
    wanted = dict.fromkeys((*(config.collector or plugins.installed(plugins.COLLECTORS)), *fed))
    return _build_all(plugins.COLLECTORS, [name for name in wanted if name not in config.no_collector], config)


def build_processors(config: Config) -> dict[str, Processor]:
    """Return the processors that the configuration asks for, or all that are installed; raise as build_plugin."""
    wanted = {*(config.processor or plugins.installed(plugins.PROCESSORS))} - {*config.no_processor}
    return _build_all(plugins.PROCESSORS, sorted(wanted), config)


def _build_all(group: str, names: Iterable[str], config: Config) -> dict[str, Any]:
    """Build these plugins; leave one out that cannot be loaded, unless the configuration names those it wants."""
    found = {}
    for name in names:
        try:
            found[name] = build_plugin(group, name, config)
        except NotLoaded as problem:
            if getattr(config, group.removeprefix("agent.").removesuffix("s")):
                raise
            log.warning("%s", problem)
    return found


def build_sinks(config: Config) -> dict[str, Sink]:
    """Return the sinks that the configuration asks for, by the name of each; raise as build_plugin."""
    return {name: build_plugin(plugins.SINKS, name, config) for name in config.sink}


def hints(config: Config) -> tuple[str, ...]:
    """Return the words that some sink needs to be known of this machine for itself; raise NotLoaded."""
    return tuple(sorted({word for name in config.sink for word in load_plugin(plugins.SINKS, name, config).hints}))


def view(
    known: Callable[[], Dimensions | None], sink: Sink, config: Config, sought: Sequence[str]
) -> Callable[[], Dimensions | None]:
    """Return `known` as `sink` is to see it: what all points carry, and what was `sought` for it alone, under `@`."""
    if not sought:
        return known
    seen: tuple[Dimensions | None, Dimensions | None] = (None, None)
    public = {*config.common_dims, *config.dims}

    def common() -> Dimensions | None:
        nonlocal seen
        now = known()
        if now is not None and now is not seen[0]:
            dims = {word: value for word, value in now.items() if word in public or word not in sought}
            seen = (now, Dimensions(dims | {f"{HIDDEN}{word}": now[word] for word in sink.hints if word in now}))
        return None if now is None else seen[1]

    return common


def level_wanted(config: Config, least: Level = Level.BASIC) -> Level:
    """Return the highest level that any sink wants, and at least `least`."""
    wanted = [configuration.sink_options(name, config).level or config.level for name in config.sink]
    return max([least, *(configuration.level_of(level) for level in wanted)])


def build_samplers(
    collectors: Iterable[tuple[str, Collector]],
    config: Config,
    readings: queue.SimpleQueue[Reading],
    learn: Callable[[Mapping[str, str]], None] = lambda _: None,
    least: Level = Level.BASIC,
) -> list[Sampler]:
    """Return a sampler for each collector; `learn` is told what readings say of this machine's identity."""
    level = level_wanted(config, least)
    return [Sampler(name, collector, level, readings, learn=learn) for name, collector in collectors]


def build_derivations(processors: Mapping[str, Processor], config: Config) -> list[Derivation]:
    """Return what runs each processor."""
    level = level_wanted(config)
    return [Derivation(name, processor, level) for name, processor in processors.items()]


def spool_folder(config: Config) -> Path:
    """Return where spools live."""
    return state_folder(config.spool, os.environ)


def spool_path(name: str, sink: Sink, config: Config) -> Path | None:
    """Return the spool's file of a durable sink, None for another."""
    return spool_folder(config) / f"{name}.db" if sink.limits.durable else None


def validate(config: Config, *, judged: bool = True) -> None:
    """Build every plugin and nothing else; raise ConfigError, also, if `judged`, for what a sink takes nothing of."""
    _check_dims(config)
    metrics = declared(build_collectors(config), build_processors(config))
    for name, sink in build_sinks(config).items():
        window_length(name, sink, config)
        if judged:
            refusals(name, sink, config, metrics)
    _renamer(config)


def declared(collectors: Mapping[str, Collector], processors: Mapping[str, Processor]) -> list[Metric]:
    """Return all metrics that these may yield."""
    sources: list[Collector | Processor] = [*collectors.values(), *processors.values()]
    return [metric for source in sources for metric in source.metrics]


def refusals(name: str, sink: Sink, config: Config, metrics: Sequence[Metric]) -> list[str]:
    """Return what the sink will never take of this configuration; raise ConfigError where that is everything."""
    found = faults(name, sink, config, metrics)
    if whole := next((fault.text for fault in found if fault.whole), None):
        raise ConfigError(whole)
    return [fault.text for fault in found]


def faults(name: str, sink: Sink, config: Config, metrics: Sequence[Metric]) -> list[preflight.Fault]:
    """Return what the sink will never take of these metrics under this configuration, by its own rules."""
    wanted = build_filter(configuration.sink_options(name, config), sink.limits, config).wants
    metrics = [metric for metric in metrics if wanted(metric)]
    return list(
        preflight.faults(name, sink, config.dims, words=config.common_dims, metrics=metrics, rename=_renamer(config))
    )


def duplicates(
    sinks: Mapping[str, Sink], config: Config, collectors: Mapping[str, Collector]
) -> Iterator[tuple[str, str]]:
    """Yield the name of each sink that sends a metric where another of its type sends it, and a sentence."""
    metrics = [metric for collector in collectors.values() for metric in collector.metrics]
    others: dict[Any, tuple[str, Filter]] = {}
    for name, sink in sinks.items():
        wanted = build_filter(configuration.sink_options(name, config), sink.limits, config)
        place: frozenset[tuple[str, str]] = frozenset()
        with suppress(ConfigError), plugins.blamed(plugins.SINKS, name, "destination fails"):
            place = frozenset(sink.destination().items())
        if not place:
            continue
        other, theirs = others.setdefault((type(sink), place), (name, wanted))
        both = (metric.name for metric in metrics if wanted.wants(metric) and theirs.wants(metric))
        if other != name and (twice := next(both, None)):
            yield name, f"{twice} (and perhaps more) goes where {other} sends it, too: set include or exclude in one"


def _check_dims(config: Config) -> None:
    """Refuse dimensions that no spool can hold, before they cost every point."""
    for key, value in config.dims.items():
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError:
            raise ConfigError(f"dim: {key!a}={value!a} is not UTF-8") from None


def _renamer(config: Config) -> Callable[[Datapoint], Datapoint] | None:
    try:
        return rename.renamer(config.names)
    except LookupError as problem:
        raise ConfigError(str(problem)) from problem


def build_filter(options: SinkOptions, limits: Limits, config: Config) -> Filter:
    """Return what a sink wants; where each series costs, the agent's own only if `include` names them."""
    exclude = options.exclude
    if limits.max_series is not None and not any(glob.startswith("agent.") for glob in options.include):
        exclude = (*exclude, "agent.*")
    return Filter(configuration.level_of(options.level or config.level), options.include, exclude)


def window_length(name: str, sink: Sink, config: Config) -> float:
    """Return the seconds of samples that become one point of `sink`; raise ConfigError if it takes none so near."""
    wanted, limits = configuration.sink_options(name, config).window, sink.limits
    length = limits.window if wanted is None else wanted
    if length < limits.spacing:
        why = ": high_resolution_metrics asks for it" if config.high_resolution_metrics else ""
        raise ConfigError(
            f"sinks.{name}.window: {length:g} s is too short{why}; {name} takes two points of a series only if they"
            f" are {limits.spacing:g} s apart: set [sinks.{name}] window = {limits.spacing:g} or more"
        )
    return length


def build_route(
    name: str,
    sink: Sink,
    config: Config,
    common: Callable[[], Dimensions | None],
    *,
    born: int,
    on_closed: Callable[[], None],
    keep: bool = True,
) -> Route:
    """Return the way from samples to `sink`; what it is owed is kept on disk if it is durable, and with `keep`."""
    options, limits = configuration.sink_options(name, config), sink.limits
    length = window_length(name, sink, config)
    with plugins.blamed(plugins.SINKS, name, "destination fails"):
        destination = sink.destination()
    spool = Spool(
        name,
        spool_path(name, sink, config) if keep else None,
        max_bytes=config.spool_bytes,
        max_age=limits.max_age,
        destination=destination,
        drop_others=config.drop_other_destinations,
    )
    worker = Worker(
        name,
        sink,
        spool,
        common=common,
        rename=_renamer(config),
        flush=limits.flush if options.flush is None else options.flush,
        offset=zlib.crc32(platform.node().encode()) / 2**32,
        on_closed=on_closed,
    )
    ended = spool.newest() if limits.spacing else None
    window = Window(length, born=born, increases=limits.increases, spacing=limits.spacing, ended=ended, first=FIRST)
    chosen = build_filter(options, limits, config)
    most = limits.max_series if options.max_series is None else options.max_series
    budget = CardinalityLimit(name, most) if most else None
    return Route(chosen, window, spool, worker, common, budget=budget, copies=rename.copier(config.names))


def assemble(
    config: Config,
    common: Callable[[], Dimensions | None],
    learn: Callable[[Mapping[str, str]], None] = lambda _: None,
    *,
    keep: bool = True,
    least: Level = Level.BASIC,
) -> Pipeline:
    """
    Return the whole pipeline, not yet started; raise ConfigError or NotLoaded.

    `common` gives the dimensions of this machine, or None while they are not known; `learn` is told what readings
    say of them. With `keep`, what durable sinks are owed is kept on disk. Collectors read metrics of level `least`, and
    of any higher level that a sink wants.

    It stops by itself when every sink has lost its far side for good.
    """
    _check_dims(config)
    born = time.time_ns()
    own = AgentCollector(start_time=born)
    collectors = {**build_collectors(config), "agent": own}
    processors = build_processors(config)
    sinks, sought = build_sinks(config), hints(config)
    for name, sink in sinks.items():
        for refusal in refusals(name, sink, config, declared(collectors, processors)):
            log.error("%s", refusal)
    for name, twice in duplicates(sinks, config, collectors):
        log.warning("sinks.%s: %s", name, twice)
    readings: queue.SimpleQueue[Reading] = queue.SimpleQueue()
    samplers = build_samplers(collectors.items(), config, readings, learn, least)
    left = set(sinks)

    def gone(name: str) -> None:
        left.discard(name)
        if not left:
            pipeline.stop()

    routes = [
        build_route(
            name, sink, config, view(common, sink, config, sought), born=born, on_closed=partial(gone, name), keep=keep
        )
        for name, sink in sinks.items()
    ]
    assert config.interval is not None
    derivations = build_derivations(processors, config)
    pipeline = Pipeline(samplers, routes, readings, interval=config.interval, derivations=derivations)
    own.watch(samplers, routes, lambda: pipeline.missed, lambda: pipeline.failed, derivations)
    return pipeline
