"""The base class of processors: plugins that derive datapoints from other datapoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.owner import Owner
from chipwatch.contract.plugin import Given, Needs


class Processor(ABC):
    """
    Derives datapoints from the datapoints of all collectors in one tick.

    Derive from it, with a nested frozen dataclass `Config` and an `__init__(self, config)` that touches nothing
    outside. `derive` must be there; every other method does nothing unless you write it. Register the class in the
    entry point group `chipwatch.processors`: the entry point's name is the configuration key.

    The agent calls `derive` once for each tick with the datapoints of the collectors and of the processors before it.
    Processors run in the order of their names. An exception costs only this processor's points of this tick. The
    clock's thread makes the call, so one that never returns blocks the agent: use no file, socket, thread or sleep.
    The agent sets no attribute of a processor.
    """

    metrics: Sequence[Metric] = ()
    """All metrics that `derive` may return; `chipwatch list` prints them."""
    needs: ClassVar[Needs] = Needs()
    """The things that this class needs from the agent; `open` and `derive` get them."""

    def open(self, given: Given) -> None:
        """Prepare; called before the first `derive`."""

    @abstractmethod
    def derive(self, tick: Sequence[Datapoint], at: int, facts: Sequence[Any]) -> Iterable[Datapoint]:
        """
        Return datapoints stamped `at` (ns since the epoch). It may keep state from one tick to the next.

        `facts` are what the collectors know beside the points of this tick; () unless `needs.facts` is set.
        """

    def owners_of(self, device: Dimensions) -> Sequence[Owner]:
        """Return who holds a device now, by the dimensions that identify it. The clock's thread asks after `derive`."""
        return ()

    def job_dims(self) -> Sequence[str]:
        """Return keys of dimensions that points of jobs have and their metrics do not declare."""
        return ()

    def saved(self) -> bytes | None:
        """
        Return the state to keep over a restart, or None if it has not changed; asked after each `derive`.

        This and `restore` are called only if `needs.state` is set.
        """
        return None

    def restore(self, saved: bytes) -> None:
        """Take the state that an earlier run saved, before the first `derive`; raise ValueError if it is unreadable."""

    def answer(self) -> Mapping[str, Any]:
        """Return what `chipwatch NAME` shows, as values of JSON. Called on the status socket's thread."""
        return {}

    def describe(self) -> str:
        """Return in a few words what was derived, for `chipwatch check`. Called after two ticks."""
        return ""
