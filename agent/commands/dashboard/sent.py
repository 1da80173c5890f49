"""Which metrics a configuration sends to a sink, under which names and with which dimensions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from agent.advice import Sent
from agent.commands.dashboard.options import Options
from agent.commands.discovery import THEN, UNKNOWN, assumed, discover, of_machines
from agent.config import plugins
from agent.config.load import chosen, plugin_config, sink_options, sink_type
from agent.config.options import Config
from agent.datapoint import Datapoint, Dimensions, Kind
from agent.errors import ConfigError
from agent.identity.names import OF_POINTS
from agent.naming.profiles import MACHINE, NONE
from agent.naming.rename import renamer
from agent.pipeline.build import build_filter


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
    filtered = build_filter(options, limits, config)
    window = limits.window if options.window is None else options.window
    words = [*(word for word in config.common_dims if word not in OF_POINTS), *config.dims]
    theirs = MACHINE.get(config.names, NONE)
    machine = tuple(sorted({theirs.get(word, word) for word in words}))
    notes: list[str] = []
    config = of_machines(config, wanted.families)
    points = chain(*assumed(config, wanted.devices).values()) if wanted.families else _here(config, wanted, notes)
    points = [point for point in points if filtered.wants(point.metric)]
    under = Dimensions(dict.fromkeys(words, "x"))
    sent = sorted(_named(points, config, under, frozenset(machine), notes), key=_order)
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


def _here(config: Config, wanted: Options, notes: list[str]) -> Iterable[Datapoint]:
    """Return what this machine gives, and what the collectors that the configuration names would give."""
    machine = discover(config, {})
    notes += [f"{name} is left out, it failed: {why}" for name, why in machine.failed.items()]
    absent = [name for name in chosen("collectors", config) if name in machine.absent and config.collector]
    return chain(machine.points, *assumed(config, wanted.devices, absent).values())


# -- as they are sent ---------------------------------------------------------------------------------------------


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
