"""What this machine has to tell: every collector read twice, with nobody to send to."""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.config.load import Config
from agent.datapoint import Datapoint, Dimensions, Level
from agent.pipeline.build import build_collectors
from agent.pipeline.clock import PATIENCE, Pipeline
from agent.pipeline.delivery import Worker
from agent.pipeline.route import Filter, Route
from agent.pipeline.sampler import Reading, Sampler
from agent.pipeline.self_metrics import AgentCollector
from agent.pipeline.window import Window
from agent.sink import Sink
from agent.spool.queue import Spool

PAUSE: Final = 0.3
"""Seconds between the two readings: a rate needs two."""


class Discovery(NamedTuple):
    """What two readings of every collector gave."""

    before: list[Datapoint]
    points: list[Datapoint]
    series: dict[str, int]
    """Collector -> series of any level."""
    absent: dict[str, str]
    """Collector -> why there is nothing to read."""
    failed: dict[str, str]
    """Collector -> what went wrong, so that its series are missing."""


def discover(config: Config, sinks: Mapping[str, Sink]) -> Discovery:
    """Read every collector twice at every level, the agent's own too; nothing is written and nothing is sent."""
    own = AgentCollector(start_time=time.time_ns())
    readings: queue.SimpleQueue[Reading] = queue.SimpleQueue()
    collectors = {**build_collectors(config), "agent": own}
    samplers = [Sampler(name, collector, Level.ALL, readings) for name, collector in collectors.items()]
    own.watch(samplers, [_outlet(name, sink) for name, sink in sinks.items()], int)
    pipeline = Pipeline(samplers, (), readings, interval=8.0)
    pipeline.start()
    before = pipeline.gather(time.time_ns(), PATIENCE)
    time.sleep(PAUSE)
    points = pipeline.gather(time.time_ns(), PATIENCE)
    pipeline.close(0)
    return Discovery(
        before,
        points,
        {s.name: s.yielded for s in samplers if s.unavailable is None and s.ok},
        {s.name: s.unavailable for s in samplers if s.unavailable is not None},
        {s.name: s.trouble or "its reading does not come back" for s in samplers if s.unavailable is None and not s.ok},
    )


def _outlet(name: str, sink: Sink) -> Route:
    """Return an outlet that never starts, for the agent's own metrics of it: as after its first point."""
    spool = Spool(name)
    spool.ledger.book({"collected": 1, "sent": 1})
    worker = Worker(name, sink, spool)
    return Route(Filter(Level.ALL), Window(0, born=0), spool, worker, Dimensions)
