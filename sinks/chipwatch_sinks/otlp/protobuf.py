"""Encodes the wire format of protobuf: https://protobuf.dev/programming-guides/encoding."""

from __future__ import annotations


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
