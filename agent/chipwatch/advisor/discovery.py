"""Finds the series of this machine, by reading it twice, or of machines that are only described."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Final, NamedTuple

from chipwatch.advisor.dashboard.charts import LISTS, TABLES
from chipwatch.base.text import in_case_of, nearest
from chipwatch.config import plugins
from chipwatch.config.instances import build_collectors, build_plugin, build_processors
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import DEVICES, Datapoint, Dimensions, Level, Metric
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.sink import Sink
from chipwatch.engine.build import build_sources, events_of
from chipwatch.engine.clock import FIRST_READING, Pipeline
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.self_metrics import INCIDENT, AgentCollector
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window

PAUSE: Final = 0.3
"""Seconds between the two readings: a rate needs two."""
UNKNOWN: Final = "\N{REPLACEMENT CHARACTER}"
"""Stands for the value of a dimension that only the machine knows."""
SOME_TIME: Final = 1_800_000_000 * 10**9
"""Time of made-up points (ns since the epoch)."""


class Discovery(NamedTuple):
    """The points of two readings, the first in `before`, and the state of the collectors."""

    before: list[Datapoint]
    points: list[Datapoint]
    series: dict[str, int]
    """Collector -> number of series at level `all`."""
    absent: dict[str, str]
    """Collector -> why it is not available."""
    failed: dict[str, str]
    """Collector -> why its reading failed; its series are missing."""
    events: frozenset[str] = frozenset()
    """Counters that have no point before their first event."""


def discover(config: Config, sinks: Mapping[str, Sink]) -> Discovery:
    """Read every collector, also the agent's own metrics, twice at level `all`; send and write nothing."""
    own = AgentCollector(start_time=time.time_ns())
    collectors, processors = {**build_collectors(config), "agent": own}, build_processors(config)
    samplers, derivations = build_sources(collectors, processors, config, least=Level.ALL)
    routes = [_idle_route(name, sink) for name, sink in sinks.items()]
    pipeline = Pipeline(samplers, routes, interval=8.0, derivations=derivations)
    own.watch(pipeline)
    before = pipeline.gather(time.time_ns(), FIRST_READING)
    time.sleep(PAUSE)
    points = pipeline.gather(time.time_ns(), FIRST_READING)
    pipeline.close(0)
    return Discovery(
        before,
        points,
        {s.name: s.yielded for s in samplers if s.unavailable is None and s.ok},
        {s.name: s.unavailable for s in samplers if s.unavailable is not None},
        {s.name: s.trouble or "its reading does not return" for s in samplers if s.unavailable is None and not s.ok},
        events_of(collectors.values()),
    )


def _idle_route(name: str, sink: Sink) -> Route:
    """Return a route that never sends but looks as if it had sent a point, so that the agent has metrics of it."""
    spool = Spool(name)
    spool.ledger.add({"collected": 1, "sent": 1})
    worker = Worker(name, sink, spool)
    return Route(MetricFilter(Level.ALL), Window(0, born=0), spool, worker, Dimensions)


def of_machines(config: Config, words: Sequence[str]) -> Config:
    """Return `config` with the collectors and families `words` (--for) instead; raise ConfigError."""
    choices = {*plugins.FAMILIES, *plugins.installed(plugins.COLLECTORS), "all"}
    words = [in_case_of(word, choices) for word in words]
    for word in words:
        if word not in choices:
            raise ConfigError(f"--for {word}: no such collector or family{nearest(word, choices)}")
    return dataclasses.replace(config, collector=tuple(words) or config.collector)


def assumed(config: Config, devices: int, names: Sequence[str] | None = None) -> dict[str, list[Datapoint]]:
    """Return collector -> made-up points of its series, for `names` or the configured ones, and for the agent."""
    if names is None:
        collectors = build_collectors(config)
    else:
        collectors = {name: build_plugin(plugins.COLLECTORS, name, config) for name in names}
    metrics = {name: list(collector.metrics) for name, collector in collectors.items()}
    if "process" not in collectors and config.pid is None:
        metrics = {name: [m for m in own if not m.name.startswith("gpu.process.")] for name, own in metrics.items()}
    devices_of = {key for metric in chain(*metrics.values()) for key in metric.dims if key in DEVICES}
    for name, processor in build_processors(config).items() if devices_of else ():
        fitting = [metric for metric in processor.metrics if {*metric.dims} & {*DEVICES} <= devices_of]
        metrics[name] = [*metrics.get(name, ()), *fitting]
    metrics["agent"] = [metric for metric in AgentCollector.metrics if metric is not INCIDENT]  # sent for an hour
    return {name: [point for metric in ours for point in _stand_ins(metric, devices)] for name, ours in metrics.items()}


def _stand_ins(metric: Metric, devices: int) -> Iterator[Datapoint]:
    """Yield a made-up point for each combination of values that a metric's dimensions may have."""
    for values in product(*_values(metric, devices)):
        dims = Dimensions(dict(zip(metric.dims, values, strict=True)))
        yield metric.point(SOME_TIME, 1.0, dims, start_time=SOME_TIME)


def _values(metric: Metric, devices: int) -> Iterable[Sequence[str]]:
    """Yield the values of each dimension. If two are numbers, such as core and device, only the first varies."""
    numbers = [str(n) for n in range(devices)]
    for key in metric.dims:
        if key in LISTS["indexes"]:
            yield numbers
            numbers = ["0"]
        else:
            yield TABLES["values"].get(f"{metric.name} {key}") or TABLES["values"].get(key) or (UNKNOWN,)
