"""What is said of AMD GPUs, and how readings become points."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from agent.datapoint import Datapoint, Dimensions, Metric, gauge
from agent.host import gpu_metrics
from agent.host.counters import Life

LARGEST: Final = 2**63
"""What no tool prints of anything that is."""

HOTSPOT: Final = gauge(
    "gpu.hotspot.temperature",
    "Cel",
    "Temperature of the hottest place of the chip.",
    gpu_metrics.DETAILED,
    gpu_metrics.KEYS,
)
METRICS: Final[tuple[Metric, ...]] = (*gpu_metrics.FAMILY, HOTSPOT)
COUNTERS: Final = frozenset({gpu_metrics.ENERGY, gpu_metrics.ECC_CORRECTED, gpu_metrics.ECC_UNCORRECTED})
Readings = dict[Metric, float]
"""What was read of one card, in the units of the metrics."""


def number(value: object, unit: str | None = None) -> float | None:
    """
    Return the number in what a tool printed, or None: `12`, `"45.0"`, `"(1402Mhz)"`, `{"value": 12, "unit": "W"}`.

    `N/A` in any spelling is none, nor is any other text around a number than parentheses and `unit`.
    """
    if isinstance(value, dict):
        said = value.get("unit")
        return None if unit and isinstance(said, str) and said.lower() != unit else number(value.get("value"))
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < LARGEST else None
    if not isinstance(value, str) or not (found := re.fullmatch(r"\(?(-?\d+(?:\.\d+)?)\s*([a-z%]*)\)?", value.lower())):
        return None
    return number(float(found[1])) if found[2] in ("", unit) else None


class Teller:
    """Says of one card what was read of it, as far as it can be true."""

    def __init__(self, index: str) -> None:
        """Take the value of the dimension `gpu`."""
        self.dims = Dimensions(gpu=index)
        self._lives = {metric: Life() for metric in COUNTERS}

    def renew(self, metric: Metric) -> None:
        """Begin a counter anew: another source tells it from now on."""
        self._lives[metric] = Life()

    def points(self, at: int, readings: Readings) -> Iterator[Datapoint]:
        """Yield the readings, and the shares that follow from them."""
        _settle(readings)
        for metric, value in readings.items():
            if life := self._lives.get(metric):
                if possible(metric, value) and life.take(value, at):
                    yield Datapoint(metric, value, self.dims, at, life.start_time)
            elif possible(metric, value):
                yield Datapoint(metric, value, self.dims, at)


def _settle(readings: Readings) -> None:
    """Take out what contradicts itself, and put in the shares that follow from the rest."""
    limit, power = readings.get(gpu_metrics.POWER_LIMIT), readings.get(gpu_metrics.POWER)
    if not limit:  # a second die of a package has no limit, and what stands there as its power is none
        readings.pop(gpu_metrics.POWER_LIMIT, None)
        if not power:
            readings.pop(gpu_metrics.POWER, None)
    elif power is not None and (share := gpu_metrics.of_limit(power, limit)) is not None:
        readings[gpu_metrics.POWER_UTILIZATION] = share
    total, used = readings.get(gpu_metrics.MEMORY_TOTAL), readings.get(gpu_metrics.MEMORY_USED)
    if not total:
        readings.pop(gpu_metrics.MEMORY_TOTAL, None)
    elif used is not None and used <= total:  # bytes are truer than any percentage that a tool gives
        readings[gpu_metrics.MEMORY_UTILIZATION] = 100 * used / total
    else:
        readings.pop(gpu_metrics.MEMORY_USED, None)


def possible(metric: Metric, value: float) -> bool:
    """Tell whether a value can be true; an energy of 0 is what cards say that count none."""
    return gpu_metrics.possible(metric, value) and (value > 0 or metric is not gpu_metrics.ENERGY)
