"""Says on each point of a device who holds the device, for the sinks that want it; docs/job-metrics.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from chipwatch.contract.datapoint import COUNTER, DEVICES, NO_DIMENSIONS, Datapoint, Dimensions, Metric, new
from chipwatch.contract.owner import Owner

FORGET: Final = 3600 * 10**9
"""Nanoseconds after its last point for which a holder's counter goes on when the holder comes back."""
MOST: Final = 10_000
"""Most series of former holders that are remembered for that long; more push out the series of the earliest holders."""
SLOWEST: Final = 15 * 10**9
"""Nanoseconds between two points of a series that is read least often."""


@dataclass(slots=True, eq=False)
class HolderSeries:
    """A series of a device for one holder."""

    metric: Metric
    dims: Dimensions
    last: Datapoint
    """The device's last point in the time of this holder."""
    gap: int = SLOWEST
    """About the nanoseconds between two points; it begins at SLOWEST and nears a shorter one by eighths."""
    start: int = 0
    """For a counter: the time from which on it counts (ns since the epoch); 0: it has no point yet."""
    total: float = 0.0
    """For a counter: its rise in the time of this holder."""


class OwnerLabels:
    """
    Puts who holds a device on its points; where several share the device, each has a point.

    A window ends when a device gets another holder, so that a point is of one holder. A counter of a device counts for
    each holder what it rose while that one held the device, from 0 on: so the increases of all holders in turn are the
    device's. A page that is `scraped` changes as a whole: series that are read less often are there again with the new
    holder. On it a counter of events stays as the device has it, for rules such as `errors > 0`. Used by the clock's
    thread.
    """

    def __init__(
        self, keys: Sequence[str], owners_of: Callable[[Dimensions], Iterable[Owner]], *, scraped: bool = False
    ) -> None:
        """Take the keys to add (OwnerLabel), and a function that returns who holds a device."""
        self._keys, self._owners_of, self._scraped = keys, owners_of, scraped
        self._labels: dict[Dimensions, Sequence[Dimensions]] = {}
        """Device -> the labels of each holder; no labels if there is none."""
        self._series: dict[tuple[str, Dimensions], Sequence[HolderSeries]] = {}
        """A device's series -> that of each present holder."""
        self._known: dict[tuple[str, Dimensions], HolderSeries] = {}
        """The series of all holders of the last hour; the latest holders come last."""
        self._former: dict[tuple[str, Dimensions], Sequence[HolderSeries]] = {}
        """`_series` before a change, until the next points."""

    def update(self, points: Iterable[Datapoint], end: Callable[[], object]) -> None:
        """Ask who holds the devices of a tick's points; call `end` first if that is not as before."""
        devices = {*map(device_dims, {point.dims for point in points})} - {NO_DIMENSIONS}
        now = {device: self._labels_of(device) for device in devices}
        if any(self._labels.get(device, labels) != labels for device, labels in now.items()):
            end()
            newest = max((one.last.at for one in self._known.values()), default=0)
            recent = [(key, one) for key, one in self._known.items() if newest - one.last.at < FORGET]
            self._known = dict(recent[-MOST - sum(map(len, self._series.values())) :])
            self._series, self._former = {}, self._series
        self._labels |= now

    def _labels_of(self, device: Dimensions) -> Sequence[Dimensions]:
        owners = self._owners_of(device)
        labels = {Dimensions({key: word for key in self._keys if (word := owner.label(key))}) for owner in owners}
        return sorted(labels - {NO_DIMENSIONS}, key=lambda dims: dims.items_sorted) or (NO_DIMENSIONS,)

    def labels(self, metric: Metric, dims: Dimensions) -> Sequence[Dimensions]:
        """Return each holder's labels for a series; () for one that stays as it is. Any thread may call it."""
        labels = self._labels.get(device_dims(dims), ())
        if labels and ("job" in metric.dims or "endpoint" in metric.dims or not dims.keys().isdisjoint(self._keys)):
            return ()
        return labels

    def series(self, point: Datapoint) -> Sequence[HolderSeries]:
        """Return the series of each holder for a point of a device; () for one that stays as it is."""
        metric, dims = point.metric, point.dims
        if (series := self._series.get((metric.name, dims))) is None:
            series = [self._of_holder(point, tuple(each), dims | each) for each in self.labels(metric, dims)]
            if series:
                self._series[metric.name, dims] = series
        return series

    def _of_holder(self, point: Datapoint, keys: tuple[str, ...], dims: Dimensions) -> HolderSeries:
        metric = replace(point.metric, dims=(*point.metric.dims, *keys), owner=keys) if keys else point.metric
        key = metric.name, dims
        self._known[key] = series = self._known.pop(key, None) or HolderSeries(metric, dims, point)
        return series

    def __call__(self, points: Iterable[Datapoint]) -> list[Datapoint]:
        """Return the points of a window with the labels."""
        labelled = []
        for point in points:
            series = self.series(point)
            labelled += [self._point(one, point) for one in series] if series else [point]
        if self._scraped and self._former:
            labelled += self._again(max((point.at for point in labelled), default=0))
        return labelled

    def _again(self, at: int) -> Iterator[Datapoint]:
        """Yield the last points of series that are read less often, where the holder of the device has changed."""
        former, self._former = self._former, {}
        for key, series in former.items():
            if key not in self._series and series and at - series[0].last.at < 0.9 * series[0].gap:
                point = series[0].last
                if (present := self.series(point)) != series:
                    point = point._replace(window_start=point.at, increase=None)
                    yield from (self._point(one, point) for one in present)

    def _point(self, series: HolderSeries, point: Datapoint) -> Datapoint:
        """Return a device's point as that of a holder."""
        _, value, _, at, since, start, summary, increase = point
        if at > series.last.at > 0:
            series.gap = max(at - series.last.at, series.gap * 7 // 8)
        series.last = point
        if series.metric.kind is COUNTER:
            series.start = series.start or start or at
            series.total += increase or 0.0
            is_kept = self._scraped and series.metric.counts_events
            value, since = (value, None) if is_kept else (series.total, series.start)
        return new(Datapoint, (series.metric, value, series.dims, at, since, start, summary, increase))


@lru_cache(maxsize=20_000)
def device_dims(dims: Dimensions) -> Dimensions:
    """Return the dimensions that identify a device or its part; none if a series is of no device."""
    return Dimensions({key: dims[key] for key in DEVICES if key in dims})
