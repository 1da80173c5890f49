"""Makes the points of a GPU or instance: drops impossible values, and detects counters that were reset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from chipwatch.collectors.nvidia.metrics import ALWAYS, SeriesKey, metrics_of
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric
from chipwatch.host.counters import Life, MemberSum
from chipwatch.host.gpu_metrics import MOST

_new: Final = tuple.__new__  # makes a Datapoint in half the time of `Metric.point`
MOST_COUNT: Final = 2.0**63
SHARE: Final = math.nextafter(101, 0)
"""Largest share (%) that counts as 100: GPM's rounding errors stay below 101."""
SENSOR: Final = math.nextafter(0, 1)
"""Smallest valid reading of a sensor that reads 0 if it is absent."""
BOUNDS: Final = {
    "%": (0.0, 100.0, SHARE),
    "Cel": (SENSOR, MOST["Cel"], 0.0),
    "gpu.efficiency": (0.0, 100.0, 200.0),
    "gpu.fan.utilization": (0.0, 100.0, 200.0),
    "gpu.module.power": (SENSOR, MOST["W"], 0.0),
    "gpu.power.limit": (SENSOR, MOST["W"], 0.0),
    "gpu.rows.failed": (0.0, 1.0, MOST_COUNT),
    "gpu.temperature.limit": (-MOST["Cel"], MOST["Cel"], 0.0),
    "gpu.temperature.margin": (-MOST["Cel"], MOST["Cel"], 0.0),
}
"""Unit or metric -> smallest value, largest value, and the limit up to which a value counts as the largest one."""


class PartSeries(NamedTuple):
    """A series of a GPU: metric, dimensions, bounds, and for a counter its life."""

    metric: Metric
    dims: Dimensions
    least: float
    most: float
    limit: float
    """Readings from `most` up to this count as `most`."""
    life: Life | None
    """The last value and start time of a counter; None for a gauge."""
    is_wanted: bool
    """False if the level excludes it."""


class _SeriesByKey(dict[SeriesKey, PartSeries]):
    def __init__(self, dims: Dimensions, metrics: Mapping[str, Metric], level: Level) -> None:
        super().__init__()
        self._dims, self._metrics, self._level = dims, metrics, level

    def __missing__(self, key: SeriesKey) -> PartSeries:
        name, *values = key
        metric = self._metrics[name]
        bounds = BOUNDS.get(name) or BOUNDS.get(metric.unit) or (0.0, MOST.get(metric.unit, MOST_COUNT), 0.0)
        further = metric.dims[len(metric.dims) - len(values) :]
        dims = self._dims | dict(zip(further, values, strict=True))
        life = Life() if metric.kind is Kind.COUNTER else None
        is_wanted = metric.level <= self._level or name in ALWAYS
        series = self[key] = PartSeries(metric, dims, *bounds, life, is_wanted)
        return series


class PartPoints:
    """The points of a GPU or instance in one tick, and its counters from tick to tick."""

    def __init__(self, dims: Dimensions, keys: tuple[str, ...], level: Level) -> None:
        """`keys`: keys of `dims` in the order of metrics' declarations."""
        self._dims, self.metrics = dims, metrics_of(*keys)
        self._series = _SeriesByKey(dims, self.metrics, level)
        self._sums: dict[SeriesKey, MemberSum] = {}
        self.at = 0
        """Time of the tick (ns since the epoch)."""
        self.points: list[Datapoint] = []
        """List to which the points of the tick are added."""

    def put(self, name: str, value: float) -> None:
        """Add a gauge without further dimensions, whose value needs no check."""
        self.points.append(_new(Datapoint, (self.metrics[name], value, self._dims, self.at, None, None, None, None)))

    def add(self, key: SeriesKey, value: float | None, rise: float = math.inf) -> bool:
        """
        Add a reading of a series; return False if there is none (None) or if it cannot be true.

        An increase of a counter by more than `rise` counts as an error until it is confirmed.
        """
        if value is None:
            return False
        metric, dims, least, most, limit, life, is_wanted = self._series[key]
        if not least <= value <= most:
            if not most < value <= limit:
                return False
            value = most
        if life is not None and not life.take(value, self.at, rise):
            return False
        if is_wanted:
            start_time = None if life is None else life.start_time
            self.points.append(_new(Datapoint, (metric, value, dims, self.at, start_time, None, None, None)))
        return True

    def add_total(self, key: SeriesKey, members: Mapping[Any, float]) -> None:
        """Add the sum of a counter over its members."""
        metric, dims, *_ = self._series[key]
        total = self._sums.setdefault(key, MemberSum())
        total.take(members, self.at)
        self.points.append(metric.point(self.at, total.value, dims, start_time=total.start_time))

    def life(self, key: SeriesKey) -> Life:
        """Return the last value and start time of a counter."""
        life = self._series[key].life
        assert life is not None
        return life
