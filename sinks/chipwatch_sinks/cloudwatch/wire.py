"""Datapoints as CloudWatch's datums: JSON that is ready to send."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.sink import Rejected
from chipwatch_sinks.cloudwatch.rules import COUNTER, point_fault, series_fault, unit_of

CACHED_SERIES: Final = 20_000
"""Series whose constant part is cached: about 0.5 kB each."""

compact: Final = json.JSONEncoder(separators=(",", ":")).encode
numbers: Final = msgspec.json.Encoder().encode


class DatumEncoder:
    """
    Turns points into datums: a gauge of a window is its values and how often each was seen, a counter its increase.

    Times are cut to whole seconds, so they stay inside the minute that they describe.
    """

    def __init__(self, *, high_resolution: bool) -> None:
        """Request a resolution of 1 s, or leave it at CloudWatch's 60 s."""
        self._extra = {"StorageResolution": 1} if high_resolution else {}
        self._series = lru_cache(CACHED_SERIES)(self._encode_series)

    def encode(self, batch: Sequence[Datapoint], now: int | None) -> tuple[list[Datapoint], list[str], list[Rejected]]:
        """Return the points that CloudWatch may accept at `now` (ns), the datum of each as JSON, and the others."""
        good, datums, rejected = [], [], []
        for point in batch:
            metric = point.metric
            fault, head = self._series(metric.name, metric.unit, point.dims)
            if fault := fault or point_fault(point, now):
                rejected.append(Rejected(point, fault))
            else:
                good.append(point)
                datums.append(f"{head}{point.at // 1_000_000_000}{_tail(point)}")
        return good, datums, rejected

    def size(self, point: Datapoint) -> int:
        """Return the bytes of the datum of `point`, or a few more."""
        _, head = self._series(point.metric.name, point.metric.unit, point.dims)
        total = point.summary
        if total is None or total.count == 1:
            return len(head) + 48
        return len(head) + 40 + len(total.values) * (26 + len(str(total.count)))

    def _constant(self, name: str, unit: str, dims: Dimensions) -> dict[str, Any]:
        """Return the part that is the same in every datum of a series."""
        pairs = [{"Name": key, "Value": value} for key, value in dims.items_sorted]
        constant: dict[str, Any] = {"MetricName": name, "Unit": unit_of(unit), **self._extra}
        return constant | {"Dimensions": pairs} if pairs else constant

    def _encode_series(self, name: str, unit: str, dims: Dimensions) -> tuple[str | None, str]:
        """Return why CloudWatch rejects the series, or None, and its datum as JSON up to the number of the time."""
        return series_fault(name, dims), f'{compact(self._constant(name, unit, dims))[:-1]},"Timestamp":'


def body(namespace: str, datums: Sequence[str]) -> bytes:
    """Return the body of a PutMetricData request of AWS JSON 1.0."""
    return f'{{"Namespace":{compact(namespace)},"MetricData":[{",".join(datums)}]}}'.encode()


def _json(numeric: object) -> str:
    try:
        return numbers(numeric).decode()
    except OverflowError:  # an integer of more than 64 bits
        return compact(numeric)


def _tail(point: Datapoint) -> str:
    """Return the rest of a good point's datum after the time."""
    metric, value, _, _, _, _, total, increase = point
    if metric.kind is COUNTER:
        return f',"Value":{_json(increase)}}}'
    if total is None or total.count == 1:
        return f',"Value":{_json(value)}}}'
    return f',"Values":{_json(total.values)},"Counts":{_json(total.counts)}}}'
