"""The metrics of Apple's GPU, and which numbers are readings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeGuard

from agent.datapoint import Metric
from agent.host.gpu_metrics import CLOCK_GRAPHICS, MEMORY_USED, MOST, POWER, TEMPERATURE, UTILIZATION

Values = list[tuple[Metric, float]]

METRICS: Final = (UTILIZATION, MEMORY_USED, TEMPERATURE, POWER, CLOCK_GRAPHICS)


def readings(source: str, read: Iterable[tuple[Metric, Any]]) -> Values:
    """
    Return the valid numbers in `read`; raise ValueError where there is no GPU to read.

    0 Cel is a mean of no sensors, and 0 MHz is the mean clock of a GPU that was always off: both are left out.
    """
    values = [(metric, value) for metric, value in read if is_number(value, MOST.get(metric.unit, 1e15))]
    if not any(value for _, value in values):  # an idle GPU has a temperature, and uses some power
        raise ValueError(f"{source} reports {'only zeros, as in a virtual machine' if values else 'nothing of a GPU'}")
    return [(metric, value) for metric, value in values if value or metric not in (TEMPERATURE, CLOCK_GRAPHICS)]


def is_number(value: Any, most: float) -> TypeGuard[float]:
    """Tell whether it is a number from 0 to `most`; booleans and NaN are not."""
    return type(value) in (int, float) and 0 <= value <= most
