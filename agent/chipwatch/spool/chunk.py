"""
A chunk of the spool: one window's points, the destination that they belong to, and their bytes on disk.

The bytes are a version, then MessagePack with each metric and each set of dimensions once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary

NEWEST: Final = "newest"
"""Memo of when the newest point of all was measured (ns since the epoch, 8 bytes)."""
STATE: Final = "sink"
"""Memo of what the sink must know after a restart; the destination follows if it is known."""
VERSION: Final = b"\x01"

_Metric = tuple[str, Kind, str, str, Level, tuple[str, ...]]
_Row = tuple[int, int, float, int, int | None, int | None, Summary | None, float | None]
_Pairs = tuple[tuple[str, str], ...]
_Body = tuple[_Pairs | None, list[_Metric], list[_Pairs], list[_Row]]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


def place_of(destination: Mapping[str, str]) -> dict[str, str]:
    """Return a destination with its addresses cut to host and path: user, password and query may be secrets."""
    return {
        word: re.split(r"[?#]", re.sub("//[^/?#]*@", "//", value))[0] if "://" in f"{value}" else value
        for word, value in destination.items()
    }


def label_of(destination: Mapping[str, str]) -> bytes:
    """Return a destination as the spool's file stores it."""
    return json.dumps(place_of(destination), sort_keys=True).encode()


def shown(label: bytes) -> str:
    """Return a destination for people, without its empty values."""
    return ", ".join(f"{word}={value}" for word, value in json.loads(label).items() if value) or "not known"


def fits(label: bytes, destination: Mapping[str, str]) -> bool:
    """Return whether every value in the label equals the value in `destination`."""
    place = place_of(destination)
    return all(place.get(word) == value for word, value in json.loads(label).items())


@dataclass(slots=True, eq=False)
class Chunk:
    """One window's points; the first `done` of them have ended; `points` is None if only the disk has them."""

    key: int
    count: int
    size: int
    """Bytes on disk, or about as many in memory."""
    newest: int
    """When its newest point was measured (ns since the epoch)."""
    destination: bytes
    done: int = 0
    failed_reads: int = 0
    stored: bool = False
    points: list[Datapoint] | None = None
    common: Dimensions | None = None

    @property
    def left(self) -> int:
        """Number of points that have not ended."""
        return self.count - self.done


class UnreadableChunk(Exception):
    """The bytes are not an encoded chunk of a known version."""


def encode(points: Sequence[Datapoint], common: Dimensions | None) -> bytes:
    """
    Return `points` as bytes, with the dimensions of their machine, or None if these were not known.

    Raise TypeError, ValueError or OverflowError for points that cannot be encoded.
    """
    metrics: dict[int, int] = {}  # by identity: a metric is a constant, and computing its hash is slow
    dims: dict[int, int] = {}
    metric_rows: list[_Metric] = []
    dims_rows: list[_Pairs] = []
    rows: list[_Row] = []
    for metric, value, pairs, at, start_time, start, summary, increase in points:
        m = metrics.get(id(metric))
        if m is None:
            m = metrics[id(metric)] = len(metric_rows)
            metric_rows.append((metric.name, metric.kind, metric.unit, metric.help, metric.level, metric.dims))
        d = dims.get(id(pairs))
        if d is None:
            d = dims[id(pairs)] = len(dims_rows)
            dims_rows.append(pairs.items_sorted)
        rows.append((m, d, value, at, start_time, start, summary, increase))
    machine = None if common is None else common.items_sorted
    return VERSION + _encoder.encode((machine, metric_rows, dims_rows, rows))


def decode(body: bytes, count: int) -> tuple[list[Datapoint], Dimensions | None]:
    """Return the `count` points of `body` and the dimensions of their machine; raise UnreadableChunk."""
    if body[:1] != VERSION:
        raise UnreadableChunk(f"version {body[:1].hex() or 'none'}, this agent reads {VERSION.hex()}")
    try:
        common, metric_rows, dims_rows, rows = _decoder.decode(memoryview(body)[1:])
        if len(rows) != count:
            raise IndexError(f"{len(rows)} points, expected {count}")  # noqa: TRY301
        metrics = [Metric(*row) for row in metric_rows]
        dims = [Dimensions(dict(pairs)) for pairs in dims_rows]
        points = [Datapoint(metrics[m], value, dims[d], *rest) for m, d, value, *rest in rows]
    except (msgspec.MsgspecError, ValueError, IndexError) as problem:
        raise UnreadableChunk(str(problem)) from problem
    return points, None if common is None else Dimensions(dict(common))
