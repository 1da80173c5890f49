"""The needed part of the runtime's messages."""

from __future__ import annotations

import struct

from chipwatch.net.protobuf import FIXED64, fields, messages, wired

DOUBLE = struct.Struct("<d")
Values = dict[int, float]
"""Number of the device or chip -> value."""


def encode(name: str) -> bytes:
    """Return a MetricRequest; `name` must be shorter than 128 bytes."""
    return b"\x0a" + bytes([len(name)]) + name.encode()


def decode(data: bytes) -> Values:
    """Return the values in a MetricResponse by the number of the device; raise ValueError if it is malformed."""
    values: Values = {}
    for metrics in messages(data, 1):  # TPUMetric
        for metric in messages(metrics, 3):
            index, value = _index(metric), _gauge(metric)
            if index is None or value is None or index in values:
                raise ValueError("the answer does not have exactly one value for each device")
            values[index] = value
    return values


def _index(metric: bytes) -> int | None:
    """Return Metric.attribute.value, an int or, in newer runtimes, a string of digits."""
    for attribute in messages(metric, 1):
        for value in messages(attribute, 2):
            for number, content in fields(value):
                if number == 3 and isinstance(content, int) and content < 1 << 31:
                    return content
                if number == 1 and isinstance(content, bytes) and content.isdigit() and len(content) < 10:
                    return int(content)
    return None


def _gauge(metric: bytes) -> float | None:
    """Return Metric.gauge, a double or an int."""
    for content in messages(metric, 3):
        for number, wire, value in wired(content):
            if number == 1 and wire == FIXED64 and isinstance(value, bytes):
                return float(*DOUBLE.unpack(value))
            if number == 2 and isinstance(value, int) and value < 1 << 63:  # larger values are negative
                return value
    return None
