"""The wire format of protobuf: https://protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

LENGTHS: Final = {1: 8, 5: 4}
"""Bytes of a protobuf field by its wire type, where they are fixed."""


class Unreadable(Exception):
    """The bytes are not a message."""


def varint(number: int) -> bytes:
    """Return a number without sign."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def message(number: int, content: bytes) -> bytes:
    """Return a field that holds a message, a text or bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def text(number: int, content: str) -> bytes:
    """Return a field that holds a text; what is not UTF-8 becomes `?`."""
    return message(number, content.encode(errors="replace"))


def zigzag(number: int) -> bytes:
    """Return a number of 32 bits with sign."""
    return varint((number << 1 ^ number >> 31) & 0xFFFFFFFF)


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a protobuf message; raise Unreadable."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise Unreadable
        if wire == 0:
            value, at = _varint(content, at)
            yield number, value
            continue
        length = LENGTHS.get(wire, 0)
        if wire == 2:
            length, at = _varint(content, at)
        elif not length:
            raise Unreadable
        if at + length > len(content):
            raise Unreadable
        yield number, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            break
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise Unreadable


def varints(content: bytes) -> Iterator[int]:
    """Yield the packed numbers of a field; raise Unreadable."""
    at = 0
    while at < len(content):
        value, at = _varint(content, at)
        yield value
