"""Turns an encoded request into JSON: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from struct import unpack
from typing import Any, Final

import msgspec

from chipwatch.net.protobuf import fields, varints

Shape = dict[int, tuple[str, ...]]
SHAPES: Final = msgspec.json.decode(Path(__file__).with_name("messages.json").read_bytes(), type=dict[str, Shape])
"""Message type -> number of a field -> its name in JSON, the type of its content, and True if it is repeated."""
READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "text": bytes.decode,
    "double": lambda value: unpack("<d", value)[0],
    "fixed": lambda value: str(unpack("<Q", value)[0]),  # protobuf's JSON has 64-bit numbers as texts
    "integer": lambda value: _integer(unpack("<q", value)[0]),
    "signed": lambda value: value >> 1 ^ -(value & 1),
    "counts": lambda value: [*map(str, varints(value))],
    "truth": bool,
    "number": int,
}


def _integer(value: int) -> int | str:
    """
    Return an integer as a JSON number, or as a text if it is beyond 2^53.

    A receiver has to take both (https://protobuf.dev/programming-guides/json/), but receivers in Rust take only
    numbers here. Beyond 2^53 a number loses digits in receivers that read JSON numbers as doubles.
    """
    return value if abs(value) <= 1 << 53 else str(value)


def as_json(request: bytes) -> bytes:
    """Return a request of OtlpEncoder as JSON."""
    return msgspec.json.encode(_message(request, "Request"))


def _message(content: bytes, shape: str) -> dict[str, Any]:
    decoded: dict[str, Any] = {}
    for number, value in fields(content):
        name, how, *repeated = SHAPES[shape][number]
        read = _message(value, how) if how in SHAPES and isinstance(value, bytes) else READ[how](value)
        if repeated:
            decoded.setdefault(name, []).append(read)
        else:
            decoded[name] = read
    return decoded
