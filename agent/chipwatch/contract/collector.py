"""The base class of collectors: plugins that read one source on this host."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.plugin import Given, Needs

MOST_POINTS: Final = 20_000
"""Most points of one reading; they take 60 MB at most, in any sink."""


class Collector(ABC):
    """
    Reads one source on this host, such as a driver or a file of the kernel.

    The agent opens it once, reads it every interval and closes it once, always on the same thread.

    Derive from it, with a nested frozen dataclass `Config` and an `__init__(self, config)` that touches nothing
    outside. `collect` and `metrics` must be there; every other method does nothing unless you write it. Register the
    class in the entry point group `chipwatch.collectors`: the entry point's name is the configuration key and the
    value of `--collector`.

    The agent never calls `collect` before `open` succeeded, and never twice at the same time. So a collector needs no
    thread, timer, retry or sleep. An exception ends only this reading; a malformed point is left out, and the others
    stay. Both are logged and counted. A call that never returns blocks only this collector. The agent takes 20,000
    points of a reading, and sets no attribute of a collector.
    """

    metrics: Sequence[Metric]
    """All metrics that `collect` may yield; `chipwatch list` prints them."""
    needs: ClassVar[Needs] = Needs()
    """The things that this class needs from the agent; `open` gets them."""
    knows: ClassVar[Sequence[type]] = ()
    """The types that `facts` may yield, such as `chipwatch.Device`."""

    every: float = 0.0
    """Seconds between two readings, at least. The first two ticks and the last one read it in any case."""

    def open(self, given: Given) -> None:
        """Acquire handles; raise Unavailable("what is missing, where it looked")."""

    @abstractmethod
    def collect(self, at: int) -> Iterable[Datapoint]:
        """
        Yield the values that can be read now, each stamped `at` (ns since the epoch).

        Skip a value that cannot be read; never yield 0 for it. If some devices fail, yield the points of the others and
        raise PartlyCollected last. A rate needs two readings, so the first call yields none.
        """

    def facts(self) -> Iterable[Any]:
        """Yield what the last reading showed beside points, of the types in `knows`; called after `collect`."""
        return ()

    def follow(self, pids: Collection[int], idle: Collection[int]) -> None:
        """
        Take the pids that other collectors listed in this tick; `idle` are those on a device that was partly idle.

        Called before `collect`, on the clock's thread, if `needs.pids` is set.
        """

    def waits(self) -> bool:
        """
        Return whether a call may wait for a driver, disk, process, socket, lock or sleep; asked before `open`.

        A collector that waits gets a separate thread. Return False only if it reads what the kernel answers from its
        memory, such as /proc/stat: then the clock's thread calls it, and a call that never returns blocks the agent.
        """
        return True

    def rests(self) -> float:
        """Return for how many seconds it rests while no collector finds a device; asked up to level `needs.devices`."""
        return math.inf

    def yields_others(self) -> bool:
        """Return True if `metrics` cannot list all metrics, since other programs choose their names."""
        return False

    def silent(self) -> Mapping[Dimensions, str] | None:
        """Return the reason for each device that is there and cannot be read; None if unknown. Called on any thread."""
        return None

    def asking(self) -> str:
        """Return what the reading waits for now, such as `GPU 3: NVML`; "" if unknown. Called on any thread."""
        return ""

    def describe(self) -> str:
        """Return in a few words what was found, for `chipwatch check`. Called after `open` and one `collect`."""
        return ""

    def close(self) -> None:
        """Release handles. The agent also calls it after a failed `open`, and may call it twice, or before `open`."""
