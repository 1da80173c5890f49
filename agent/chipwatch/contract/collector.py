"""The contract of a collector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

from chipwatch.contract.datapoint import Datapoint, Metric


class Collector(Protocol):
    """
    Reads one source on this host. Opened once, read every interval, closed once, always on the same thread.

    Write a class with a nested frozen dataclass `Config`, `__init__(self, config)` that touches nothing outside, and
    the members below; it may derive from this one, and need not. Register it in the entry point group
    `chipwatch.collectors`: the entry point's name is the configuration key and the value of `--collector`.
    What only some collectors do is in `chipwatch.contract.extensions`.

    The frame never calls `collect` before `open` succeeded, nor twice at once. An exception ends only this reading, a
    malformed point is left out alone; both are logged and counted. A reading yields at most 20,000 points. A call
    that never returns blocks only this collector. So: no thread, timer, retry or sleep. With the extension `NeverWaits`
    the clock's thread calls it, and a call that never returns blocks the agent.
    """

    metrics: Sequence[Metric]
    """All that `collect` may yield: the catalogue is made of these."""

    def open(self) -> None:
        """Acquire handles; raise Unavailable("what is missing, where it looked")."""

    @abstractmethod
    def collect(self, at: int) -> Iterable[Datapoint]:
        """
        Yield the values that can be read now, each stamped `at` (ns since the epoch).

        Skip values that cannot be read: absent is not zero. If some devices failed, yield the others and raise
        PartlyCollected last. A rate needs two readings: the first call then yields nothing.
        """

    def describe(self) -> str:
        """Return in a few words what was found; asked by `chipwatch check` after `open` and one `collect`."""
        return ""

    def close(self) -> None:
        """Release handles; safe to call twice, and before `open`."""
