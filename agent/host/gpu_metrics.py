"""
Metrics of GPUs and similar chips that the collectors of several makers share.

A name means the same for each maker. A metric of one maker only is declared in its collector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.datapoint import Level, Metric, counter, gauge

BASIC, DETAILED, KEYS = Level.BASIC, Level.DETAILED, ("gpu",)
# fmt: off
UTILIZATION: Final = gauge(
    "gpu.utilization", "%", "Share of the last moments in which the device had work.", BASIC, KEYS)
MEMORY_UTILIZATION: Final = gauge(
    "gpu.memory.utilization", "%", "Memory in use, of the memory of the device.", BASIC, KEYS)
MEMORY_USED: Final = gauge("gpu.memory.used", "By", "Memory of the device that is in use.", BASIC, KEYS)
MEMORY_TOTAL: Final = gauge("gpu.memory.total", "By", "Memory of the device.", DETAILED, KEYS)
MEMORY_ACTIVITY: Final = gauge(
    "gpu.memory.activity", "%", "Share of the last moments in which memory was read or written.", DETAILED, KEYS)
TEMPERATURE: Final = gauge("gpu.temperature", "Cel", "Temperature of the chip.", BASIC, KEYS)
MEMORY_TEMPERATURE: Final = gauge("gpu.memory.temperature", "Cel", "Temperature of the memory.", DETAILED, KEYS)
POWER: Final = gauge("gpu.power", "W", "Power that the device draws.", BASIC, KEYS)
POWER_UTILIZATION: Final = gauge(
    "gpu.power.utilization", "%", "Power that the device draws, of the limit that is enforced.", BASIC, KEYS)
POWER_LIMIT: Final = gauge("gpu.power.limit", "W", "Power limit that is enforced.", DETAILED, KEYS)
ENERGY: Final = counter("gpu.energy", "J", "Energy that the device used.", DETAILED, KEYS)
CLOCK_MEMORY: Final = gauge("gpu.clock.memory", "MHz", "Clock of the memory.", DETAILED, KEYS)
CLOCK_GRAPHICS: Final = gauge("gpu.clock.graphics", "MHz", "Clock of the graphics engine.", DETAILED, KEYS)
ECC_CORRECTED: Final = counter(
    "gpu.ecc.corrected", "{error}", "Memory errors that ECC corrected.", DETAILED, KEYS)
ECC_UNCORRECTED: Final = counter(
    "gpu.ecc.uncorrected", "{error}", "Memory errors that ECC could not correct.", BASIC, KEYS)
FAN: Final = gauge("gpu.fan.utilization", "%", "Speed of the fan, of its maximum.", DETAILED, KEYS)
STATE: Final = gauge("gpu.state", "1", "1: works; 0: is lost or needs a reset.", BASIC, KEYS)
PROCESS_MEMORY_USED: Final = gauge(
    "gpu.process.memory.used", "By", "Memory of the device that the watched process tree uses.", BASIC, KEYS)
PROCESS_MEMORY_UTILIZATION: Final = gauge(
    "gpu.process.memory.utilization", "%", "Memory that the watched process tree uses, of the memory of the device.",
    BASIC, KEYS)
PROCESS_UTILIZATION: Final = gauge(
    "gpu.process.utilization", "%", "Share of the device's time in which it worked for the watched process tree.",
    BASIC, KEYS)
# fmt: on

MOST: Final[Mapping[str, float]] = {"%": 100.0, "Cel": 250.0, "W": 10_000.0, "MHz": 65_000.0}
"""By unit, the largest possible value; drivers' patterns for "not available" are larger."""
OVERSHOOT: Final = 2.0
"""How many times its power limit a device may draw for a moment; more is no reading."""


def possible(metric: Metric, value: float) -> bool:
    """Tell whether a value can be true; an absent sensor reads 0 Cel."""
    return 0 <= value <= MOST.get(metric.unit, 2**63) and (value > 0 or metric.unit != "Cel")


def of_limit(power: float, limit: float) -> float | None:
    """Return power as a share of its limit (%), None where it is no reading."""
    return min(100.0, 100 * power / limit) if 0 <= power <= OVERSHOOT * limit else None


FAMILY: Final[tuple[Metric, ...]] = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
