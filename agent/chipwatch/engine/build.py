"""Builds the pipeline that a configuration describes: collectors, processors and sinks, with all that is between."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from chipwatch.config import plugins
from chipwatch.config.instances import build_collectors, build_processors, build_sinks, hints
from chipwatch.config.load import asked_collectors, collector_options, label_of, sink_options
from chipwatch.config.naming import rename
from chipwatch.config.naming.profiles import profiles
from chipwatch.config.options import Config, SinkOptions
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import HIDDEN, Dimensions, Level, Metric
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.owner import Owner
from chipwatch.contract.processor import Processor
from chipwatch.contract.sink import Limits, Sink, destination_of
from chipwatch.engine import preflight
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Schedule, SinkDelivery, Worker
from chipwatch.engine.derivation import Derivation
from chipwatch.engine.owners import OwnerLabels
from chipwatch.engine.route import Admission, MetricFilter, Route
from chipwatch.engine.sampler import RETRY, Sampler
from chipwatch.engine.self_metrics import AgentCollector
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window

log = logging.getLogger(__name__)

RETRY_ASKED: Final = 60.0
"""Seconds after which a collector that the user asked for, and that found nothing to read, is tried again."""
FIRST_WINDOW: Final = 9.0
"""Seconds after which the very first window ends: the first points then arrive early, with the tick at 10 s."""
FIRST_WAIT: Final = 5.0
"""Longest delay of the first delivery in seconds; each host of a fleet has another delay."""


def view(
    identity: Callable[[], Dimensions | None], sink: Sink, config: Config, sought: Sequence[str]
) -> Callable[[], Dimensions | None]:
    """
    Return a function like `identity`, for one sink: the machine's dimensions, and the sink's hints with keys under `@`.

    Hints are words of `--common-dims` that a sink needs and does not send as dimensions. `sought` are the hints of all
    sinks; a sink does not get the hints of others.
    """
    if not sought:
        return identity
    public = {*config.common_dims, *config.dims}

    @lru_cache(maxsize=1)
    def seen(now: Dimensions) -> Dimensions:
        dims = {word: value for word, value in now.items() if word in public or word not in sought}
        return Dimensions(dims | {f"{HIDDEN}{word}": now[word] for word in type(sink).needs.words if word in now})

    def common() -> Dimensions | None:
        now = identity()
        return None if now is None else seen(now)

    return common


def level_wanted(config: Config, least: Level = Level.BASIC) -> Level:
    """Return the highest level that any sink wants, and at least `least`."""
    return max([least, *(_level_of(sink_options(name, config), config) for name in config.sink)])


def _level_of(options: SinkOptions, config: Config) -> Level:
    """Return the level of a sink with these options."""
    return Level[(options.level or config.level).upper()]


def build_sources(
    collectors: Mapping[str, Collector],
    processors: Mapping[str, Processor],
    config: Config,
    learn: Callable[[Mapping[str, str]], None] = lambda _: None,
    least: Level = Level.BASIC,
    *,
    state: Path | None = None,
    zeros: bool = True,
) -> tuple[list[Sampler], list[Derivation]]:
    """
    Return what runs the collectors and the processors.

    `learn` is called with values of the machine's dimensions that a reading found. Collectors may keep files in the
    folder `state`; with `zeros` they yield counters of events also while they are 0.
    """
    level = level_wanted(config, least)
    asked = {name for names in asked_collectors(config) for name in names}
    samplers = []
    for name, collector in collectors.items():
        retry = collector_options(name, config).retry or (RETRY_ASKED if name in asked else RETRY)
        samplers.append(Sampler(name, collector, level, state=state, zeros=zeros, retry=retry, learn=learn))
    return samplers, [Derivation(name, processor, level) for name, processor in processors.items()]


def delivery_offset(host: str) -> float:
    """Return by which share (0 to 1) of a flush period `host` delays deliveries: not all of a fleet send at once."""
    from random import Random

    return Random(host).random()  # noqa: S311  # no secret


def spool_path(name: str, sink: Sink, folder: Path) -> Path | None:
    """Return the file of a sink's spool, or None if the sink is not durable."""
    return folder / f"{name}.db" if sink.limits.durable else None


def validate(config: Config, spared: Collection[str] = (), *, with_refusals: bool = True) -> None:
    """
    Build every plugin, except `spared` collectors; raise ConfigError for what is wrong.

    With `with_refusals`, raise it also if a sink would reject every point.
    """
    _check_dims(config)
    collectors, processors = build_collectors(config, spared), build_processors(config)
    check_includes(config, collectors, processors)
    metrics = declared(collectors, processors)
    for name, sink in build_sinks(config).items():
        window_length(name, sink, config)
        if with_refusals:
            refusals(name, sink, config, metrics)


def declared(collectors: Mapping[str, Collector], processors: Mapping[str, Processor]) -> list[Metric]:
    """Return all metrics that these plugins may yield."""
    sources: list[Collector | Processor] = [*collectors.values(), *processors.values()]
    return [metric for source in sources for metric in source.metrics]


def events_of(collectors: Iterable[Collector]) -> frozenset[str]:
    """Return the names of counters that are not yielded before their first event."""
    return frozenset().union(*(type(collector).needs.events for collector in collectors))


def check_includes(config: Config, collectors: Mapping[str, Collector], processors: Mapping[str, Processor]) -> None:
    """Raise ConfigError if a glob of `include` or `exclude` of a sink fits no metric, or `include` chooses none."""
    if any(collector.yields_others() for collector in collectors.values()):
        return  # the names of its metrics are not known yet
    metrics = [*declared(collectors, processors), *AgentCollector.metrics]
    for name in config.sink:
        of = sink_options(name, config)
        for key, globs, level in (("include", of.include, _level_of(of, config)), ("exclude", of.exclude, None)):
            if fault := preflight.glob_fault(globs, level, metrics):
                raise ConfigError(f"{label_of(config, 'sinks', name, key)}: {fault}")


def refusals(name: str, sink: Sink, config: Config, metrics: Sequence[Metric]) -> list[str]:
    """Return a sentence for each kind of point that the sink never accepts; raise ConfigError if it accepts none."""
    all_faults = faults(name, sink, config, metrics)
    if whole := next((fault.text for fault in all_faults if fault.whole), None):
        raise ConfigError(whole)
    return [fault.text for fault in all_faults]


def faults(name: str, sink: Sink, config: Config, metrics: Sequence[Metric]) -> list[preflight.Fault]:
    """Return which of these metrics the sink would never take, under this configuration and by its own rules."""
    wanted = filter(build_filter(sink_options(name, config), sink.limits, config).wants, metrics)
    renamer = rename.renamer(profile_of(sink, config))
    return [*preflight.faults(name, sink, config, wanted, renamer)]


def duplicates(
    sinks: Mapping[str, Sink], config: Config, collectors: Mapping[str, Collector]
) -> Iterator[tuple[str, str]]:
    """Yield each sink that would send a name or a metric to one destination twice: its name, and a sentence."""
    yield from ((name, text) for name, sink in sinks.items() for text in profiles(profile_of(sink, config))[1])
    metrics = declared(collectors, {})
    others: dict[Any, tuple[str, MetricFilter]] = {}
    for name, sink in sinks.items():
        wanted = build_filter(sink_options(name, config), sink.limits, config)
        place: frozenset[tuple[str, str]] = frozenset()
        with suppress(ConfigError), plugins.blamed(plugins.SINKS, name, "destination fails"):
            place = frozenset(destination_of(sink).items())
        if not place:
            continue
        other, theirs = others.setdefault((type(sink), place), (name, wanted))
        twice = next((metric.name for metric in metrics if wanted.wants(metric) and theirs.wants(metric)), None)
        if other != name and twice:
            yield name, f"{twice} (and perhaps more) goes where {other} sends it, too: set include or exclude in one"


def _check_dims(config: Config) -> None:
    """Raise ConfigError for dimensions that UTF-8 cannot encode."""
    for key, value in config.dims.items():
        if not Dimensions({key: value}).is_text:
            raise ConfigError(f"--dim {key!a}={value!a}: expected UTF-8")


def build_filter(options: SinkOptions, limits: Limits, config: Config) -> MetricFilter:
    """Return the filter of a sink. If series are billed, the agent's own metrics pass only if `include` names them."""
    exclude = options.exclude
    if limits.max_series is not None and not any(glob.startswith("agent.") for glob in options.include):
        exclude = (*exclude, "agent.*")
    return MetricFilter(_level_of(options, config), options.include, exclude)


def _destinations(sinks: Mapping[str, Sink]) -> dict[str, Mapping[str, str]]:
    """Return the destination of each sink; leave out sinks that fail to return it, raise ConfigError if all fail."""
    destinations: dict[str, Mapping[str, str]] = {}
    for name, sink in sinks.items():
        try:
            with plugins.blamed(plugins.SINKS, name, "it is left out, since destination fails"):
                destinations[name] = destination_of(sink)
        except ConfigError as problem:
            if name == [*sinks][-1] and not destinations:
                raise
            log.error("%s", problem)  # noqa: TRY400  # the message says it all
    return destinations


def profile_of(sink: Sink, config: Config) -> str:
    """Return the naming profile for the points of `sink`: from the configuration, else the sink's default."""
    is_set = config.names != "native" or "names" in config.sources
    return config.names if is_set else sink.limits.names


def window_length(name: str, sink: Sink, config: Config) -> float:
    """Return the length of the sink's windows in seconds; raise ConfigError if the sink needs longer ones."""
    wanted, limits = sink_options(name, config).window, sink.limits
    length = limits.window if wanted is None else wanted
    if length < limits.spacing:
        why = ": high_resolution_metrics asks for it" if config.high_resolution_metrics else ""
        label = label_of(config, "sinks", name, "window")
        raise ConfigError(
            f"{label}: {length:g} s is too short{why}; {name} takes two points of a series only if they"
            f" are {limits.spacing:g} s apart: set [sinks.{name}] window = {limits.spacing:g} or more"
        )
    return length


def owner_labels(name: str, sink: Sink, config: Config) -> Sequence[str]:
    """Return the keys that say on points of devices who holds them: as configured, or as the profile has them."""
    keys = sink_options(name, config).owner_labels
    tools, _ = profiles(profile_of(sink, config))
    theirs = (tool.owners for tool in tools if tool.owners and sink.limits.scraped)
    return next(theirs, ()) if keys is None else keys


def needs_zeros(name: str, sink: Sink, config: Config) -> bool:
    """Return whether the sink gets counters of events before the first event; by default, if it is scraped."""
    zeros = sink_options(name, config).zeros
    return sink.limits.scraped if zeros is None else zeros


def held_at_zero(name: str, sink: Sink, config: Config, events: Collection[str]) -> Callable[[Metric], bool]:
    """
    Return a function: True for a counter that is not sent to the sink while it is 0.

    `events` are counters that are yielded at 0 only since some other sink needs that.
    """
    if needs_zeros(name, sink, config):
        return lambda _: False
    option = sink_options(name, config).zeros
    zeros = sink.limits.zeros if option is None else option
    return lambda metric: metric.name in events or (zeros is None and metric.counts_events)


def build_route(
    sink: Sink,
    spool: Spool,
    config: Config,
    common: Callable[[], Dimensions | None],
    *,
    born: int,
    events: Collection[str] = (),
) -> Route:
    """
    Return the route of a sink: everything between the samples of a tick and `sink.write`.

    `common` returns the machine's dimensions, `born` is the start of the agent (ns since the epoch). `events` are the
    counters that some sink gets before their first event.
    """
    name, options, limits = spool.name, sink_options(spool.name, config), sink.limits
    flush = limits.flush if options.flush is None else options.flush
    schedule = Schedule(flush, delivery_offset(platform.node()) if flush else 0.0, FIRST_WAIT)
    delivery = SinkDelivery if sink.waits() is False else Worker
    worker = delivery(name, sink, spool, common, rename.renamer(profile_of(sink, config)), schedule)
    window = Window(
        window_length(name, sink, config),
        born=born,
        increases=limits.increases,
        spacing=limits.spacing,
        ended=spool.file.newest() if limits.spacing else None,
        first=FIRST_WINDOW,
        holds_zero=held_at_zero(name, sink, config, events),
    )
    most = limits.max_series if options.max_series is None else options.max_series
    is_billed = (limits.zeros if options.zeros is None else options.zeros) is False
    admission = Admission(name, most, zeros=not is_billed, increases=limits.increases) if most or is_billed else None
    chosen, copies = build_filter(options, limits, config), rename.copier(profile_of(sink, config))
    return Route(chosen, window, spool, worker, common, admission=admission, copies=copies)


def assemble(
    config: Config,
    common: Callable[[], Dimensions | None],
    learn: Callable[[Mapping[str, str]], None] = lambda _: None,
    folder: Path | None = None,
    least: Level = Level.BASIC,
    *,
    spared: Collection[str] = (),
) -> Pipeline:
    """
    Return the whole pipeline, not yet started; raise ConfigError or NotLoaded.

    `common` returns the dimensions of this machine, or None while they are not known. `learn` is called with values for
    them that a reading found. `folder` is for the spools of durable sinks and for the state of collectors; without it,
    points wait in memory. Collectors read metrics up to the level `least`, or a higher one if a sink wants that;
    `spared` collectors are left out. So is a sink whose `destination` fails. The pipeline stops once the readers of
    all sinks have gone for good.
    """
    _check_dims(config)
    born = time.time_ns()
    own = AgentCollector(start_time=born)
    collectors, processors = {**build_collectors(config, spared), "agent": own}, build_processors(config)
    check_includes(config, collectors, processors)
    sinks, sought = build_sinks(config), hints(config)
    for name, sink in sinks.items():
        for refusal in refusals(name, sink, config, declared(collectors, processors)):
            log.error("%s", refusal)
    for name, twice in duplicates(sinks, config, collectors):
        log.warning("sinks.%s: %s", name, twice)
    zeros = any(needs_zeros(name, sink, config) for name, sink in sinks.items())
    events = events_of(collectors.values()) if zeros else frozenset()
    samplers, derivations = build_sources(collectors, processors, config, learn, least, state=folder, zeros=zeros)
    destinations = _destinations(sinks)
    left = {*destinations}

    def closed(name: str) -> None:
        left.discard(name)
        if not left:
            pipeline.stop()

    def owners_of(device: Dimensions) -> list[Owner]:
        return [owner for derivation in derivations for owner in derivation.owners_of(device)]

    routes = []
    for name, destination in destinations.items():
        sink = sinks[name]
        spool = Spool(
            name,
            spool_path(name, sink, folder) if folder else None,
            max_bytes=config.spool_bytes,
            max_age=sink.limits.max_age,
            destination=destination,
            drop_others=config.drop_other_destinations,
        )
        route = build_route(sink, spool, config, view(common, sink, config, sought), born=born, events=events)
        if keys := owner_labels(name, sink, config):
            route.owners = OwnerLabels(keys, owners_of, scraped=sink.limits.scraped)
        route.worker.destination, route.worker.on_closed = destination, partial(closed, name)
        routes.append(route)
    assert config.interval is not None
    pipeline = Pipeline(samplers, routes, interval=config.interval, derivations=derivations)
    own.watch(pipeline)
    return pipeline
