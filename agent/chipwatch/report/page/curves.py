"""Series of a recording as curves: the readings of gauges, the rates of counters, and their statistics."""

from __future__ import annotations

import math
from array import array
from functools import cached_property
from itertools import pairwise
from operator import sub, truediv
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Dimensions, Kind, Metric
from chipwatch.recording.columns import Recorded, RecordedSeries

FROM_ZERO: Final = ("{error}", "{event}", "{kill}")
"""Units of counters that have no reading before their first event."""


class CurveStatistics(NamedTuple):
    """Statistics over the readings of a line; of a counter over its rates, with its increase as the total."""

    readings: int
    mean: float
    p95: float
    minimum: float
    maximum: float
    total: float


class Curve:
    """A series of a recording: the readings of a gauge, or the rate (a second) of a counter in each interval."""

    def __init__(self, series: RecordedSeries, recorded: Recorded) -> None:
        self.metric: Metric = series.metric
        self.dims: Dimensions = series.dims
        self.times, self.values = series.times, series.values.tolist()
        self.increases: list[float] = []
        """Increase of a counter in each interval."""
        if self.metric.kind is Kind.COUNTER:
            self._take_rates(dict(series.starts), recorded)

    def _take_rates(self, starts: dict[int, int], recorded: Recorded) -> None:
        """Replace readings by rates; a counter counts from zero after each of its `starts`, and after a fall."""
        times, values, step = self.times, self.values, round(1e9 * (recorded.interval or 1))
        rises = [*map(sub, values[1:], values)]
        for place in starts:
            if place:
                rises[place - 1] = values[place]
        if rises and min(rises) < 0:
            rises = [now if rise < 0 else rise for rise, now in zip(rises, values[1:], strict=True)]
        zero = starts.get(0, 0)
        if zero < recorded.started and times[0] > recorded.started and self.metric.unit in FROM_ZERO:
            zero = times[0] - step
        if recorded.started - step <= zero < times[0]:
            times, rises = array("q", (zero, *times)), [values[0], *rises]
        seconds = [(late - early) / 1e9 for early, late in pairwise(times)]
        self.times, self.increases, self.values = times[1:], rises, [*map(truediv, rises, seconds)]

    @cached_property
    def stats(self) -> CurveStatistics | None:
        """Statistics at full precision, the percentile interpolated linearly; None without a reading."""
        if not (ordered := sorted(self.values)):
            return None
        total, rank = math.fsum(ordered), 0.95 * (len(ordered) - 1)
        low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
        return CurveStatistics(
            len(ordered), total / len(ordered), low + (high - low) * (rank % 1), ordered[0], ordered[-1],
            math.fsum(self.increases) if self.metric.kind is Kind.COUNTER else total,
        )  # fmt: skip
