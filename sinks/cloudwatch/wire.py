"""Datapoints as CloudWatch's datums: as JSON that is ready to send, and as botocore's own call takes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from agent.datapoint import Datapoint, Dimensions
from agent.sink import Rejected
from sinks.common.cloudwatch_rules import COUNTER, point_fault, series_fault, unit_of

MOST_SERIES: Final = 20_000
"""Series whose constant part is remembered: about 0.5 kB each."""

compact: Final = json.JSONEncoder(separators=(",", ":")).encode
numbers: Final = msgspec.json.Encoder().encode


class Series(NamedTuple):
    """What is the same for every point of a series."""

    fault: str | None
    """Why it will never be taken, or None."""
    head: str
    """Its datum as JSON, up to the number of its time."""


class Encoder:
    """
    Turns points into datums: a gauge of a window is its values and how often each was seen, a counter its increase.

    Times are cut to whole seconds, so they stay inside the minute that they describe.
    """

    def __init__(self, *, high_resolution: bool) -> None:
        """Mark the datums as of a resolution of 1 s, or leave it at CloudWatch's 60 s."""
        self._extra = {"StorageResolution": 1} if high_resolution else {}
        self._known: dict[tuple[str, str, Dimensions], Series] = {}

    def encode(self, batch: Sequence[Datapoint], now: int | None) -> tuple[list[Datapoint], list[str], list[Rejected]]:
        """Return the points that CloudWatch may take at `now` (ns), each one's datum as JSON, and the others."""
        good, datums, rejected = [], [], []
        for point in batch:
            fault, head = self._known.get((point.metric.name, point.metric.unit, point.dims)) or self._learn(point)
            if fault := fault or point_fault(point, now):
                rejected.append(Rejected(point, fault))
            else:
                good.append(point)
                datums.append(f"{head}{point.at // 1_000_000_000}{_tail(point)}")
        return good, datums, rejected

    def size(self, point: Datapoint) -> int:
        """Return the bytes that the datum of `point` takes, or a few more."""
        _, head = self._known.get((point.metric.name, point.metric.unit, point.dims)) or self._learn(point)
        total = point.summary
        if total is None or total.count == 1:
            return len(head) + 48
        return len(head) + 40 + len(total.values) * (26 + len(str(total.count)))

    def datum(self, point: Datapoint) -> dict[str, Any]:
        """Return the datum of a good point as botocore takes it."""
        moment = datetime.fromtimestamp(point.at // 1_000_000_000, UTC)
        return self._constant(point) | {"Timestamp": moment} | _content(point)

    def _constant(self, point: Datapoint) -> dict[str, Any]:
        """Return what is the same in every datum of the series."""
        dims = [{"Name": key, "Value": value} for key, value in point.dims.items_sorted]
        constant: dict[str, Any] = {"MetricName": point.metric.name, "Unit": unit_of(point.metric.unit), **self._extra}
        return constant | {"Dimensions": dims} if dims else constant

    def _learn(self, point: Datapoint) -> Series:
        if len(self._known) >= MOST_SERIES:
            self._known.clear()
        head = f'{compact(self._constant(point))[:-1]},"Timestamp":'
        series = Series(series_fault(point.metric, point.dims), head)
        self._known[point.metric.name, point.metric.unit, point.dims] = series
        return series


def body(namespace: str, datums: Sequence[str]) -> bytes:
    """Return the body of a PutMetricData request of AWS JSON 1.0."""
    return f'{{"Namespace":{compact(namespace)},"MetricData":[{",".join(datums)}]}}'.encode()


def _content(point: Datapoint) -> dict[str, Any]:
    """Return the numbers of a good point's datum."""
    if point.metric.kind is COUNTER:
        return {"Value": point.increase}
    if point.summary is None or point.summary.count == 1:
        return {"Value": point.value}
    return {"Values": [*point.summary.values], "Counts": [*point.summary.counts]}


def _tail(point: Datapoint) -> str:
    """Return what stands after the time in a good point's datum: its `_content`, at a fifth of the cost."""
    metric, value, _, _, _, _, total, increase = point
    try:
        if metric.kind is COUNTER:
            return f',"Value":{numbers(increase).decode()}}}'
        if total is None or total.count == 1:
            return f',"Value":{numbers(value).decode()}}}'
        return f',"Values":{numbers(total.values).decode()},"Counts":{numbers(total.counts).decode()}}}'
    except OverflowError:  # an integer of more than 64 bits
        return f",{compact(_content(point))[1:]}"
