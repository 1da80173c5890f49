"""How many series a sink may be sent: a wrong dimension must not become a bill."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from agent.datapoint import Datapoint, Dimensions
from agent.logs.throttled import ThrottledLogger

log = logging.getLogger(__name__)

FORGET: Final = 3600 * 10**9
"""Nanoseconds after which a series that is gone makes room for another: CloudWatch bills a metric by the hour."""


class CardinalityLimit:
    """Admits the points of the first `most` series; what is beyond is counted, and said once with what grew."""

    def __init__(self, sink: str, most: int) -> None:
        """Take the sink's name for the log, and how many series it may be sent."""
        self._most = most
        self._seen: dict[tuple[str, Dimensions], int] = {}
        self._logger = ThrottledLogger(log, f"sink {sink}")

    def admit(self, points: Sequence[Datapoint]) -> list[Datapoint]:
        """Return those of `points` whose series are within the budget."""
        seen, admitted = self._seen, []
        if points and len(seen) >= self._most:
            self._forget(points[0].at - FORGET)
        for point in points:
            key = (point.metric.name, point.dims)
            if key in seen or len(seen) < self._most:
                seen[key] = point.at
                admitted.append(point)
        if len(admitted) < len(points):
            self._say(points)
        return admitted

    def _forget(self, before: int) -> None:
        for key in [key for key, last in self._seen.items() if last < before]:
            del self._seen[key]

    def _say(self, points: Sequence[Datapoint]) -> None:
        """Name the metric with the most series, and its dimension with the most values."""
        series = {*self._seen, *((point.metric.name, point.dims) for point in points)}
        metric, count = Counter(name for name, _ in series).most_common(1)[0]
        values = Counter(key for key, _ in {pair for name, dims in series if name == metric for pair in dims.items()})
        grew = f" by its dimension {values.most_common(1)[0][0]}" if values else ""
        self._logger.log(
            logging.WARNING,
            "budget",
            f"more than {self._most} series, those beyond are not sent: {metric} alone has {count}{grew};"
            f" exclude it, or raise max_series",
        )
