"""Datums as arguments of botocore's call, to compare with those that the sink encodes."""

from datetime import UTC, datetime
from typing import Any

from chipwatch.contract.datapoint import Datapoint, Kind
from chipwatch_sinks.cloudwatch.wire import DatumEncoder, unit_of


def datum(encoder: DatumEncoder, point: Datapoint) -> dict[str, Any]:
    """Return the datum of a good point as botocore takes it."""
    constant = {"MetricName": point.metric.name, "Unit": unit_of(point.metric.unit), **encoder._extra}
    if pairs := [{"Name": key, "Value": value} for key, value in point.dims.items_sorted]:
        constant["Dimensions"] = pairs
    return {**constant, "Timestamp": datetime.fromtimestamp(point.at // 1_000_000_000, UTC), **_content(point)}


def _content(point: Datapoint) -> dict[str, Any]:
    """Return the numbers of a good point's datum."""
    if point.metric.kind is Kind.COUNTER:
        return {"Value": point.increase}
    if point.summary is None or point.summary.count == 1:
        return {"Value": point.value}
    return {"Values": [*point.summary.values], "Counts": [*point.summary.counts]}
