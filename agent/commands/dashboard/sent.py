"""Which metrics a configuration sends to a cloud, under which names and with which dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import product
from typing import Any, Final, NamedTuple

from agent.commands.dashboard.options import Wishes
from agent.commands.discovery import discover
from agent.config import plugins
from agent.config.convert import ConfigError, nearest
from agent.config.load import SHARED, Config, plugin_config, sink_options, sink_type
from agent.datapoint import Datapoint, Dimensions, Kind, Metric
from agent.identity.resolver import OF_POINTS
from agent.naming.profiles import MACHINE, NONE
from agent.naming.rename import renamer
from agent.pipeline.build import NotLoaded, build_filter, build_plugin
from agent.pipeline.route import Filter
from agent.pipeline.self_metrics import AgentCollector
from agent.sink import Limits

HOST: Final = ("cpu", "memory", "disk", "network", "pressure", "container")
FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "host": HOST,
    "gpu": ("nvidia", "amd", "intel", "apple", "gaudi"),
}
"""Words of --for that stand for several collectors; any collector stands for itself."""
INDEXES: Final = ("cpu", "gpu", "ipu", "neuron_core", "neuron_device", "tpu")
"""Dimensions whose values are numbers from 0."""
VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "category": ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors"),
    "neuron.host.memory.category.used category": ("application_memory", "constants", "dma_buffers", "tensors"),
    "cpu.mode.utilization mode": ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"),
    "mode": ("user", "system"),
    "direction": ("sent", "received"),
    "disk.device.operations direction": ("read", "write"),
    "corrected": ("no", "yes"),
    "memory": ("mem", "sram"),
    "path": ("/",),
    "scope": ("total", "device"),
    "percentile": ("p0", "p1", "p25", "p50", "p75", "p99", "p100"),
    "outcome": ("completed", "completed_with_err", "completed_with_num_err", "timed_out", "incorrect_input",
                "failed_to_queue"),
    "error": ("generic", "numerical", "transient", "model", "runtime", "hardware"),
}  # fmt: skip
"""The words that a dimension may hold, by `metric dimension` or dimension, for profiles that put them into names."""
SHARE: Final = "gpu.process."
"""Metrics of a GPU's collector that are sent only where processes are watched."""
UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for a value that only the machine knows."""
THEN: Final = 1_800_000_000 * 10**9
"""A time for points that nobody sends."""


class Sent(NamedTuple):
    """A metric as the cloud gets it: all series of one name and one set of dimensions."""

    metric: Metric
    """Ours."""
    name: str
    """As it is sent."""
    unit: str
    factor: float
    """What the profile multiplies values by."""
    dims: tuple[str, ...]
    """The keys of its own dimensions, as they are sent, sorted; the machine's come on top."""
    held: tuple[tuple[str, str], ...]
    """Dimensions of ours that the name holds, and their values."""


class Found(NamedTuple):
    """All that is sent, and what stands around it."""

    sent: tuple[Sent, ...]
    machine: tuple[str, ...]
    """The keys of the machine's dimensions, as they are sent, sorted."""
    window: float
    """Seconds of one point of a series."""
    options: Mapping[str, Any]
    """Those of the sink."""
    notes: tuple[str, ...]
    """What is left out, and why."""


def find(config: Config, wishes: Wishes) -> Found:
    """Return what `config` sends to the cloud that is wanted; raise ConfigError or NotLoaded."""
    name = next((name for name in config.sink if sink_type(name, config) == wishes.cloud), wishes.cloud)
    limits, own = _sink(config, name)
    options = sink_options(name, config)
    chosen = build_filter(options, limits, config)
    window = limits.window if options.window is None else options.window
    words = [*(word for word in config.common_dims if word not in OF_POINTS), *config.dims]
    theirs = MACHINE.get(config.names, NONE)
    machine = tuple(sorted({theirs.get(word, word) for word in words}))
    notes: list[str] = []
    points = _declared(config, wishes) if wishes.families else _here(config, wishes, notes)
    under = Dimensions(dict.fromkeys(words, "x"))
    sent = _named(_wanted(points, chosen), config, under, frozenset(machine), notes)
    assert config.interval is not None
    return Found(tuple(sorted(sent, key=_order)), machine, max(window, config.interval), own, tuple(notes))


def _order(sent: Sent) -> tuple[str, str, tuple[str, ...]]:
    return sent.metric.name, sent.name, sent.dims


def _sink(config: Config, name: str) -> tuple[Limits, Mapping[str, Any]]:
    """Return limits and options of the sink; where its library is missing, as on a laptop, what it would have."""
    try:
        sink = build_plugin(plugins.SINKS, name, config)
    except (NotLoaded, plugins.UnknownPlugin):
        general = {key: getattr(config, key) for key in SHARED if getattr(config, key) is not None}
        return Limits(max_points=200, max_series=500), {**general, **config.sinks.get(name, {})}
    own = plugin_config(type(sink), "sinks", name, config)
    return sink.limits, {field.name: getattr(own, field.name) for field in fields(own)}


# -- points that stand for what is sent ---------------------------------------------------------------------------


def _here(config: Config, wishes: Wishes, notes: list[str]) -> list[Datapoint]:
    """Return what this machine gives, and what the collectors that the configuration names would give."""
    machine = discover(config, {})
    notes += [f"{name} is left out, it failed: {why}" for name, why in machine.failed.items()]
    asked = [name for name in config.collector if name in machine.absent]
    return [*machine.points, *_all_of(asked, config, wishes), *_stand_ins(AgentCollector.metrics, wishes)]


def _declared(config: Config, wishes: Wishes) -> list[Datapoint]:
    installed = plugins.installed(plugins.COLLECTORS)
    names: dict[str, None] = {}
    for word in wishes.families:
        if word not in {*FAMILIES, *installed, "all"}:
            raise ConfigError(f"--for: no such family {word!r}{nearest(word, {*FAMILIES, *installed, 'all'})}")
        names |= dict.fromkeys(installed if word == "all" else FAMILIES.get(word, (word,)))
    points = _all_of([name for name in names if name not in config.no_collector], config, wishes)
    watches = "process" in names or config.pid is not None
    told = (point for point in points if watches or not point.metric.name.startswith(SHARE))
    return [*told, *_stand_ins(AgentCollector.metrics, wishes)]


def _all_of(names: Iterable[str], config: Config, wishes: Wishes) -> Iterator[Datapoint]:
    for name in names:
        collector = build_plugin(plugins.COLLECTORS, name, config)
        yield from _stand_ins(collector.metrics, wishes)


def _stand_ins(metrics: Iterable[Metric], wishes: Wishes) -> Iterator[Datapoint]:
    """Yield a point for each combination of values that the dimensions of each metric may have."""
    for metric in metrics:
        for values in product(*_values(metric, wishes)):
            dims = Dimensions(dict(zip(metric.dims, values, strict=True)))
            yield metric.point(THEN, 1.0, dims, start_time=THEN)


def _values(metric: Metric, wishes: Wishes) -> Iterator[Sequence[str]]:
    """Yield what each dimension may hold; of two numbers, such as core and device, the first tells them apart."""
    numbers = [str(n) for n in range(wishes.devices)]
    for key in metric.dims:
        if key in INDEXES:
            yield numbers
            numbers = ["0"]
        else:
            yield VALUES.get(f"{metric.name} {key}") or VALUES.get(key) or (UNKNOWN,)


# -- as they are sent ---------------------------------------------------------------------------------------------


def _wanted(points: Iterable[Datapoint], chosen: Filter) -> Iterator[Datapoint]:
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
