"""Reads every collector twice, without sinks, to find the series of this machine."""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.config.instances import build_collectors, build_processors
from agent.config.load import Config
from agent.datapoint import Datapoint, Dimensions, Level
from agent.pipeline.clock import FIRST_READING, Pipeline
from agent.pipeline.delivery import Worker
from agent.pipeline.route import Filter, Route
from agent.pipeline.sampler import Derivation, Reading, Sampler
from agent.pipeline.self_metrics import AgentCollector
from agent.pipeline.window import Window
from agent.sink import Sink
from agent.spool.queue import Spool

PAUSE: Final = 0.3
"""Seconds between the two readings: a rate needs two."""


class Discovery(NamedTuple):
    """The points of the first and the second reading, and the state of the collectors."""

    before: list[Datapoint]
    points: list[Datapoint]
    series: dict[str, int]
    """Collector -> number of series at level `all`."""
    absent: dict[str, str]
    """Collector -> why it is not available."""
    failed: dict[str, str]
    """Collector -> why its reading failed, so that its series are missing."""


def discover(config: Config, sinks: Mapping[str, Sink]) -> Discovery:
    """Read every collector, the agent's own too, twice at level `all`; write nothing and send nothing."""
    own = AgentCollector(start_time=time.time_ns())
    readings: queue.SimpleQueue[Reading] = queue.SimpleQueue()
    collectors = {**build_collectors(config), "agent": own}
    samplers = [Sampler(name, collector, Level.ALL, readings) for name, collector in collectors.items()]
    derivations = [Derivation(name, processor, Level.ALL) for name, processor in build_processors(config).items()]
    routes = [_idle_route(name, sink) for name, sink in sinks.items()]
    pipeline = Pipeline(samplers, routes, readings, interval=8.0, derivations=derivations)
    own.watch(pipeline)
    for sampler in samplers:
        sampler.start()
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
    )


def _idle_route(name: str, sink: Sink) -> Route:
    """Return a route that never starts, in the state after its first point, for the agent's own metrics of it."""
    spool = Spool(name)
    spool.ledger.add({"collected": 1, "sent": 1})
    worker = Worker(name, sink, spool)
    return Route(Filter(Level.ALL), Window(0, born=0), spool, worker, Dimensions)
