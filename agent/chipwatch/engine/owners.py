"""Says on each point of a device who holds the device, for the sinks that want it; docs/jobs.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from chipwatch.contract.datapoint import DEVICES, NO_DIMENSIONS, Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.owner import Owner

FORGET: Final = 3600 * 10**9
"""Nanoseconds after its last point for which a holder's counter goes on when the holder comes back."""
COUNTER: Final = Kind.COUNTER  # reading a module's constant takes half the time of an enum's member
_new: Final = tuple.__new__
"""Makes a Datapoint in half the time of a call with its fields."""
SLOWEST: Final = 20 * 10**9
"""Nanoseconds between two points of the series that are read least often, and some more."""


@dataclass(slots=True, eq=False)
class HolderSeries:
    """A series of a device for one holder."""

    metric: Metric
    dims: Dimensions
    at: int = 0
    """Time of its last point (ns since the epoch)."""
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
        """The series of all holders of the last hour."""
        self._last: dict[tuple[str, Dimensions], Datapoint] = {}
        """The last points of devices' series."""
        self._changed = set[Dimensions]()
        """The devices that have another holder than in the last points."""

    def update(self, points: Iterable[Datapoint], end: Callable[[], object]) -> None:
        """Ask who holds the devices of a tick's points; call `end` first if that is not as before."""
        devices = {device_of(point.dims) for point in points} - {NO_DIMENSIONS}
        now = {device: self._labels_of(device) for device in devices}
        changed = {device for device, labels in now.items() if self._labels.get(device, labels) != labels}
        if changed:
            end()
            newest = max((one.at for one in self._known.values()), default=0)
            self._known = {key: one for key, one in self._known.items() if newest - one.at < FORGET}
            self._series, self._labels, self._changed = {}, now, changed
        self._labels |= now

    def _labels_of(self, device: Dimensions) -> Sequence[Dimensions]:
        owners = self._owners_of(device)
        labels = {Dimensions({key: word for key in self._keys if (word := owner.label(key))}) for owner in owners}
        return sorted(labels - {NO_DIMENSIONS}, key=lambda dims: dims.items_sorted) or (NO_DIMENSIONS,)

    def series(self, metric: Metric, dims: Dimensions) -> Sequence[HolderSeries]:
        """Return the series of each holder for a series of a device; () for a series that stays as it is."""
        if (series := self._series.get((metric.name, dims))) is None:
            if not (labels := self._labels.get(device_of(dims))):
                return ()
            is_apart = "job" in metric.dims or "endpoint" in metric.dims or not dims.keys().isdisjoint(self._keys)
            series = [] if is_apart else [self._of_holder(metric, dims | each, tuple(each)) for each in labels]
            self._series[metric.name, dims] = series
        return series

    def _of_holder(self, metric: Metric, dims: Dimensions, keys: tuple[str, ...]) -> HolderSeries:
        owned = replace(metric, dims=(*metric.dims, *keys), owner=keys) if keys else metric
        return self._known.setdefault((metric.name, dims), HolderSeries(owned, dims))

    def __call__(self, points: Iterable[Datapoint]) -> list[Datapoint]:
        """Return the points of a window with the labels."""
        labelled = []
        for point in points:
            if series := self.series(point.metric, point.dims):
                labelled += [self._point(one, point) for one in series]
                self._last[point.metric.name, point.dims] = point
            else:
                labelled.append(point)
        if self._scraped and self._changed:
            labelled += self._again()
        return labelled

    def _again(self) -> list[Datapoint]:
        """Return the last points of the changed devices' series that are not in this tick, with the new holders."""
        oldest = max((point.at for point in self._last.values()), default=0) - SLOWEST
        absent = [point for key, point in self._last.items() if key not in self._series and point.at > oldest]
        late = [point._replace(window_start=point.at, increase=None) for point in absent]
        ours = [point for point in late if device_of(point.dims) in self._changed]
        self._changed = set()
        return [self._point(one, point) for point in ours for one in self.series(point.metric, point.dims)]

    def _point(self, series: HolderSeries, point: Datapoint) -> Datapoint:
        """Return a device's point as that of a holder."""
        _, value, _, series.at, since, start, summary, increase = point
        if series.metric.kind is COUNTER:
            series.start = series.start or start or series.at
            series.total += increase or 0.0
            is_kept = self._scraped and series.metric.counts_events
            value, since = (value, None) if is_kept else (series.total, series.start)
        return _new(Datapoint, (series.metric, value, series.dims, series.at, since, start, summary, increase))


@lru_cache(maxsize=20_000)
def device_of(dims: Dimensions) -> Dimensions:
    """Return the dimensions that identify a device or its part; none if a series is of no device."""
    return Dimensions({key: dims[key] for key in DEVICES if key in dims})
