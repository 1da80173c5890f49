"""The request as JSON: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import unpack
from typing import Any, Final

import msgspec

from chipwatch.net.protobuf import fields, varints

Shape = Mapping[int, tuple[str, Any]]
"""Field number -> its name, and how it is read: the shape of a message, that in a list if repeated, or a word."""
_TEXT: Final[Shape] = {1: ("stringValue", "text")}
_ATTRIBUTE: Final[Shape] = {1: ("key", "text"), 2: ("value", _TEXT)}
_BUCKETS: Final[Shape] = {1: ("offset", "signed"), 2: ("bucketCounts", "counts")}
_TIMES: Final[Shape] = {2: ("startTimeUnixNano", "fixed"), 3: ("timeUnixNano", "fixed")}
_NUMBER: Final[Shape] = {
    **_TIMES, 4: ("asDouble", "double"), 6: ("asInt", "integer"), 7: ("attributes", [_ATTRIBUTE]),
    8: ("flags", "number"),
}  # fmt: skip
_HISTOGRAM: Final[Shape] = {
    **_TIMES, 1: ("attributes", [_ATTRIBUTE]), 4: ("count", "fixed"), 5: ("sum", "double"), 6: ("scale", "signed"),
    7: ("zeroCount", "fixed"), 8: ("positive", _BUCKETS), 9: ("negative", _BUCKETS), 10: ("flags", "number"),
    12: ("min", "double"), 13: ("max", "double"),
}  # fmt: skip
_TEMPORALITY: Final = ("aggregationTemporality", "number")
_METRIC: Final[Shape] = {
    1: ("name", "text"), 2: ("description", "text"), 3: ("unit", "text"),
    5: ("gauge", {1: ("dataPoints", [_NUMBER])}),
    7: ("sum", {1: ("dataPoints", [_NUMBER]), 2: _TEMPORALITY, 3: ("isMonotonic", "truth")}),
    10: ("exponentialHistogram", {1: ("dataPoints", [_HISTOGRAM]), 2: _TEMPORALITY}),
}  # fmt: skip
_SCOPE: Final[Shape] = {1: ("name", "text"), 2: ("version", "text")}
_RESOURCE_METRICS: Final[Shape] = {
    1: ("resource", {1: ("attributes", [_ATTRIBUTE])}),
    2: ("scopeMetrics", [{1: ("scope", _SCOPE), 2: ("metrics", [_METRIC])}]),
    3: ("schemaUrl", "text"),
}
_REQUEST: Final[Shape] = {1: ("resourceMetrics", [_RESOURCE_METRICS])}


READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "text": bytes.decode,
    "double": lambda value: unpack("<d", value)[0],
    "fixed": lambda value: str(unpack("<Q", value)[0]),  # in JSON a number of 64 bits is a text
    "integer": lambda value: _integer(unpack("<q", value)[0]),
    "signed": lambda value: value >> 1 ^ -(value & 1),
    "counts": lambda value: [*map(str, varints(value))],
    "truth": bool,
    "number": int,
}


def _integer(value: int) -> int | str:
    """
    Return an integer as a number, beyond 2^53 as a text.

    A receiver has to take both (https://protobuf.dev/programming-guides/json/); receivers in Rust take only numbers
    here, and a number above 2^53 loses digits where JSON's numbers are doubles.
    """
    return value if abs(value) <= 1 << 53 else str(value)


def as_json(request: bytes) -> bytes:
    """Return a request of this sink's encoder as JSON."""
    return msgspec.json.encode(_message(request, _REQUEST))


def _message(content: bytes, shape: Shape) -> dict[str, Any]:
    decoded: dict[str, Any] = {}
    for number, value in fields(content):
        name, how = shape[number]
        if isinstance(how, list):
            decoded.setdefault(name, []).append(_value(value, how[0]))
        else:
            decoded[name] = _value(value, how)
    return decoded


def _value(value: Any, how: Any) -> Any:
    """Return a field's value."""
    return _message(value, how) if isinstance(how, dict) else READ[how](value)
