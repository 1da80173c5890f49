"""Metrics of GPUs and similar chips that the collectors of several makers share, with the same meaning for each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from chipwatch.datapoint import Level, Metric, counter, gauge

DETAILED, KEYS = Level.DETAILED, ("gpu",)
_gauge, _counter = partial(gauge, dims=KEYS), partial(counter, dims=KEYS)

# fmt: off
UTILIZATION: Final = _gauge("gpu.utilization", "%", "Share of the last moments in which the device had work.")
MEMORY_UTILIZATION: Final = _gauge("gpu.memory.utilization", "%", "Memory in use, of the memory of the device.")
MEMORY_USED: Final = _gauge("gpu.memory.used", "By", "Memory of the device that is in use.")
MEMORY_TOTAL: Final = _gauge("gpu.memory.total", "By", "Memory of the device.", DETAILED)
MEMORY_ACTIVITY: Final = _gauge(
    "gpu.memory.activity", "%", "Share of the last moments in which memory was read or written.", DETAILED)
TEMPERATURE: Final = _gauge("gpu.temperature", "Cel", "Temperature of the chip.")
MEMORY_TEMPERATURE: Final = _gauge("gpu.memory.temperature", "Cel", "Temperature of the memory.", DETAILED)
POWER: Final = _gauge("gpu.power", "W", "Power that the device draws.")
POWER_UTILIZATION: Final = _gauge(
    "gpu.power.utilization", "%", "Power that the device draws, of the limit that is enforced.")
POWER_LIMIT: Final = _gauge("gpu.power.limit", "W", "Power limit that is enforced.", DETAILED)
ENERGY: Final = _counter("gpu.energy", "J", "Energy that the device used.", DETAILED)
CLOCK_MEMORY: Final = _gauge("gpu.clock.memory", "MHz", "Clock of the memory.", DETAILED)
CLOCK_GRAPHICS: Final = _gauge("gpu.clock.graphics", "MHz", "Clock of the graphics engine.", DETAILED)
ECC_CORRECTED: Final = _counter("gpu.ecc.corrected", "{error}", "Memory errors that ECC corrected.", DETAILED)
ECC_UNCORRECTED: Final = _counter("gpu.ecc.uncorrected", "{error}", "Memory errors that ECC could not correct.")
FAN: Final = _gauge("gpu.fan.utilization", "%", "Speed of the fan, of its maximum.", DETAILED)
STATE: Final = _gauge("gpu.state", "1", "1: works; 0: is lost, fails most queries or needs a reset.")
PROCESS_MEMORY_USED: Final = _gauge(
    "gpu.process.memory.used", "By", "Memory of the device that the watched process tree uses.")
PROCESS_MEMORY_UTILIZATION: Final = _gauge(
    "gpu.process.memory.utilization", "%", "Memory that the watched process tree uses, of the memory of the device.")
PROCESS_UTILIZATION: Final = _gauge(
    "gpu.process.utilization", "%", "Share of the device's time in which it worked for the watched process tree.")
# fmt: on

MOST: Final[Mapping[str, float]] = {"%": 100.0, "Cel": 250.0, "W": 10_000.0, "J": 1e13, "MHz": 65_000.0}
"""By unit, the largest possible value (J: of thirty years); drivers' patterns for "not available" are larger."""
OVERSHOOT: Final = 2.0
"""Multiple of its power limit that a device may draw for a moment; a larger value is not a reading."""


def possible(metric: Metric, value: float) -> bool:
    """Return whether a value is possible; an absent sensor reads 0 Cel."""
    return 0 <= value <= MOST.get(metric.unit, 2**63) and (value > 0 or metric.unit != "Cel")


def add_shares(readings: dict[Metric, float]) -> None:
    """Add the shares (%) of the power limit and of the memory that follow from readings of one device."""
    power, limit = readings.get(POWER), readings.get(POWER_LIMIT)
    if power is not None and limit and 0 <= power <= OVERSHOOT * limit:
        readings[POWER_UTILIZATION] = min(100.0, 100 * power / limit)
    used, total = readings.get(MEMORY_USED), readings.get(MEMORY_TOTAL)
    if used is not None and total and used <= total:
        readings[MEMORY_UTILIZATION] = 100 * used / total


def plausible(readings: Mapping[Metric, float]) -> dict[Metric, float]:
    """Return the possible readings of a device and the shares that follow; a total or limit of 0 is unknown."""
    known = {metric: value for metric, value in readings.items() if value or metric not in (MEMORY_TOTAL, POWER_LIMIT)}
    add_shares(known)
    return {metric: value for metric, value in known.items() if possible(metric, value)}


FAMILY: Final[tuple[Metric, ...]] = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
