"""The metrics that a configuration sends to a sink, with their names and dimensions there."""

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
from agent.pipeline.self_metrics import AgentCollector

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = TABLES["families"]
"""Words of --for that stand for several collectors; the name of a collector stands for itself."""
VALUES: Final[Mapping[str, Sequence[str]]] = TABLES["values"]
OF_PROCESSES: Final = "gpu.process."
"""Metrics of GPU collectors that are sent only if processes are watched."""
UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for a value that only the machine knows."""
SOME_TIME: Final = 1_800_000_000 * 10**9
"""Time of the points that stand for what is sent (ns since the epoch)."""


class Found(NamedTuple):
    """All metrics that are sent."""

    sent: tuple[Sent, ...]
    machine: tuple[str, ...]
    """The keys of the machine's dimensions, as they are sent, sorted."""
    window: float
    """Seconds of one point of a series."""
    notes: tuple[str, ...]
    """What is left out, and why."""


def find(config: Config, name: str, options: Options, *, by_name: bool = False) -> Found:
    """
    Return what `config` sends to the sink `name`; raise ConfigError or NotLoaded.

    With `by_name`, each name is there once, with the dimensions of all ways to send it.
    """
    sink = plugins.load(plugins.SINKS, sink_type(name, config))
    with plugins.blamed(plugins.SINKS, name, "it cannot be built"):
        limits = sink(plugin_config(sink, "sinks", name, config)).limits
    own = sink_options(name, config)
    chosen = build_filter(own, limits, config)
    window = limits.window if own.window is None else own.window
    words = [*(word for word in config.common_dims if word not in OF_POINTS), *config.dims]
    names = MACHINE.get(config.names, NONE)
    machine = tuple(sorted({names.get(word, word) for word in words}))
    notes: list[str] = []
    points = _declared(config, options) if options.families else _here(config, options, notes)
    wanted = (point for point in points if chosen.wants(point.metric))
    sent = sorted(_renamed(wanted, config, Dimensions(dict.fromkeys(words, "x")), machine, notes), key=_order)
    assert config.interval is not None
    return Found(tuple(_merged(sent) if by_name else sent), machine, max(window, config.interval), tuple(notes))


def _merged(sent: Iterable[Sent]) -> Iterable[Sent]:
    """Return each name once, with all its dimensions."""
    merged: dict[tuple[str, str], Sent] = {}
    for one in sent:
        first = merged.setdefault((one.metric.name, one.name), one)
        dims = tuple(sorted({*first.dims, *one.dims}))
        merged[one.metric.name, one.name] = first._replace(dims=dims, held=_common(first.held, one.held))
    return merged.values()


def _common(first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in first if pair in second)


def _order(sent: Sent) -> tuple[str, str, tuple[str, ...]]:
    return sent.metric.name, sent.name, sent.dims


def _here(config: Config, options: Options, notes: list[str]) -> list[Datapoint]:
    """Return the points of this machine, and those that other configured collectors would yield."""
    machine = discover(config, {})
    notes += [f"{name} is left out, it failed: {why}" for name, why in machine.failed.items()]
    absent = [name for name in config.collector if name in machine.absent]
    return [*machine.points, *_all_of(absent, config, options), *_stand_ins(AgentCollector.metrics, options)]


def _declared(config: Config, options: Options) -> list[Datapoint]:
    """Return the points that the collectors of --for would yield."""
    installed = plugins.installed(plugins.COLLECTORS)
    known = {*FAMILIES, *installed, "all"}
    names: dict[str, None] = {}
    for word in options.families:
        if word not in known:
            raise ConfigError(f"--for: no such family {word!r}{nearest(word, known)}")
        names |= dict.fromkeys(installed if word == "all" else FAMILIES.get(word, (word,)))
    points = _all_of([name for name in names if name not in config.no_collector], config, options)
    watches = "process" in names or config.pid is not None
    sent = (point for point in points if watches or not point.metric.name.startswith(OF_PROCESSES))
    return [*sent, *_stand_ins(AgentCollector.metrics, options)]


def _all_of(names: Iterable[str], config: Config, options: Options) -> Iterator[Datapoint]:
    for name in names:
        yield from _stand_ins(build_plugin(plugins.COLLECTORS, name, config).metrics, options)


def _stand_ins(metrics: Iterable[Metric], options: Options) -> Iterator[Datapoint]:
    """Yield a point for each combination of values that the dimensions of each metric may have."""
    for metric in metrics:
        for values in product(*_values(metric, options)):
            dims = Dimensions(dict(zip(metric.dims, values, strict=True)))
            yield metric.point(SOME_TIME, 1.0, dims, start_time=SOME_TIME)


def _values(metric: Metric, options: Options) -> Iterator[Sequence[str]]:
    """Yield the values of each dimension; of two numbers, such as core and device, only the first varies."""
    numbers = [str(n) for n in range(options.devices)]
    for key in metric.dims:
        if key in LISTS["indexes"]:
            yield numbers
            numbers = ["0"]
        else:
            yield VALUES.get(f"{metric.name} {key}") or VALUES.get(key) or (UNKNOWN,)


def _renamed(
    points: Iterable[Datapoint], config: Config, common: Dimensions, machine: Sequence[str], notes: list[str]
) -> Iterable[Sent]:
    """Return each name and set of dimensions of the renamed points once."""
    try:
        rename = renamer(config.names)
    except LookupError as problem:
        raise ConfigError(str(problem)) from problem
    found: dict[tuple[str, str, tuple[str, ...]], Sent] = {}
    unknown: set[str] = set()
    for point in points:
        old = Datapoint(point.metric, 1.0, common | point.dims, SOME_TIME)  # of the value 1, to find the factor
        if point.metric.kind is Kind.COUNTER:
            old = old._replace(start_time=SOME_TIME, window_start=SOME_TIME, increase=1.0)
        new = rename(old) if rename else old
        if UNKNOWN in new.metric.name:
            unknown.add(point.metric.name)
            continue
        factor = new.value if new.metric.kind is Kind.GAUGE else new.increase
        dims = tuple(sorted(key for key in new.dims if key not in machine))
        held = tuple((key, value) for key, value in point.dims.items_sorted if key not in dims)
        sent = Sent(point.metric, new.metric.name, new.metric.unit, factor or 1.0, dims, held)
        if before := found.get(_order(sent)):  # they differ in the values of a renamed dimension
            sent = before._replace(held=_common(before.held, held))
        found[_order(sent)] = sent
    notes += [f"{name} is left out: its name contains a value that only a machine knows" for name in sorted(unknown)]
    return found.values()
