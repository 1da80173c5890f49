"""What is said of Intel GPUs."""

from __future__ import annotations

from typing import Final

from agent.datapoint import Level, Metric, counter, gauge

BASIC, DETAILED, GPU = Level.BASIC, Level.DETAILED, ("gpu",)
# fmt: off
UTILIZATION: Final = gauge(
    "gpu.utilization", "%", "Share of the driver's last sample period in which a kernel ran.", BASIC, GPU)
MEMORY_UTILIZATION: Final = gauge(
    "gpu.memory.utilization", "%", "Memory in use, of the memory of the device.", BASIC, GPU)
MEMORY_USED: Final = gauge(
    "gpu.memory.used", "By", "Memory in use, without what the driver keeps for itself.", BASIC, GPU)
TEMPERATURE: Final = gauge("gpu.temperature", "Cel", "Temperature of the chip.", BASIC, GPU)
MEMORY_TEMPERATURE: Final = gauge("gpu.memory.temperature", "Cel", "Temperature of the memory.", DETAILED, GPU)
POWER: Final = gauge("gpu.power", "W", "Power of the board, from its energy where that is counted.", BASIC, GPU)
POWER_UTILIZATION: Final = gauge(
    "gpu.power.utilization", "%", "Power of the board, of the limit that is enforced.", BASIC, GPU)
POWER_LIMIT: Final = gauge("gpu.power.limit", "W", "Power limit that is enforced.", DETAILED, GPU)
ENERGY: Final = counter("gpu.energy", "J", "Energy that the board used.", DETAILED, GPU)
CLOCK: Final = gauge("gpu.clock.graphics", "MHz", "Clock of the graphics engine.", DETAILED, GPU)
PROCESS_MEMORY_USED: Final = gauge(
    "gpu.process.memory.used", "By", "Memory of the device that the watched process tree uses.", BASIC, GPU)
PROCESS_UTILIZATION: Final = gauge(
    "gpu.process.utilization", "%", "Share of the device's time in which kernels of the watched process tree ran.",
    BASIC, GPU)
# fmt: on
METRICS: Final[tuple[Metric, ...]] = tuple(value for value in list(vars().values()) if isinstance(value, Metric))

Readings = dict[Metric, float]
"""What was read of one card, in the units of the metrics."""
