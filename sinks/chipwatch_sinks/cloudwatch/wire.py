"""Datapoints as CloudWatch's datums: JSON that is ready to send, within limits that botocore does not check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from chipwatch.contract.datapoint import COUNTER, Datapoint, Dimensions
from chipwatch.contract.sink import Rejected

CACHED: Final = 25_000
"""Names, and dimensions, whose JSON is cached, more than a reading has. With one too few, none is found."""

compact: Final = json.JSONEncoder(separators=(",", ":")).encode
numbers: Final = msgspec.json.Encoder().encode
UNITS: Final[dict[str, str]] = json.loads(Path(__file__).with_name("units.json").read_bytes())
"""UCUM unit -> CloudWatch's unit; any `{thing}` is a Count. Power, temperature and frequency have no unit there."""
MOST_DIMENSIONS: Final = 30
MOST_VALUES: Final = 150
LONGEST_NAME: Final = 255
LONGEST_VALUE: Final = 1024
ALLOWED: Final = (
    f"CloudWatch allows {MOST_DIMENSIONS} dimensions, names of 1 to {LONGEST_NAME} and values of 1 to {LONGEST_VALUE}"
    " characters, printable ASCII, not all blank"
)
LARGEST: Final = 2.0**360
"""
Most dimensions, distinct values of a datum and characters, and the largest magnitude of a number.

From CloudWatch's API Reference, PutMetricData and MetricDatum.
"""
PAST: Final = 14 * 86_400 * 10**9
AHEAD: Final = 2 * 3_600 * 10**9
"""Greatest distance of a point's time into the past and into the future (ns); same source."""


def unit_of(word: str) -> str:
    """Return CloudWatch's unit for a UCUM unit; if it has none, its word "None", so that the number still arrives."""
    return "Count" if word.startswith("{") and word.endswith("}") else UNITS.get(word, "None")


def is_allowed(text: str, most: int) -> bool:
    """Return True if CloudWatch allows `text`: printable ASCII, not blank, and at most `most` characters."""
    return 0 < len(text) <= most and text.isascii() and text.isprintable() and not text.isspace()


def namespace_fault(namespace: str) -> str | None:
    """Return why CloudWatch rejects this namespace, or None."""
    if not is_allowed(namespace, LONGEST_NAME) or namespace[0] == ":":
        return "expected 1 to 255 printable ASCII characters, the first not a colon"
    return "AWS/ is reserved for AWS's own namespaces" if namespace.startswith("AWS/") else None


def name_fault(name: str) -> str | None:
    """Return why CloudWatch rejects every point of the metric `name`, or None."""
    return None if is_allowed(name, LONGEST_NAME) else "metric name not allowed"


def dims_fault(dims: Dimensions) -> str | None:
    """Return why CloudWatch rejects every point with these dimensions, or None."""
    if len(dims) > MOST_DIMENSIONS:
        return "too many dimensions"
    if not all(is_allowed(key, LONGEST_NAME) and key[0] != ":" for key in dims):
        return "dimension name not allowed"
    if not all(is_allowed(value, LONGEST_VALUE) for _, value in dims.items_sorted):
        return "dimension value not allowed"
    return None


def point_fault(point: Datapoint, now: int | None) -> str | None:
    """Return why CloudWatch rejects this point of a valid series, or None; `now` (ns), if given, checks its time."""
    metric, value, _, at, _, _, total, increase = point
    if metric.kind is COUNTER and increase is None:
        return "first reading of a counter"
    numbers = (value,) if total is None else total.values
    numbers = numbers if increase is None else (increase,)
    if not -LARGEST <= numbers[0] <= numbers[-1] <= LARGEST:
        return "number out of range" if all(-inf < number < inf for number in numbers) else "not finite"
    if len(numbers) > MOST_VALUES:
        return "too many values"
    if now is None or now - PAST <= at <= now + AHEAD:
        return None
    return "too old" if at < now else "too far ahead"


class DatumEncoder:
    """
    Turns points into datums: a gauge of a window is its values and how often each was seen, a counter its increase.

    Times are cut to whole seconds, so they stay inside the minute that they describe.
    """

    def __init__(self, *, high_resolution: bool) -> None:
        """Request a resolution of 1 s, or leave it at CloudWatch's 60 s."""
        self._extra = {"StorageResolution": 1} if high_resolution else {}
        self._of_name, self._of_dims = lru_cache(CACHED)(self._encode_name), lru_cache(CACHED)(_encode_dims)

    def encode(self, batch: Sequence[Datapoint], now: int | None) -> tuple[list[Datapoint], list[str], list[Rejected]]:
        """Return the points that CloudWatch may accept at `now` (ns), the datum of each as JSON, and the others."""
        good, datums, rejected = [], [], []
        for point in batch:
            metric = point.metric
            wrong_name, name = self._of_name(metric.name, metric.unit)
            wrong_dims, dims = self._of_dims(point.dims)
            if fault := wrong_name or wrong_dims or point_fault(point, now):
                rejected.append(Rejected(point, fault))
            else:
                good.append(point)
                datums.append(f"{name}{dims}{point.at // 1_000_000_000},{_numbers(point)}")
        return good, datums, rejected

    def size(self, point: Datapoint) -> int:
        """Return the bytes of the datum of `point`, or a few more."""
        _, name = self._of_name(point.metric.name, point.metric.unit)
        constant, total = len(name) + len(self._of_dims(point.dims)[1]), point.summary
        if total is None or total.count == 1:
            return constant + 48
        return constant + 40 + len(total.values) * (26 + len(str(total.count)))

    def _encode_name(self, name: str, unit: str) -> tuple[str | None, str]:
        """Return why CloudWatch rejects a metric, or None, and the begin of its datums as JSON."""
        return name_fault(name), compact({"MetricName": name, "Unit": unit_of(unit), **self._extra})[:-1]


def _encode_dims(dims: Dimensions) -> tuple[str | None, str]:
    """Return why CloudWatch rejects dimensions, or None, and their part of a datum as JSON, up to its time."""
    pairs = [{"Name": key, "Value": value} for key, value in dims.items_sorted]
    return dims_fault(dims), f',"Dimensions":{compact(pairs)},"Timestamp":' if pairs else ',"Timestamp":'


def body(namespace: str, datums: Sequence[str]) -> bytes:
    """Return the body of a PutMetricData request of AWS JSON 1.0."""
    return f'{{"Namespace":{compact(namespace)},"MetricData":[{",".join(datums)}]}}'.encode()


def _numbers(point: Datapoint) -> str:
    """Return the end of a good point's datum."""
    metric, value, _, _, _, _, total, increase = point
    content: dict[str, object] = {"Value": increase if metric.kind is COUNTER else value}
    if metric.kind is not COUNTER and total is not None and total.count > 1:
        content = {"Values": total.values, "Counts": total.counts}
    try:
        return numbers(content).decode()[1:]
    except OverflowError:  # an integer of more than 64 bits
        return compact(content)[1:]
