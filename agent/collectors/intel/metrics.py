"""The metrics of Intel GPUs."""

from __future__ import annotations

from typing import Final

from agent.datapoint import Metric
from agent.host import gpu_metrics

METRICS: Final[tuple[Metric, ...]] = (
    gpu_metrics.UTILIZATION,
    gpu_metrics.MEMORY_UTILIZATION,
    gpu_metrics.MEMORY_USED,
    gpu_metrics.TEMPERATURE,
    gpu_metrics.MEMORY_TEMPERATURE,
    gpu_metrics.POWER,
    gpu_metrics.POWER_UTILIZATION,
    gpu_metrics.POWER_LIMIT,
    gpu_metrics.ENERGY,
    gpu_metrics.CLOCK_GRAPHICS,
    gpu_metrics.PROCESS_MEMORY_USED,
    gpu_metrics.PROCESS_UTILIZATION,
)

Readings = dict[Metric, float]
"""What was read of one card, in the metrics' units."""
