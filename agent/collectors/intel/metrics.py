"""What is said of Intel GPUs."""

from __future__ import annotations

from typing import Final

from agent import gpu
from agent.datapoint import Metric

METRICS: Final[tuple[Metric, ...]] = (
    gpu.UTILIZATION,
    gpu.MEMORY_UTILIZATION,
    gpu.MEMORY_USED,
    gpu.TEMPERATURE,
    gpu.MEMORY_TEMPERATURE,
    gpu.POWER,
    gpu.POWER_UTILIZATION,
    gpu.POWER_LIMIT,
    gpu.ENERGY,
    gpu.CLOCK_GRAPHICS,
    gpu.PROCESS_MEMORY_USED,
    gpu.PROCESS_UTILIZATION,
)

Readings = dict[Metric, float]
"""What was read of one card, in the units of the metrics."""
