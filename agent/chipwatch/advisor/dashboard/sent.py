"""Finds the metrics that a configuration sends to a sink, with their names and dimensions there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Final, NamedTuple

from chipwatch.advisor.dashboard.options import BoardOptions
from chipwatch.advisor.discovery import SOME_TIME, UNKNOWN, assumed, discover, of_machines
from chipwatch.config import plugins
from chipwatch.config.identity.names import OF_POINTS
from chipwatch.config.instances import build_processors
from chipwatch.config.load import chosen, plugin_config, sink_options, sink_type
from chipwatch.config.naming.profiles import profiles
from chipwatch.config.naming.rename import Copier, renamer, tables_of_copies
from chipwatch.config.options import Config
from chipwatch.contract.advice import Former, SentMetric
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind
from chipwatch.engine.build import build_filter

SECOND: Final = 10**9


class SentMetrics(NamedTuple):
    """All metrics that a sink gets."""

    metrics: tuple[SentMetric, ...]
    machine: tuple[str, ...]
    """Keys of the machine's dimensions, as they are sent, sorted."""
    window: float
    """Seconds between two points of a series."""
    notes: tuple[str, ...]
    """Metrics that were left out, with reasons."""


def sent_by(config: Config, name: str, options: BoardOptions, *, by_name: bool = False) -> SentMetrics:
    """
    Return the metrics that `config` sends to the sink `name`; raise ConfigError or NotLoaded.

    With `by_name`, each name appears once, with the dimensions of all its forms.
    """
    sink = plugins.load(plugins.SINKS, sink_type(name, config))
    with plugins.blamed(plugins.SINKS, name, "it cannot be built"):
        limits = sink(plugin_config(sink, "sinks", name, config)).limits
    own = sink_options(name, config)
    filtered = build_filter(own, limits, config)
    window = limits.window if own.window is None else own.window
    words = [*(word for word in config.common_dims if word not in OF_POINTS), *config.dims]
    names = profiles(config.names)[0][0].machine
    machine = tuple(sorted({names.get(word, word) for word in words}))
    notes: list[str] = []
    config = of_machines(config, options.families)
    points = _assumed(config, options) if options.families else _here(config, options, notes)
    wanted = (point for point in points if filtered.wants(point.metric))
    sent = sorted(_renamed(wanted, config, Dimensions(dict.fromkeys(words, "x")), machine, notes), key=_order)
    assert config.interval is not None
    return SentMetrics(tuple(_merged(sent) if by_name else sent), machine, max(window, config.interval), tuple(notes))


def _assumed(config: Config, options: BoardOptions) -> Iterable[Datapoint]:
    """Yield a point for each series of assumed machines; points of jobs also with each scheduler's dimension."""
    processors = build_processors(config).values()
    keys = ((metric, processor.job_dims()) for processor in processors for metric in processor.metrics)
    more = {metric.name: dict.fromkeys(own, UNKNOWN) for metric, own in keys}
    for point in chain(*assumed(config, options.devices).values()):
        of_job = point
        if "job" in point.dims and (own := more.get(point.metric.name)):
            of_job = point._replace(dims=point.dims | own)
        yield of_job
        if "job" in point.dims:
            yield from (of_job._replace(dims=of_job.dims | {key: UNKNOWN}) for key in ("partition", "namespace"))


def _merged(sent: Iterable[SentMetric]) -> Iterable[SentMetric]:
    """Merge the forms of each name into one with all their dimensions."""
    merged: dict[tuple[str, str], SentMetric] = {}
    for way in sent:
        first = merged.setdefault((way.metric.name, way.name), way)
        dims = tuple(sorted({*first.dims, *way.dims}))
        count = way.series if first is way else first.series + way.series
        in_name = _common(first.in_name, way.in_name)
        merged[way.metric.name, way.name] = first._replace(dims=dims, in_name=in_name, series=count)
    return merged.values()


def _common(first: Sequence[tuple[str, str]], second: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in first if pair in second)


def _order(sent: SentMetric) -> tuple[str, str, tuple[str, ...]]:
    return sent.metric.name, sent.name, sent.dims


def _here(config: Config, options: BoardOptions, notes: list[str]) -> Iterable[Datapoint]:
    """Return the points of this machine, and assumed ones of configured collectors that are unavailable here."""
    machine = discover(config, {})
    notes += [f"{name} is left out, it failed: {why}" for name, why in machine.failed.items()]
    absent = [name for name in chosen("collectors", config) if name in machine.absent and config.collector]
    return chain(machine.points, *assumed(config, options.devices, absent).values())


def _sent(point: Datapoint, new: Datapoint, machine: Sequence[str]) -> SentMetric:
    """Return the form in which a metric is sent: `point` is renamed to `new`."""
    is_copy, is_gauge = new.metric.kind is not point.metric.kind, new.metric.kind is Kind.GAUGE
    factor = 1.0 if is_copy else new.value if is_gauge else new.increase or 1.0
    dims = tuple(sorted(key for key in new.dims if key not in machine))
    in_name = tuple((key, value) for key, value in point.dims.items_sorted if key not in dims)
    metric = replace(point.metric, kind=new.metric.kind)
    return SentMetric(metric, new.metric.name, new.metric.unit, factor, dims, in_name, copy=is_copy)


def _former(way: SentMetric, before: SentMetric, moved: Iterable[str]) -> Former:
    """Return what a metric is called by `before`, its form in the profile before; `moved` are the machine's keys."""
    return Former(before.name, before.unit, before.factor, tuple(sorted({*moved, *(set(way.dims) ^ set(before.dims))})))


def _renamed(
    points: Iterable[Datapoint], config: Config, common: Dimensions, machine: Sequence[str], notes: list[str]
) -> Iterable[SentMetric]:
    """Rename points by the naming profile; return each name and set of dimensions once."""
    rename, tools = renamer(config.names), profiles(config.names)[0]
    copiers = [
        Copier({key: copy for key, copy in table.items() if table is not tool.copies or copy.rate or copy.last_of},
               cumulative=tool.cumulative)
        for tool, table in tables_of_copies(config.names)
    ]  # fmt: skip
    moved = {
        key for one, other in pairwise(tools) for pair in one.machine.items() ^ other.machine.items() for key in pair
    }
    metrics: dict[tuple[str, str, tuple[str, ...]], SentMetric] = {}
    series: dict[tuple[str, str, tuple[str, ...]], set[Dimensions]] = {}
    unknown: set[str] = set()
    for point in points:
        old = Datapoint(point.metric, 1.0, common | point.dims, SOME_TIME)  # renaming turns 1 into the factor
        if point.metric.kind is Kind.COUNTER:
            begun = SOME_TIME - SECOND
            old = old._replace(start_time=begun, window_start=begun, increase=1.0)
        ways: dict[bool, SentMetric] = {}
        for made in (old, *chain.from_iterable(copies([old]) for copies in copiers)):
            new = rename(made) if rename else made
            if UNKNOWN in new.metric.name:
                unknown.add(point.metric.name)
                continue
            way = _sent(point, new, [*machine, *moved])
            before = ways.get(way.copy)
            ways[way.copy] = way._replace(former=before and _former(way, before, moved))
        for sent in ways.values():
            if other := metrics.get(_order(sent)):  # the same form with other values of a renamed dimension
                sent = other._replace(in_name=_common(other.in_name, sent.in_name))  # noqa: PLW2901
            metrics[_order(sent)] = sent
            series.setdefault(_order(sent), set()).add(point.dims)  # several collectors may yield the same series
    notes += [f"{name} is left out: its name contains a value that only a machine knows" for name in sorted(unknown)]
    return [sent._replace(series=len(series[key])) for key, sent in metrics.items()]
