"""Decodes protobuf messages field by field: https://protobuf.dev/programming-guides/encoding/ ."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

VARINT, DOUBLE, LENGTH = 0, 1, 2
FIXED: Final = {DOUBLE: 8, 5: 4}
"""Bytes of a field, by its wire type."""


def messages(data: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the messages and texts with the field number `wanted`; raise ValueError if the message is incomplete."""
    return (value for number, value in fields(data) if number == wanted and isinstance(value, bytes))


def text(data: bytes, wanted: int) -> str:
    """Return the text with the field number `wanted`, or ""; raise ValueError."""
    return next(messages(data, wanted), b"").decode("utf-8")


def fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
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
