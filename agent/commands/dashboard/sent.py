"""Which metrics a configuration sends to a sink, under which names and with which dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from agent.advice import Sent
from agent.commands.dashboard.charts import LISTS, TABLES
from agent.commands.dashboard.options import Options
from agent.commands.discovery import discover
from agent.config import plugins
from agent.config.convert import ConfigError, nearest
from agent.config.instances import build_plugin
from agent.config.load import Config, plugin_config, sink_options, sink_type
from agent.datapoint import Datapoint, Dimensions, Kind, Metric
from agent.identity.names import OF_POINTS
from agent.naming.profiles import MACHINE, NONE
from agent.naming.rename import renamer
from agent.pipeline.build import build_filter
from agent.pipeline.route import Filter
from agent.pipeline.self_metrics import AgentCollector

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = TABLES["families"]
"""Words of --for that stand for several collectors; any collector stands for itself."""
VALUES: Final[Mapping[str, Sequence[str]]] = TABLES["values"]
SHARE: Final = "gpu.process."
"""Metrics of a GPU's collector that are sent only where processes are watched."""
UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for a value that only the machine knows."""
THEN: Final = 1_800_000_000 * 10**9
"""A time for points that nobody sends."""


class Found(NamedTuple):
    """All that is sent."""

    sent: tuple[Sent, ...]
    machine: tuple[str, ...]
    """The keys of the machine's dimensions, as they are sent, sorted."""
    window: float
    """Seconds of one point of a series."""
    notes: tuple[str, ...]
    """What is left out, and why."""


def find(config: Config, name: str, wanted: Options, *, by_name: bool = False) -> Found:
    """
    Return what `config` sends to the sink `name`; raise ConfigError or NotLoaded.

    With `by_name`, each name is there once, with the dimensions of all ways to send it.
    """
    sink = plugins.load(plugins.SINKS, sink_type(name, config))
    with plugins.blamed(plugins.SINKS, name, "it cannot be built"):
        limits = sink(plugin_config(sink, "sinks", name, config)).limits
    options = sink_options(name, config)
    chosen = build_filter(options, limits, config)
    window = limits.window if options.window is None else options.window
    words = [*(word for word in config.common_dims if word not in OF_POINTS), *config.dims]
    theirs = MACHINE.get(config.names, NONE)
    machine = tuple(sorted({theirs.get(word, word) for word in words}))
    notes: list[str] = []
    points = _declared(config, wanted) if wanted.families else _here(config, wanted, notes)
    under = Dimensions(dict.fromkeys(words, "x"))
    sent = sorted(_named(_chosen(points, chosen), config, under, frozenset(machine), notes), key=_order)
    assert config.interval is not None
    return Found(tuple(_once(sent) if by_name else sent), machine, max(window, config.interval), tuple(notes))


def _once(sent: Iterable[Sent]) -> Iterable[Sent]:
    once: dict[tuple[str, str], Sent] = {}
    for one in sent:
        first = once.setdefault((one.metric.name, one.name), one)
        dims = tuple(sorted({*first.dims, *one.dims}))
        held = tuple(pair for pair in first.held if pair in one.held)
        once[one.metric.name, one.name] = first._replace(dims=dims, held=held)
    return once.values()


def _order(sent: Sent) -> tuple[str, str, tuple[str, ...]]:
    return sent.metric.name, sent.name, sent.dims


# -- points that stand for what is sent ---------------------------------------------------------------------------


def _here(config: Config, wanted: Options, notes: list[str]) -> list[Datapoint]:
    """Return what this machine gives, and what the collectors that the configuration names would give."""
    machine = discover(config, {})
    notes += [f"{name} is left out, it failed: {why}" for name, why in machine.failed.items()]
    asked = [name for name in config.collector if name in machine.absent]
    return [*machine.points, *_all_of(asked, config, wanted), *_stand_ins(AgentCollector.metrics, wanted)]


def _declared(config: Config, wanted: Options) -> list[Datapoint]:
    installed = plugins.installed(plugins.COLLECTORS)
    names: dict[str, None] = {}
    for word in wanted.families:
        if word not in {*FAMILIES, *installed, "all"}:
            raise ConfigError(f"--for: no such family {word!r}{nearest(word, {*FAMILIES, *installed, 'all'})}")
        names |= dict.fromkeys(installed if word == "all" else FAMILIES.get(word, (word,)))
    points = _all_of([name for name in names if name not in config.no_collector], config, wanted)
    watches = "process" in names or config.pid is not None
    told = (point for point in points if watches or not point.metric.name.startswith(SHARE))
    return [*told, *_stand_ins(AgentCollector.metrics, wanted)]


def _all_of(names: Iterable[str], config: Config, wanted: Options) -> Iterator[Datapoint]:
    for name in names:
        collector = build_plugin(plugins.COLLECTORS, name, config)
        yield from _stand_ins(collector.metrics, wanted)


def _stand_ins(metrics: Iterable[Metric], wanted: Options) -> Iterator[Datapoint]:
    """Yield a point for each combination of values that the dimensions of each metric may have."""
    for metric in metrics:
        for values in product(*_values(metric, wanted)):
            dims = Dimensions(dict(zip(metric.dims, values, strict=True)))
            yield metric.point(THEN, 1.0, dims, start_time=THEN)


def _values(metric: Metric, wanted: Options) -> Iterator[Sequence[str]]:
    """Yield what each dimension may hold; of two numbers, such as core and device, the first tells them apart."""
    numbers = [str(n) for n in range(wanted.devices)]
    for key in metric.dims:
        if key in LISTS["indexes"]:
            yield numbers
            numbers = ["0"]
        else:
            yield VALUES.get(f"{metric.name} {key}") or VALUES.get(key) or (UNKNOWN,)


# -- as they are sent ---------------------------------------------------------------------------------------------


def _chosen(points: Iterable[Datapoint], chosen: Filter) -> Iterator[Datapoint]:
    return (point for point in points if chosen.wants(point.metric))


def _named(
    points: Iterable[Datapoint], config: Config, under: Dimensions, machine: frozenset[str], notes: list[str]
) -> Iterable[Sent]:
    """Return what becomes of points: each name and set of dimensions once."""
    try:
        rename = renamer(config.names)
    except LookupError as problem:
        raise ConfigError(str(problem)) from problem
    found: dict[tuple[str, str, tuple[str, ...]], Sent] = {}
    unknown: set[str] = set()
    for point in points:
        old = _unit(point, under | point.dims)
        new = rename(old) if rename else old
        if UNKNOWN in new.metric.name:
            unknown.add(point.metric.name)
            continue
        factor = new.value if new.metric.kind is Kind.GAUGE else new.increase
        dims = tuple(sorted(key for key in new.dims if key not in machine))
        held = tuple((key, value) for key, value in point.dims.items_sorted if key not in dims)
        sent = Sent(point.metric, new.metric.name, new.metric.unit, factor or 1.0, dims, held)
        before = found.get(_order(sent))
        if before is not None:  # what differs is told by a dimension of another name
            sent = before._replace(held=tuple(pair for pair in before.held if pair in held))
        found[_order(sent)] = sent
    notes += [f"{name} is left out: its name holds what only a machine knows" for name in sorted(unknown)]
    return found.values()


def _unit(point: Datapoint, dims: Dimensions) -> Datapoint:
    """Return a point of the value 1, so that the profile's factor can be read off it."""
    if point.metric.kind is Kind.GAUGE:
        return Datapoint(point.metric, 1.0, dims, THEN)
    return Datapoint(point.metric, 1.0, dims, THEN, THEN, THEN, None, 1.0)
