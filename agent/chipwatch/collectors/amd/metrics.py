"""The metrics that only AMD's chips have."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from chipwatch.contract.datapoint import Level, Metric, counter, gauge
from chipwatch.host import gpu_metrics

# fmt: off
PARTITIONS: Final = gauge(
    "gpu.partitions", "{partition}", "Partitions of the card, in its modes of compute (XCP) and memory (NPS).",
    Level.ALL, ("gpu", "compute", "memory"))
XGMI_SENT: Final = counter(
    "gpu.xgmi.sent", "By", "Sent by the GPU over all its XGMI links.", Level.ALL, ("gpu",))
XGMI_RECEIVED: Final = counter(
    "gpu.xgmi.received", "By", "Received by the GPU over all its XGMI links.", Level.ALL, ("gpu",))
RAS_ERRORS: Final = counter(
    "gpu.ras.errors", "{error}", "Errors that a block of the chip reported.", Level.ALL, ("gpu", "block", "kind"))
BELOW: Final = counter(
    "gpu.clock.below_limit", "s", "Time in which the chiplets ran below the clock that the host allows, by reason.",
    Level.ALL, ("gpu", "reason"))
# fmt: on
PART_UTILIZATION: Final = replace(gpu_metrics.UTILIZATION, dims=("gpu", "mig"))
PART_BELOW: Final = replace(BELOW, dims=("gpu", "mig", "reason"))
METRICS: Final[tuple[Metric, ...]] = (
    PARTITIONS, XGMI_SENT, XGMI_RECEIVED, RAS_ERRORS, BELOW, PART_UTILIZATION, PART_BELOW,
)  # fmt: skip
