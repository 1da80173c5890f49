"""One sink's way from samples to its spool: what it wants, its windows, what it owes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from agent.datapoint import Datapoint, Dimensions, Level, Metric
from agent.pipeline.cardinality_limit import CardinalityLimit
from agent.pipeline.delivery import Worker
from agent.pipeline.window import Window
from agent.spool.queue import Spool


class Filter:
    """Which metrics a sink wants: up to a level, matching a glob of `include` and none of `exclude`."""

    def __init__(self, level: Level, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """Take globs over metric names; an empty `include` is all."""
        self._level, self._include, self._exclude = level, include, exclude
        self._known: dict[tuple[str, Level], bool] = {}

    def wants(self, metric: Metric) -> bool:
        """Tell whether points of `metric` are wanted."""
        key = (metric.name, metric.level)
        known = self._known.get(key)
        if known is None:
            known = (
                metric.level <= self._level
                and (not self._include or any(fnmatchcase(metric.name, glob) for glob in self._include))
                and not any(fnmatchcase(metric.name, glob) for glob in self._exclude)
            )
            self._known[key] = known
        return known


class Route:
    """Filter, window and spool of one sink; used by the clock's thread. The worker takes it from there."""

    def __init__(
        self,
        chosen: Filter,
        window: Window,
        spool: Spool,
        worker: Worker,
        common: Callable[[], Dimensions | None],
        *,
        budget: CardinalityLimit | None = None,
        copies: Callable[[Sequence[Datapoint]], Sequence[Datapoint]] | None = None,
    ) -> None:
        """
        Put what `chosen` lets through into `spool`, window by window and within `budget`, and wake `worker`.

        `copies` gives what is to be sent beside the points of a window: from there on these are points as any.
        """
        self.name = worker.name
        self._budget, self._copies = budget, copies
        self.spool, self.worker = spool, worker
        self._wants, self._window, self._common = chosen.wants, window, common

    def take(self, points: Iterable[Datapoint], at: int) -> None:
        """Take the samples of one tick."""
        self._keep(self._window.add(points, at, self._wants))
        if not self._window.is_instant:
            self.spool.note_samples(self._window.samples)

    def prime(self, points: Iterable[Datapoint], at: int) -> None:
        """Take samples as a base for counters only."""
        self._window.prime(points, at, self._wants)

    def close_window(self) -> None:
        """End the window that is open, however short."""
        self._keep(self._window.close())
        self.spool.note_samples(0)

    def _keep(self, points: Sequence[Datapoint]) -> None:
        if self._copies:
            points = [*points, *self._copies(points)]
        if self._budget and len(admitted := self._budget.admit(points)) < len(points):
            self.spool.refuse(len(points) - len(admitted), "over max_series")
            points = admitted
        if points:
            self.spool.append(points, self._common())
            self.worker.wake()
