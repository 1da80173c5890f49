"""What is said of AMD GPUs, and how readings become points."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from agent.counters import Life
from agent.datapoint import Datapoint, Dimensions, Level, Metric, counter, gauge

BASIC, DETAILED, GPU = Level.BASIC, Level.DETAILED, ("gpu",)
GARBAGE: Final = 200
"""Percent: a little above 100 is rounding; this is no reading."""
HOTTEST: Final = 250
"""Degrees: above it stand the drivers' patterns for "not available"."""

STRONGEST: Final = 10_000
"""Watts: no card draws as much."""

LARGEST: Final = 2**63
"""What no tool prints of anything that is."""

# fmt: off
UTILIZATION: Final = gauge(
    "gpu.utilization", "%", "Share of the driver's last sample period in which a kernel ran.", BASIC, GPU)
MEMORY_UTILIZATION: Final = gauge(
    "gpu.memory.utilization", "%", "Memory in use, of the memory of the device.", BASIC, GPU)
MEMORY_USED: Final = gauge(
    "gpu.memory.used", "By", "Memory in use, without what the driver keeps for itself.", BASIC, GPU)
MEMORY_TOTAL: Final = gauge("gpu.memory.total", "By", "Memory of the device.", DETAILED, GPU)
MEMORY_ACTIVITY: Final = gauge(
    "gpu.memory.activity", "%", "Share of the driver's last sample period in which memory was read or written.",
    DETAILED, GPU)
TEMPERATURE: Final = gauge("gpu.temperature", "Cel", "Temperature of the chip.", BASIC, GPU)
MEMORY_TEMPERATURE: Final = gauge("gpu.memory.temperature", "Cel", "Temperature of the memory.", DETAILED, GPU)
POWER: Final = gauge("gpu.power", "W", "Power of the board, from its energy where that is counted.", BASIC, GPU)
POWER_UTILIZATION: Final = gauge(
    "gpu.power.utilization", "%", "Power of the board, of the limit that is enforced.", BASIC, GPU)
POWER_LIMIT: Final = gauge("gpu.power.limit", "W", "Power limit that is enforced.", DETAILED, GPU)
ENERGY: Final = counter("gpu.energy", "J", "Energy that the board used.", DETAILED, GPU)
CLOCK_MEMORY: Final = gauge("gpu.clock.memory", "MHz", "Clock of the memory.", DETAILED, GPU)
CLOCK_GRAPHICS: Final = gauge("gpu.clock.graphics", "MHz", "Clock of the graphics engine.", DETAILED, GPU)
ECC_CORRECTED: Final = counter(
    "gpu.ecc.corrected", "{error}", "Memory errors that ECC corrected.", DETAILED, GPU)
ECC_UNCORRECTED: Final = counter(
    "gpu.ecc.uncorrected", "{error}", "Memory errors that ECC could not correct.", BASIC, GPU)
FAN: Final = gauge("gpu.fan.utilization", "%", "Speed of the fan, of its maximum.", DETAILED, GPU)
STATE: Final = gauge("gpu.state", "1", "1: works; 0: is lost or needs a reset.", BASIC, GPU)
PROCESS_MEMORY_USED: Final = gauge(
    "gpu.process.memory.used", "By", "Memory of the device that the watched process tree uses.", BASIC, GPU)
PROCESS_MEMORY_UTILIZATION: Final = gauge(
    "gpu.process.memory.utilization", "%", "The same, of the memory of the device.", BASIC, GPU)
PROCESS_UTILIZATION: Final = gauge(
    "gpu.process.utilization", "%", "Share of the device's time in which kernels of the watched process tree ran.",
    BASIC, GPU)
# fmt: on

METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
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
        self._lives = {metric: Life() for metric in (ENERGY, ECC_CORRECTED, ECC_UNCORRECTED)}

    def points(self, at: int, readings: Readings) -> Iterator[Datapoint]:
        """Yield the readings, and the shares that follow from them."""
        _settle(readings)
        for metric, value in readings.items():
            if life := self._lives.get(metric):
                if _possible(metric, value) and life.take(value, at):
                    yield Datapoint(metric, value, self.dims, at, life.since)
            elif _possible(metric, value):
                yield Datapoint(metric, min(100.0, value) if metric.unit == "%" else value, self.dims, at)


def _settle(readings: Readings) -> None:
    """Take out what contradicts itself, and put in the shares that follow from the rest."""
    limit, power = readings.get(POWER_LIMIT), readings.get(POWER)
    if not limit:  # a second die of a package has no limit, and what stands there as its power is none
        readings.pop(POWER_LIMIT, None)
        if not power:
            readings.pop(POWER, None)
    elif power is not None:
        readings[POWER_UTILIZATION] = 100 * power / limit
    total, used = readings.get(MEMORY_TOTAL), readings.get(MEMORY_USED)
    if not total:
        readings.pop(MEMORY_TOTAL, None)
    elif used is not None and used <= total:  # bytes are truer than any percentage that a tool gives
        readings[MEMORY_UTILIZATION] = 100 * used / total
    else:
        readings.pop(MEMORY_USED, None)


def _possible(metric: Metric, value: float) -> bool:
    """Tell whether a value can be true; an energy of 0 is what cards say that count none."""
    if metric.unit == "%":
        return 0 <= value <= GARBAGE
    if metric.unit == "Cel":
        return 0 < value < HOTTEST
    if metric.unit == "W":
        return 0 <= value < STRONGEST
    return value > 0 if metric is ENERGY else value >= 0
