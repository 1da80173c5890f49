"""Decodes and encodes protobuf messages field by field: https://protobuf.dev/programming-guides/encoding ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

VARINT, FIXED64, LENGTH = 0, 1, 2
FIXED: Final = {FIXED64: 8, 5: 4}
"""Bytes of a field for the wire types that have a fixed length."""


class BadMessage(ValueError):
    """The bytes are not a protobuf message."""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the content of each field: an int for a varint, else bytes; raise BadMessage."""
    return ((number, value) for number, _, value in wired(data))


def wired(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield the number, wire type and content of each field; raise BadMessage if the message is incomplete."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise BadMessage("the answer is not a protobuf message")
        if wire == VARINT:
            value, at = _varint(data, at)
            yield number, wire, value
            continue
        length, at = _varint(data, at) if wire == LENGTH else (FIXED.get(wire, len(data) + 1), at)
        if at + length > len(data):
            raise BadMessage("the answer is not a protobuf message")
        yield number, wire, data[at : at + length]
        at += length


def messages(data: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the content of each field with the number `wanted` that is a message or a text; raise BadMessage."""
    return (value for number, value in fields(data) if number == wanted and isinstance(value, bytes))


def text_in(data: bytes, wanted: int) -> str:
    """Return the first text with the field number `wanted`, or ""; raise ValueError."""
    return next(messages(data, wanted), b"").decode("utf-8")


def varints(data: bytes) -> Iterator[int]:
    """Yield the numbers in a packed field; raise BadMessage."""
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << (7 * shift)
        if byte < 128:
            return value, at + shift + 1
    raise BadMessage("the answer is not a protobuf message")


def varint(number: int) -> bytes:
    """Encode a number from 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def message(number: int, content: bytes) -> bytes:
    """Encode a field that has a message, a text or bytes."""
    return varint(number << 3 | LENGTH) + varint(len(content)) + content


def text(number: int, content: str) -> bytes:
    """Encode a field that has a text; characters that UTF-8 cannot encode become `?`."""
    return message(number, content.encode(errors="replace"))


def zigzag(number: int) -> bytes:
    """Encode a number of 32 bits that may be negative."""
    return varint((number << 1 ^ number >> 31) & 0xFFFFFFFF)
