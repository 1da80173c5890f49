"""A figure over time."""

from __future__ import annotations

from collections import deque
from statistics import fmean
from typing import Final

HISTORY: Final = 3600
"""Samples of each history."""


class Trend:
    """The samples of the last hour, at one a second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=HISTORY)

    def put(self, at: int, value: float | None) -> None:
        """Add a sample of the time `at` (ns)."""
        if value is not None:
            self._samples.append((at, value))

    def __bool__(self) -> bool:
        """Tell whether there is a sample."""
        return bool(self._samples)

    def means(self, end: int, step: float, count: int) -> list[float | None]:
        """Return the mean of each of the `count` intervals of `step` seconds up to that of `end` (ns)."""
        found: list[list[float]] = [[] for _ in range(count)]
        size = int(step * 1e9)
        for at, value in reversed(self._samples):
            if (back := end // size - at // size) >= count:
                break
            if back >= 0:
                found[count - 1 - back].append(value)
        return [fmean(values) if values else None for values in found]
