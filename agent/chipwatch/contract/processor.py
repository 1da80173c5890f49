"""The base of processors: datapoints that follow from the datapoints of one tick."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from chipwatch.contract.datapoint import Datapoint, Metric
from chipwatch.contract.plugin import Given, Needs


class Processor(ABC):
    """
    Derives datapoints from all datapoints of one tick, whichever collectors they come from.

    Derive from it, with a nested frozen dataclass `Config` and an `__init__(self, config)` that touches nothing
    outside. `derive` must be there; every other method does nothing unless you write it. Register the class in the
    entry point group `chipwatch.processors`: the entry point's name is the configuration key.

    The agent calls `derive` once for each tick with the datapoints of the collectors and of the processors before it,
    always on this processor's own thread. Processors run in the order of their names. An exception ends only this
    processor's share of this tick; so does a call that takes over two seconds, and the processor is passed over until
    it returns. So: no file, socket, thread or sleep. The agent sets no attribute of a processor.
    """

    metrics: Sequence[Metric] = ()
    """All that `derive` may return: part of the catalogue."""
    needs: ClassVar[Needs] = Needs()
    """Gifts of `open` and `derive`, and how the agent treats this class."""

    def open(self, given: Given) -> None:
        """Begin; called before the first `derive`."""

    @abstractmethod
    def derive(self, tick: Sequence[Datapoint], at: int, facts: Sequence[Any]) -> Iterable[Datapoint]:
        """
        Return datapoints stamped `at` (ns since the epoch); may keep state from one tick to the next.

        `facts` are what collectors know beside the points of this tick, where `needs` has `facts`; else ().
        """

    def job_dims(self) -> Sequence[str]:
        """Return the dimensions of its points of jobs that its metrics do not declare."""
        return ()

    def saved(self) -> bytes | None:
        """
        Return what it must know after a restart, None to keep the last; asked after each `derive`.

        Asked, as `restore`, where `needs` has `state`.
        """
        return None

    def restore(self, saved: bytes) -> None:
        """Take the state of an earlier process, before the first `derive`; raise ValueError if it is unreadable."""

    def answer(self) -> Mapping[str, Any]:
        """Return what `chipwatch NAME` shows, as JSON; called on the status socket's thread."""
        return {}

    def describe(self) -> str:
        """Return in a few words what was derived; asked by `chipwatch check` after two ticks."""
        return ""
