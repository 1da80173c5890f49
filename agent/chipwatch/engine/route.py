"""The route of one sink: the samples of a tick pass a filter, a window and a limit of series, and enter the spool."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import COUNTER, Datapoint, Dimensions, Level, Metric
from chipwatch.engine.delivery import SinkDelivery
from chipwatch.engine.owners import OwnerLabels
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import MOST_GONE, Window

log = logging.getLogger(__name__)

FORGET: Final = 3600 * 10**9
"""Nanoseconds after its last point for which a series counts: CloudWatch bills each metric by the hour."""


class MetricFilter:
    """The metrics that a sink wants: up to a level, named by a glob of `include` and by none of `exclude`."""

    def __init__(self, level: Level, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """Take globs for the names of metrics; an empty `include` matches all."""
        self._level, self._include, self._exclude = level, include, exclude
        self._known: dict[tuple[str, Level], bool] = {}

    def wants(self, metric: Metric) -> bool:
        """Return whether points of `metric` are wanted."""
        key = (metric.name, metric.level)
        if (is_wanted := self._known.get(key)) is None:
            is_wanted = self._known[key] = (
                metric.level <= self._level
                and (not self._include or any(fnmatchcase(metric.name, glob) for glob in self._include))
                and not any(fnmatchcase(metric.name, glob) for glob in self._exclude)
            )
        return is_wanted


class _Admitted:
    """A series that counts against the limit."""

    __slots__ = ("at", "is_sent")

    def __init__(self, *, is_sent: bool) -> None:
        self.at = 0
        """Time of its last point (ns since the epoch)."""
        self.is_sent = is_sent


class Admission:
    """
    Limits the series that a sink sends, so that a wrong dimension does not become a large bill.

    The first `max_series` series are admitted; points of further ones are left out. A series without points for an hour
    is forgotten; if there is no limit, sooner when there are many of them.

    Without `zeros`, a counter is held back until it first moves, since it could only send 0. From then on its zeros are
    sent, so that a graph returns to 0. A counter that is held back counts against the limit, so that its first event
    is sent.
    """

    def __init__(self, sink: str, max_series: int | None, *, zeros: bool = True, increases: bool = False) -> None:
        """
        Take the name of the sink for the log, and the limit (None: no limit).

        With `increases`, the sink sends increases of counters, and a counter moves when it rises. Otherwise it moves
        when it is not 0.
        """
        self._most, self._zeros, self._increases = max_series or sys.maxsize, zeros, increases
        self._series: dict[tuple[str, Dimensions], _Admitted] = {}
        self._calls = 0
        self._logger = ThrottledLogger(log, sink)
        self.over = 0
        """Points of the last call that were left out by the limit."""
        self.left_out = 0
        """Most series that the limit left out at once."""

    def admit(self, points: Sequence[Datapoint]) -> list[Datapoint]:
        """Return the points to send."""
        self._calls += 1
        self.over = 0
        is_crowd = self._most == sys.maxsize and len(self._series) > MOST_GONE + len(points)
        if points and (len(self._series) >= self._most or self._calls % 64 == 0 or is_crowd):
            horizon = points[0].at - FORGET * (not is_crowd)
            self._series = {key: state for key, state in self._series.items() if state.at >= horizon}
        series, most, admitted = self._series, self._most, []
        for point in points:
            metric = point.metric
            key = (metric.name, point.dims)
            if (state := series.get(key)) is None:
                if len(series) >= most:
                    self.over += 1
                    continue
                state = series[key] = _Admitted(is_sent=self._zeros or metric.kind is not COUNTER)
            state.at = point.at
            if not state.is_sent:
                if not (point.increase if self._increases else point.value):
                    continue
                state.is_sent = True
            admitted.append(point)
        if self.over:
            self._warn(points)
        return admitted

    def has_room(self, series: tuple[str, Dimensions]) -> bool:
        """Return whether points of this series are admitted; another thread may call it."""
        return series in self._series or len(self._series) < self._most

    def _warn(self, points: Sequence[Datapoint]) -> None:
        """Log the metric with the most series, and its dimension with the most values."""
        series = {*self._series, *((point.metric.name, point.dims) for point in points)}
        metric, count = Counter(name for name, _ in series).most_common(1)[0]
        values = Counter(key for key, _ in {pair for name, dims in series if name == metric for pair in dims.items()})
        self.left_out = max(self.left_out, len(series) - len(self._series))
        grew = f" by its dimension {values.most_common(1)[0][0]}" if values else ""
        self._logger.log(
            logging.WARNING,
            "max_series",
            f"{self._most:,} series are sent, {self.left_out:,} are left out: {metric} alone has {count}{grew};"
            f" exclude it, or raise max_series",
        )


class Route:
    """
    The filter, window, limit of series and spool of one sink; used by the clock's thread.

    The points wait in the spool until `worker` delivers them.
    """

    def __init__(
        self,
        chosen: MetricFilter,
        window: Window,
        spool: Spool,
        worker: SinkDelivery,
        common: Callable[[], Dimensions | None],
        *,
        admission: Admission | None = None,
        copies: Callable[[Sequence[Datapoint]], Sequence[Datapoint]] | None = None,
    ) -> None:
        """
        Put points that pass `chosen` and `admission` into `spool`, window by window, and wake `worker`.

        `copies` returns more points to send with a window, which a naming profile adds; they are treated like others.
        """
        self.name = worker.name
        self._admission, self._copies = admission, copies
        self.spool, self.worker = spool, worker
        self._wants, self._window, self._common = chosen.wants, window, common
        self.owners: OwnerLabels | None = None
        """Says on points of devices who holds them; None where the sink does not want that."""
        self._logger = ThrottledLogger(log, self.name)

    @property
    def left_out(self) -> int:
        """Most series that `max_series` left out at once."""
        return self._admission.left_out if self._admission else 0

    def first_points(self, interval: float) -> float:
        """Return the seconds until the first points are sent, about; `interval` is the seconds between ticks."""
        return self._window.first_seconds(interval) + self.worker.schedule.first_wait

    def sends(self, metric: Metric, dims: Dimensions) -> bool | None:
        """
        Return whether this series is sent, not left out by `max_series`; None if its metric is not wanted.

        Another thread may call it.
        """
        if not self._wants(metric):
            return None
        labels = self.owners.labels(metric, dims) if self.owners else ()
        all_dims = [dims | each for each in labels] or [dims]
        return self._admission is None or all(self._admission.has_room((metric.name, each)) for each in all_dims)

    def take(self, points: Sequence[Datapoint], at: int) -> None:
        """Take the samples of one tick."""
        if self.owners:
            self.owners.update(points, self.close_window)
        self._keep(self._window.add(points, at, self._wants))
        if repeated := self._window.repeated:
            series = f"{repeated.metric.name} {dict(repeated.dims.items())}"
            text = f"collectors yield {series} more than once in a reading; the first value counts"
            self._logger.log(logging.WARNING, "repeated", text)
            self._window.repeated = None

    def prime(self, points: Iterable[Datapoint], at: int) -> None:
        """Take a first reading that is not sent: increases of counters begin at it."""
        self._window.prime(points, at, self._wants)

    def close_window(self) -> None:
        """End the open window, however short."""
        self._keep(self._window.close())

    def _keep(self, points: list[Datapoint]) -> None:
        if self._copies:
            points = [*points, *self._copies(points)]
        if self.owners:
            points = self.owners(points)
        if self._admission:
            points = self._admission.admit(points)
            if self._admission.over:
                self.spool.refuse(self._admission.over, "over max_series")
        if points:
            self.worker.accept(points, self._common())
