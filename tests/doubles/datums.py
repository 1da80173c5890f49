"""Datums as arguments of botocore's call, to compare with those that the sink encodes."""

from datetime import UTC, datetime
from typing import Any

from chipwatch.contract.datapoint import Datapoint, Kind
from chipwatch_sinks.cloudwatch.wire import DatumEncoder


def datum(encoder: DatumEncoder, point: Datapoint) -> dict[str, Any]:
    """Return the datum of a good point as botocore takes it."""
    moment = datetime.fromtimestamp(point.at // 1_000_000_000, UTC)
    return {
        **encoder._constant(point.metric.name, point.metric.unit, point.dims),
        "Timestamp": moment,
        **_content(point),
    }


def _content(point: Datapoint) -> dict[str, Any]:
    """Return the numbers of a good point's datum."""
    if point.metric.kind is Kind.COUNTER:
        return {"Value": point.increase}
    if point.summary is None or point.summary.count == 1:
        return {"Value": point.value}
    return {"Values": [*point.summary.values], "Counts": [*point.summary.counts]}
