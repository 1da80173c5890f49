"""The needed part of the runtime's messages: https://protobuf.dev/programming-guides/encoding/ ."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

VARINT, DOUBLE, LENGTH = 0, 1, 2
FIXED: Final = {DOUBLE: 8, 5: 4}
"""Bytes of a field, by its wire type."""

Values = dict[int, float]
"""Number of the device or chip -> value."""


def encode(name: str) -> bytes:
    """Return a MetricRequest; `name` must be shorter than 128 bytes."""
    return b"\x0a" + bytes([len(name)]) + name.encode()


def decode(data: bytes) -> Values:
    """Return the values in a MetricResponse by the number of the device; raise ValueError if it is malformed."""
    values: Values = {}
    for metrics in _all(data, 1):  # TPUMetric
        for metric in _all(metrics, 3):
            index, value = _index(metric), _gauge(metric)
            if index is None or value is None or index in values:
                raise ValueError("the answer does not have exactly one value for each device")
            values[index] = value
    return values


def _index(metric: bytes) -> int | None:
    """Return Metric.attribute.value, an int or, in newer runtimes, a string of digits."""
    for attribute in _all(metric, 1):
        for value in _all(attribute, 2):
            for number, content in _fields(value):
                if number == 3 and isinstance(content, int) and content < 1 << 31:
                    return content
                if number == 1 and isinstance(content, bytes) and content.isdigit() and len(content) < 10:
                    return int(content)
    return None


def _gauge(metric: bytes) -> float | None:
    """Return Metric.gauge, a double or an int."""
    for content in _all(metric, 3):
        for number, value in _fields(content):
            if number == 1 and isinstance(value, float):
                return value
            if number == 2 and isinstance(value, int) and value < 1 << 63:  # larger values are negative
                return value
    return None


def _all(data: bytes, wanted: int) -> Iterator[bytes]:
    return (value for number, value in _fields(data) if number == wanted and isinstance(value, bytes))


def _fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield number and content of each field; raise ValueError if the message is incomplete."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        length, at = _varint(data, at) if kind == LENGTH else (FIXED.get(kind, len(data) + 1), at)
        content, at = data[at : at + length], at + length
        if len(content) < length:
            raise ValueError("the answer is not a protobuf message")
        yield tag >> 3, struct.unpack("<d", content)[0] if kind == DOUBLE else content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << (7 * shift)
        if byte < 128:
            return value, at + shift + 1
    raise ValueError("the answer is not a protobuf message")
