"""The contract of a processor: datapoints that follow from the datapoints of one tick."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

from chipwatch.contract.datapoint import Datapoint, Metric


class Processor(Protocol):
    """
    Derives datapoints from all datapoints of one tick, whichever collectors they come from.

    Write a class with a nested frozen dataclass `Config`, `__init__(self, config)` that touches nothing outside, and
    the members below; it may derive from this one, and need not. Register it in the entry point group
    `chipwatch.processors`: the entry point's name is the configuration key. What only some processors do is in
    `chipwatch.contract.extensions`.

    The frame calls `derive` once for each tick with the datapoints of the collectors and of the processors before it,
    always on this processor's own thread. Processors run in the order of their names. An exception ends only this
    processor's share of this tick; so does a call that takes over two seconds, and the processor is passed over until
    it returns. So: no file, socket, thread or sleep.
    """

    metrics: Sequence[Metric] = ()
    """All that `derive` may return: part of the catalogue."""

    @abstractmethod
    def derive(self, tick: Sequence[Datapoint], at: int) -> Iterable[Datapoint]:
        """Return datapoints stamped `at` (ns since the epoch); may keep state from one tick to the next."""

    def describe(self) -> str:
        """Return in a few words what was derived; asked by `chipwatch check` after two ticks."""
        return ""
