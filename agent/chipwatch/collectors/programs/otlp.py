"""
Makes a page of metrics of a request of OTLP, in protobuf or JSON.

otlp.json has the fields of opentelemetry/proto/metrics/v1/metrics.proto, version 1.9, that are read, with the names
that they have in JSON: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from chipwatch.net.protobuf import fields

SCHEMA: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())
REPEATED: Final = ("resourceMetrics", "scopeMetrics", "metrics", "dataPoints", "attributes")
FORMS: Final = {"gauge": "gauge", "sum": "counter", "histogram": "histogram", "exponentialHistogram": "histogram",
                "summary": "histogram"}  # fmt: skip
"""Form of a metric -> type of its family; of a histogram only sum and count are kept."""
DELTA: Final = (1, "1", "AGGREGATION_TEMPORALITY_DELTA")
UNITS: Final = {"s": ("seconds", 1.0), "ms": ("seconds", 1e-3), "us": ("seconds", 1e-6), "ns": ("seconds", 1e-9),
                "By": ("bytes", 1.0), "J": ("joules", 1.0), "W": ("watts", 1.0), "Cel": ("celsius", 1.0)}  # fmt: skip
BAD: Final = re.compile("[^a-zA-Z0-9_:]")
MALFORMED: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, struct.error)
"""Errors of `decoded` and `page_of` for a body that is not a request."""


def decoded(data: bytes, kind: str = "request") -> dict[str, Any]:
    """Return a message of protobuf with the names of JSON."""
    node: dict[str, Any] = {}
    for number, content in fields(data):
        name, form = SCHEMA[kind].get(str(number), ("", ""))
        value: Any = content
        if form in SCHEMA:
            value = decoded(value, form)
        elif form == "text":
            value = value.decode()
        elif form[:1] == "<":
            (value,) = struct.unpack(form, value)
        if name in REPEATED:
            node.setdefault(name, []).append(value)
        elif name:
            node[name] = value
    return node


def page_of(request: Mapping[str, Any], wanted: Collection[str]) -> Iterator[str]:
    """Yield the lines of a page; the attributes of resources are left out, except those that are wanted."""
    for sent in request.get("resourceMetrics", ()):
        resource = [each for each in sent.get("resource", {}).get("attributes", ()) if each.get("key") in wanted]
        for scope in sent.get("scopeMetrics", ()):
            for metric in scope.get("metrics", ()):
                yield from _lines(metric, resource)


def _lines(metric: Mapping[str, Any], resource: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    name, (unit, scale) = BAD.sub("_", metric.get("name", "")), UNITS.get(metric.get("unit", ""), ("", 1.0))
    for form, kind in FORMS.items():
        if not (data := metric.get(form)) or data.get("aggregationTemporality") in DELTA:
            continue
        yield f"# TYPE {name} {'gauge' if form == 'sum' and not data.get('isMonotonic') else kind}"
        yield f"# UNIT {name} {unit}"
        for point in data.get("dataPoints", ()):
            labels = ",".join(_labels([*resource, *point.get("attributes", ())]))
            start = int(point.get("startTimeUnixNano", 0)) / 1e9 or None
            values = {"": point.get("asDouble", point.get("asInt")), "_sum": point.get("sum")}
            scaled = {end: None if value is None else scale * float(value) for end, value in values.items()}
            scaled |= {"_count": point.get("count"), "_created": None if form == "gauge" else start}
            for end, value in scaled.items() if not int(point.get("flags", 0)) & 1 else ():
                if value is not None:
                    yield f"{name}{end}{{{labels}}} {float(value)!r}"


def _labels(attributes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    values = {each.get("key"): next(iter(each.get("value", {}).values()), None) for each in attributes}
    for key, value in values.items():
        if isinstance(value, str | int | float) and key:
            yield f"{_quoted(key)}={_quoted(str(value))}"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
