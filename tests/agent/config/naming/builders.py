"""Metrics as the collectors declare them, and points of each."""

from functools import cache

from chipwatch.advisor.catalogue import catalogue
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric

S = 10**9


@cache
def declared() -> dict[str, Metric]:
    """Return each metric of every collector by its name."""
    return {metric.name: metric for metrics in catalogue().values() for metric in metrics}


def point_of(metric: Metric, value: float, dims: dict[str, str], at: int = 9 * S) -> Datapoint:
    """Return a point of the metric; a counter began at 1 ns."""
    return metric.point(at, value, Dimensions(dims), start_time=1 if metric.kind is Kind.COUNTER else None)
