"""Datums as arguments of botocore's call, to compare with those that the sink encodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from chipwatch.datapoint import Datapoint
from chipwatch_sinks.cloudwatch.wire import CloudwatchEncoder, _content


def datum(encoder: CloudwatchEncoder, point: Datapoint) -> dict[str, Any]:
    """Return the datum of a good point as botocore takes it."""
    moment = datetime.fromtimestamp(point.at // 1_000_000_000, UTC)
    return {
        **encoder._constant(point.metric.name, point.metric.unit, point.dims),
        "Timestamp": moment,
        **_content(point),
    }
