"""Reads requests of OTLP metrics in protobuf and JSON: opentelemetry/proto/metrics/v1/metrics.proto, version 1.9."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from chipwatch.net.protobuf import fields, messages, text_of

NO_VALUE: Final = 1
"""DataPointFlags.NO_RECORDED_VALUE_MASK."""
DELTA: Final = (1, "1", "AGGREGATION_TEMPORALITY_DELTA")
FORMS: Final = {
    5: ("gauge", 7, 8), 7: ("sum", 7, 8), 9: ("histogram", 9, 10), 10: ("histogram", 1, 10), 11: ("histogram", 7, 8),
}  # fmt: skip
"""Field of a metric -> its form, and the fields of attributes and flags in its points."""


class PushedPoint(NamedTuple):
    """A point of a request."""

    name: str
    unit: str
    is_sum: bool
    """A sum, or both values of a histogram."""
    is_monotonic: bool
    is_delta: bool
    attributes: dict[str, str]
    start: int
    """When the sum was zero (ns since the epoch), 0 if unknown."""
    value: float


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | None = None
    double_value: float | None = None


class _Attribute(msgspec.Struct):
    key: str
    value: _Value | None = None


class _Point(msgspec.Struct, rename="camel"):
    attributes: list[_Attribute] = []
    start_time_unix_nano: int = 0
    as_double: float | None = None
    as_int: int | None = None
    count: int | None = None
    sum: float | None = None
    flags: int = 0


class _Data(msgspec.Struct, rename="camel"):
    data_points: list[_Point] = []
    aggregation_temporality: int | str = 2
    is_monotonic: bool = False


class _Metric(msgspec.Struct, rename="camel"):
    name: str = ""
    unit: str = ""
    gauge: _Data | None = None
    sum: _Data | None = None
    histogram: _Data | None = None
    exponential_histogram: _Data | None = None
    summary: _Data | None = None


class _Scope(msgspec.Struct):
    metrics: list[_Metric] = []


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] = []


class _ResourceMetrics(msgspec.Struct, rename="camel"):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_metrics: list[_Scope] = []


class _Request(msgspec.Struct, rename="camel"):
    resource_metrics: list[_ResourceMetrics] = []


def from_json(body: bytes, wanted: Collection[str]) -> Iterator[PushedPoint]:
    """Yield the points, with the wanted attributes of their resource; raise ValueError or RecursionError."""
    for sent in msgspec.json.decode(body, type=_Request, strict=False).resource_metrics:
        resource = _texts([each for each in sent.resource.attributes if each.key in wanted])
        for metric in (metric for scope in sent.scope_metrics for metric in scope.metrics):
            histograms = (metric.histogram, metric.exponential_histogram, metric.summary)
            kinds = [("gauge", metric.gauge), ("sum", metric.sum), *(("histogram", each) for each in histograms)]
            for form, data in kinds:
                is_delta = data is not None and data.aggregation_temporality in DELTA
                for point in data.data_points if data else ():
                    value = point.as_double if point.as_int is None else float(point.as_int)
                    yield from _points(
                        (metric.name, metric.unit, form, bool(data and data.is_monotonic), is_delta),
                        resource | _texts(point.attributes), point.start_time_unix_nano, point.flags,
                        (value, point.count, point.sum),
                    )  # fmt: skip


def _texts(attributes: list[_Attribute]) -> dict[str, str]:
    values = {each.key: msgspec.structs.astuple(each.value) if each.value else () for each in attributes}
    chosen = {key: next((one for one in value if one is not None), None) for key, value in values.items()}
    return {key: _text(one) for key, one in chosen.items() if one is not None}


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def from_protobuf(body: bytes, wanted: Collection[str]) -> Iterator[PushedPoint]:
    """Yield the points, with the wanted attributes of their resource; raise ValueError."""
    for sent in messages(body, 1):
        resource = {key: text for each in messages(sent, 1) for key, text in _attributes(each, 1) if key in wanted}
        for metric in (metric for scope in messages(sent, 2) for metric in messages(scope, 2)):
            parts = dict(fields(metric))
            for number, (form, attributes, flags) in FORMS.items():
                if not isinstance(data := parts.get(number, b""), bytes):
                    continue
                about = {key: value for key, value in fields(data) if key != 1}
                shape = text_of(metric, 1), text_of(metric, 3), form, bool(about.get(3)), about.get(2) in DELTA
                for point in messages(data, 1):
                    dims = resource | dict(_attributes(point, attributes))
                    read = dict(fields(point))
                    numbers = (
                        (_double(read, 4) if 4 in read else _fixed(read, 6), None, None)
                        if form != "histogram"
                        else (None, _fixed(read, 4), _double(read, 5))
                    )
                    yield from _points(shape, dims, _fixed(read, 2) or 0, int(read.get(flags) or 0), numbers)


def _attributes(message: bytes, wanted: int) -> Iterator[tuple[str, str]]:
    """Yield key and value of attributes that are a text, a number or a bool."""
    for pair in messages(message, wanted):
        for value in messages(pair, 2):
            for kind, content in fields(value):
                if kind == 1 and isinstance(content, bytes):
                    yield text_of(pair, 1), content.decode()
                elif kind == 2:
                    yield text_of(pair, 1), _text(bool(content))
                elif kind == 3 and isinstance(content, int):
                    yield text_of(pair, 1), str(content - (1 << 64) if content >> 63 else content)
                elif kind == 4:
                    yield text_of(pair, 1), str(_double({4: content}, 4))


def _double(read: dict[int, int | bytes], number: int) -> float | None:
    content = read.get(number)
    return struct.unpack("<d", content)[0] if isinstance(content, bytes) and len(content) == 8 else None


def _fixed(read: dict[int, int | bytes], number: int) -> int | None:
    content = read.get(number)
    return struct.unpack("<q", content)[0] if isinstance(content, bytes) and len(content) == 8 else None


def _points(
    shape: tuple[str, str, str, bool, bool], dims: dict[str, str], start: int, flags: int,
    numbers: tuple[float | None, float | None, float | None],
) -> Iterator[PushedPoint]:  # fmt: skip
    """Yield a point, or the count and the sum of a histogram."""
    name, unit, form, is_monotonic, is_delta = shape
    value, count, total = numbers
    if flags & NO_VALUE:
        return
    if form in ("gauge", "sum"):
        if value is not None:
            is_sum = form == "sum"
            yield PushedPoint(name, unit, is_sum, is_sum and is_monotonic, is_sum and is_delta, dims, start, value)
        return
    for end, ending_unit, number in (("_count", "1", count), ("_sum", unit, total)):
        if number is not None:
            yield PushedPoint(name + end, ending_unit, True, number >= 0, is_delta, dims, start, float(number))
