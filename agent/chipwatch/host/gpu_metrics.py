"""Metrics of GPUs and similar chips that the collectors of several makers share, with the same meaning for each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, counter, gauge
from chipwatch.host.counters import Life

DETAILED, KEYS = Level.DETAILED, ("gpu",)
_gauge, _counter = partial(gauge, dims=KEYS), partial(counter, dims=KEYS)

# fmt: off
UTILIZATION: Final = _gauge("gpu.utilization", "%", "Share of the last moments in which the device had work.")
MEMORY_UTILIZATION: Final = _gauge("gpu.memory.utilization", "%", "Memory in use, of the memory of the device.")
MEMORY_USED: Final = _gauge("gpu.memory.used", "By", "Memory of the device that is in use.")
MEMORY_TOTAL: Final = _gauge("gpu.memory.total", "By", "Memory of the device.", DETAILED)
UNIFIED: Final = _gauge(
    "gpu.unified_memory", "1", "1: the device's memory is also the machine's: never add it to memory.used.", DETAILED)
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
PCIE_REPLAYS: Final = _counter(
    "gpu.pcie.replays", "{packet}", "Packets that were sent again over PCIe.", DETAILED)
THROTTLED: Final = counter(
    "gpu.throttled", "s", "Time in which the clocks were reduced, by reason.", DETAILED, (*KEYS, "reason"))
CLOCK_REDUCED: Final = gauge(
    "gpu.clock.reduced", "1", "1: the clocks are reduced now for this reason; 0: no longer.", Level.ALL,
    (*KEYS, "reason"))
LINKS: Final = gauge(
    "gpu.links", "{link}", "Links of the GPU to other GPUs (nvlink, xgmi) or to the CPU (c2c), by state.", DETAILED,
    (*KEYS, "kind", "state"))
LINK_ERRORS: Final = counter(
    "gpu.link.errors", "{error}", "Errors of the GPU's links: NVLink, PCIe, C2C.", Level.ALL, (*KEYS, "kind"))
STATE: Final = _gauge("gpu.state", "1", "1: works; 0: is lost, fails most queries or needs a reset.")
PROCESS_MEMORY_USED: Final = _gauge(
    "gpu.process.memory.used", "By", "Memory of the device that the watched process tree uses.")
PROCESS_MEMORY_UTILIZATION: Final = _gauge(
    "gpu.process.memory.utilization", "%", "Memory that the watched process tree uses, of the memory of the device.")
PROCESS_UTILIZATION: Final = _gauge(
    "gpu.process.utilization", "%", "Share of the device's time in which it worked for the watched process tree.")
# fmt: on

MOST: Final[Mapping[str, float]] = {"%": 100.0, "Cel": 250.0, "W": 10_000.0, "J": 1e13, "MHz": 65_000.0, "s": 1e9}
"""The largest possible value by unit (J and s: of thirty years). Drivers' codes for "not available" are larger."""
OVERSHOOT: Final = 2.0
"""A device may draw this multiple of its power limit for a moment; a larger value is wrong."""
NOT_ZERO: Final = frozenset({MEMORY_TOTAL, POWER_LIMIT, ENERGY})
"""Metrics that a device reports as 0 if it does not know them."""
Readings = dict[Metric, float]
"""Values of one device, in the metrics' units."""


def possible(metric: Metric, value: float) -> bool:
    """Return whether a value is possible. A temperature of 0 is not: an absent sensor reports it."""
    return 0 <= value <= MOST.get(metric.unit, 2**63) and (value > 0 or metric.unit != "Cel")


def plausible(readings: Mapping[Metric, float]) -> Readings:
    """Return the readings of one device that are possible, and shares (%) that are computed from them."""
    believed = {m: value for m, value in readings.items() if possible(m, value) and (value or m not in NOT_ZERO)}
    used, total = believed.get(MEMORY_USED), believed.get(MEMORY_TOTAL)
    if used is not None and total and used <= total:
        believed[MEMORY_UTILIZATION] = 100 * used / total  # more exact than a tool's percentage
    power, limit = believed.get(POWER), believed.get(POWER_LIMIT)
    if power is not None and limit and power <= OVERSHOOT * limit:
        believed[POWER_UTILIZATION] = min(100.0, 100 * power / limit)
    return believed


class GpuPoints:
    """Makes the points of one device; finds resets of its counters."""

    def __init__(self, dims: Dimensions) -> None:
        self._dims = dims
        self._lives: dict[Metric, Life] = {}

    def make(self, at: int, readings: Mapping[Metric, float]) -> Iterator[Datapoint]:
        """Yield points for the plausible readings, and for the shares that are computed from them."""
        known = plausible(readings)
        if known.get(MEMORY_USED, 0) > known.get(MEMORY_TOTAL, math.inf):
            del known[MEMORY_USED]
        for metric, value in known.items():
            if metric.kind is Kind.GAUGE:
                yield metric.point(at, value, self._dims)
            elif (life := self._lives.setdefault(metric, Life())).take(value, at):
                yield metric.point(at, value, self._dims, start_time=life.start_time)


FAMILY: Final[tuple[Metric, ...]] = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
