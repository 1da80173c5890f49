"""The route of one sink from samples to its spool: filter, window, limit of series."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from chipwatch.datapoint import Datapoint, Dimensions, Kind, Level, Metric
from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.pipeline.delivery import Worker
from chipwatch.pipeline.window import Window
from chipwatch.spool.queue import Spool

log = logging.getLogger(__name__)

FORGET: Final = 3600 * 10**9
"""Nanoseconds after which a series that is gone makes room for another: CloudWatch bills a metric by the hour."""
COUNTER: Final = Kind.COUNTER  # reading a module's constant takes half the time of an enum's member


class Filter:
    """Which metrics a sink wants: up to a level, matching a glob of `include` and none of `exclude`."""

    def __init__(self, level: Level, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """Take globs over metric names; an empty `include` is all."""
        self._level, self._include, self._exclude = level, include, exclude
        self._known: dict[tuple[str, Level], bool] = {}

    def wants(self, metric: Metric) -> bool:
        """Tell whether points of `metric` are wanted."""
        key = (metric.name, metric.level)
        if (known := self._known.get(key)) is None:
            known = self._known[key] = (
                metric.level <= self._level
                and (not self._include or any(fnmatchcase(metric.name, glob) for glob in self._include))
                and not any(fnmatchcase(metric.name, glob) for glob in self._exclude)
            )
        return known


class CardinalityLimit:
    """Admits the points of the first `max_series` series, so that a wrong dimension does not become a bill."""

    def __init__(self, sink: str, max_series: int) -> None:
        """Take the sink's name for the log, and how many series it may be sent."""
        self._max_series = max_series
        self._seen: dict[tuple[str, Dimensions], int] = {}
        self._logger = ThrottledLogger(log, sink)

    def admit(self, points: Sequence[Datapoint]) -> list[Datapoint]:
        """Return those of `points` whose series are within the limit."""
        seen, admitted = self._seen, []
        if points and len(seen) >= self._max_series:
            horizon = points[0].at - FORGET
            for key in [key for key, last in seen.items() if last < horizon]:
                del seen[key]
        for point in points:
            key = (point.metric.name, point.dims)
            if key in seen or len(seen) < self._max_series:
                seen[key] = point.at
                admitted.append(point)
        if len(admitted) < len(points):
            self._warn(points)
        return admitted

    def _warn(self, points: Sequence[Datapoint]) -> None:
        """Log the metric with the most series, and its dimension with the most values."""
        series = {*self._seen, *((point.metric.name, point.dims) for point in points)}
        metric, count = Counter(name for name, _ in series).most_common(1)[0]
        values = Counter(key for key, _ in {pair for name, dims in series if name == metric for pair in dims.items()})
        grew = f" by its dimension {values.most_common(1)[0][0]}" if values else ""
        self._logger.log(
            logging.WARNING,
            "max_series",
            f"more than {self._max_series} series, the others are not sent: {metric} alone has {count}{grew};"
            f" exclude it, or raise max_series",
        )


class MovedCounters:
    """
    Admits a counter from its first move on, for a sink where each series costs.

    Until then all that the sink could be sent of it is 0. Later zeros are admitted, so that a graph returns to 0.
    """

    def __init__(self, *, increases: bool) -> None:
        """With `increases` the sink is sent increases: a counter moves when it rises, else when it is not 0."""
        self._increases = increases
        self._moved: dict[tuple[str, Dimensions], int] = {}
        self._calls = 0

    def admit(self, points: Sequence[Datapoint]) -> list[Datapoint]:
        """Return the gauges, and the counters that have moved."""
        moved, admitted = self._moved, []
        for point in points:
            metric, value, dims, at, *_, increase = point
            if metric.kind is COUNTER:
                key = (metric.name, dims)
                if key not in moved and not (increase if self._increases else value):
                    continue
                moved[key] = at
            admitted.append(point)
        self._calls += 1
        if points and self._calls % 64 == 0:
            horizon = points[0].at - FORGET
            self._moved = {key: last for key, last in moved.items() if last > horizon}
        return admitted


class Route:
    """Filter, window, limits and spool of one sink; used by the clock's thread. The worker delivers from the spool."""

    def __init__(
        self,
        chosen: Filter,
        window: Window,
        spool: Spool,
        worker: Worker,
        common: Callable[[], Dimensions | None],
        *,
        limit: CardinalityLimit | None = None,
        moved: MovedCounters | None = None,
        copies: Callable[[Sequence[Datapoint]], Sequence[Datapoint]] | None = None,
    ) -> None:
        """
        Put what `chosen` lets through into `spool`, window by window and within `limit`, and wake `worker`.

        `copies` returns further points to send with those of a window; they are treated like any other point. A
        counter that `moved` holds back keeps its place within `limit`, so that its first event is sent.
        """
        self.name = worker.name
        self._limit, self._moved, self._copies = limit, moved, copies
        self.spool, self.worker = spool, worker
        self._wants, self._window, self._common = chosen.wants, window, common

    def first_points(self, interval: float) -> float:
        """Return in about how many seconds the first points are sent, with a tick every `interval` seconds."""
        return self._window.first_seconds(interval) + self.worker.first_wait

    def take(self, points: Iterable[Datapoint], at: int) -> None:
        """Take the samples of one tick."""
        self._keep(self._window.add(points, at, self._wants))
        if not self._window.is_instant:
            self.spool.note_samples(self._window.samples)

    def prime(self, points: Iterable[Datapoint], at: int) -> None:
        """Take samples as a base for counters only."""
        self._window.prime(points, at, self._wants)

    def close_window(self) -> None:
        """End the open window, however short."""
        self._keep(self._window.close())
        self.spool.note_samples(0)

    def _keep(self, points: Sequence[Datapoint]) -> None:
        if self._copies:
            points = [*points, *self._copies(points)]
        if self._limit and len(admitted := self._limit.admit(points)) < len(points):
            self.spool.refuse(len(points) - len(admitted), "over max_series")
            points = admitted
        if self._moved:
            points = self._moved.admit(points)
        if points:
            self.spool.append(points, self._common())
            self.worker.wake()
