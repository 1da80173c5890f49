"""The contract of a processor: datapoints that follow from the datapoints of one tick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from agent.datapoint import Datapoint, Metric


class Processor(Protocol):
    """
    Derives datapoints from all datapoints of one tick, whichever collectors they come from.

    What you write: a frozen dataclass `Config` nested in the class, `__init__(self, config)` that touches nothing
    outside, `metrics` and `derive`. Register the class in the entry point group `agent.processors`; the entry point's
    name is the configuration key.

    What the frame promises: `derive` is called once for each tick, always on the same thread, with the datapoints of
    the collectors and of the processors before it. Processors run in the order of their names. An exception ends this
    processor's share of this tick and nothing else. So: no file, socket, thread or sleep.
    """

    metrics: Sequence[Metric] = ()
    """All that `derive` may return: part of the catalogue."""

    def derive(self, tick: Sequence[Datapoint], at: int) -> Iterable[Datapoint]:
        """Return datapoints stamped `at` (ns since the epoch); may keep state from one tick to the next."""
        ...
