"""The contract of a processor: datapoints that follow from the datapoints of one tick."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from chipwatch.datapoint import Datapoint, Metric


class Processor(Protocol):
    """
    Derives datapoints from all datapoints of one tick, whichever collectors they come from.

    What you write: a frozen dataclass `Config` nested in the class, `__init__(self, config)` that touches nothing
    outside, `metrics` and `derive`. Register the class in the entry point group `chipwatch.processors`; the entry point's
    name is the configuration key.

    What the frame promises: `derive` is called once for each tick with the datapoints of the collectors and of the
    processors before it; `derive`, `saved` and `restore` run on one thread, which is this processor's own. Processors
    run in the order of their names. An exception ends this processor's share of this tick and nothing else, and so does
    a call that takes over two seconds; until that returns there is no other. So: no file, socket, thread or sleep.
    """

    metrics: Sequence[Metric] = ()
    """All that `derive` may return: part of the catalogue."""

    needs_facts: bool = False
    """Whether collectors are asked for facts: processes, activity and whatever else is no datapoint."""

    facts: Sequence[object] = ()
    """The facts of this tick, if `needs_facts`; set before `derive`."""

    @abstractmethod
    def derive(self, tick: Sequence[Datapoint], at: int) -> Iterable[Datapoint]:
        """Return datapoints stamped `at` (ns since the epoch); may keep state from one tick to the next."""
        ...

    def saved(self) -> bytes | None:
        """Return what a restart of the agent is not to lose; kept on disk each minute if `needs_facts`."""
        return None

    def restore(self, saved: bytes) -> None:
        """Take what an earlier process saved; raise ValueError if it cannot be read."""
        del saved

    def answer(self) -> Mapping[str, Any]:
        """Return what `agent NAME` shows of a running agent, as JSON; called on the status socket's thread."""
        return {}

    def describe(self) -> str:
        """Say in a few words what was derived; asked by `agent check` after two ticks."""
        return ""
