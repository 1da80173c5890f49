"""The base of collectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.plugin import Given, Needs


class Collector(ABC):
    """
    Reads one source on this host. Opened once, read every interval, closed once, always on the same thread.

    Derive from it, with a nested frozen dataclass `Config` and an `__init__(self, config)` that touches nothing
    outside. `collect` and `metrics` must be there; every other method does nothing unless you write it. Register the
    class in the entry point group `chipwatch.collectors`: the entry point's name is the configuration key and the
    value of `--collector`.

    The agent never calls `collect` before `open` succeeded, nor twice at once. An exception ends only this reading, a
    malformed point is left out alone; both are logged and counted. A reading yields at most 20,000 points. A call
    that never returns blocks only this collector. So: no thread, timer, retry or sleep. The agent sets no attribute of
    a collector.
    """

    metrics: Sequence[Metric]
    """All that `collect` may yield: the catalogue is made of these."""
    needs: ClassVar[Needs] = Needs()
    """Gifts of `open`, and how the agent treats this class."""
    knows: ClassVar[Sequence[type]] = ()
    """The kinds of `facts`."""

    def open(self, given: Given) -> None:
        """Acquire handles; raise Unavailable("what is missing, where it looked")."""

    @abstractmethod
    def collect(self, at: int) -> Iterable[Datapoint]:
        """
        Yield the values that can be read now, each stamped `at` (ns since the epoch).

        Skip values that cannot be read: absent is not zero. If some devices failed, yield the others and raise
        PartlyCollected last. A rate needs two readings: the first call then yields nothing.
        """

    def facts(self) -> Iterable[Any]:
        """Yield what this reading showed beside points, of the kinds in `knows`; asked after `collect`, if needed."""
        return ()

    def follow(self, pids: Collection[int], idle: Collection[int]) -> None:
        """
        Take the pids that other collectors listed in this tick, and those on devices that had time without work.

        Called before `collect`, on the clock's thread, where `needs` has `pids`.
        """

    def waits(self) -> bool:
        """
        Return whether a call may wait for a driver, file system, process, socket, lock or sleep; asked before `open`.

        One that does gets a separate thread. One that reads only what the kernel answers from its memory, such as
        /proc/stat, is called by the clock's thread: a call that never returns blocks the agent.
        """
        return True

    def yields_others(self) -> bool:
        """Return whether it yields metrics of other programs, too, which `metrics` cannot list."""
        return False

    def silent(self) -> Mapping[Dimensions, str] | None:
        """Return the devices that are there and could not be read, and why; None: not known. On any thread."""
        return None

    def asking(self) -> str:
        """Return the answer that a reading waits for now, such as `GPU 3: NVML`; "": not known. On any thread."""
        return ""

    def describe(self) -> str:
        """Return in a few words what was found; asked by `chipwatch check` after `open` and one `collect`."""
        return ""

    def close(self) -> None:
        """Release handles; safe to call twice, and before `open`."""
