"""The metrics of AMD GPUs, and how readings become datapoints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from chipwatch.datapoint import Datapoint, Dimensions, Level, Metric, gauge
from chipwatch.host import gpu_metrics
from chipwatch.host.counters import Life

TOO_LARGE: Final = 2**63
"""No true value is as large."""
HOTSPOT: Final = gauge(
    "gpu.hotspot.temperature", "Cel", "Temperature of the hottest place of the chip.", Level.DETAILED, gpu_metrics.KEYS
)
METRICS: Final[tuple[Metric, ...]] = (*gpu_metrics.FAMILY, HOTSPOT)
COUNTERS: Final = frozenset({gpu_metrics.ENERGY, gpu_metrics.ECC_CORRECTED, gpu_metrics.ECC_UNCORRECTED})
Readings = dict[Metric, float]
"""Values of one card, in the metrics' units."""


def number(value: object, unit: str | None = None) -> float | None:
    """
    Return the number in a tool's output, or None: `12`, `"45.0"`, `"(1402Mhz)"`, `{"value": 12, "unit": "W"}`.

    None for `N/A` in any spelling, and for a number with text around it other than parentheses and `unit`.
    """
    if isinstance(value, dict):
        given = value.get("unit")
        return None if unit and isinstance(given, str) and given.lower() != unit else number(value.get("value"))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < TOO_LARGE else None
    if not isinstance(value, str) or not (found := re.fullmatch(r"\(?(-?\d+(?:\.\d+)?)\s*([a-z%]*)\)?", value.lower())):
        return None
    return number(float(found[1])) if found[2] in ("", unit) else None


class CardPoints:
    """Makes datapoints of a card's readings; leaves out impossible values."""

    def __init__(self, dims: Dimensions) -> None:
        self._dims = dims
        self._lives = {metric: Life() for metric in COUNTERS}

    def restart(self, metric: Metric) -> None:
        """Restart a counter: from now on it comes from another source."""
        self._lives[metric] = Life()

    def make(self, at: int, readings: Readings) -> Iterator[Datapoint]:
        """Yield the readings, and the shares that are computed from them."""
        _remove_contradictions(readings)
        gpu_metrics.add_shares(readings)  # more exact than a tool's percentage
        for metric, value in readings.items():
            if not possible(metric, value):
                continue
            life = self._lives.get(metric)
            if life is None:
                yield Datapoint(metric, value, self._dims, at)
            elif life.take(value, at):
                yield Datapoint(metric, value, self._dims, at, life.start_time)


def _remove_contradictions(readings: Readings) -> None:
    """Remove limits of 0, and readings that contradict another one."""
    if not readings.get(gpu_metrics.POWER_LIMIT):  # the second die of a package has no limit, and 0 as its power
        readings.pop(gpu_metrics.POWER_LIMIT, None)
        if not readings.get(gpu_metrics.POWER):
            readings.pop(gpu_metrics.POWER, None)
    if not (total := readings.get(gpu_metrics.MEMORY_TOTAL)):
        readings.pop(gpu_metrics.MEMORY_TOTAL, None)
    elif readings.get(gpu_metrics.MEMORY_USED, 0) > total:
        readings.pop(gpu_metrics.MEMORY_USED, None)


def possible(metric: Metric, value: float) -> bool:
    """Return whether a value can be true; cards that do not count energy report 0."""
    return gpu_metrics.possible(metric, value) and (value > 0 or metric is not gpu_metrics.ENERGY)
