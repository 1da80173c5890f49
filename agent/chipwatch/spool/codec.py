"""Encodes one window's points: a version byte, then MessagePack with each metric and each set of dimensions once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from chipwatch.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary

VERSION: Final = b"\x01"
UNWRITABLE: Final = (TypeError, ValueError, OverflowError)
"""Exceptions of `encode` for points that cannot be encoded."""

_Metric = tuple[str, Kind, str, str, Level, tuple[str, ...]]
_Row = tuple[int, int, float, int, int | None, int | None, Summary | None, float | None]
_Pairs = tuple[tuple[str, str], ...]
_Body = tuple[_Pairs | None, list[_Metric], list[_Pairs], list[_Row]]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


class Unreadable(Exception):
    """The bytes are not an encoded chunk of a known version."""


def encode(points: Sequence[Datapoint], common: Dimensions | None) -> bytes:
    """Return `points` as bytes, with the dimensions of their machine, or None if these were not known."""
    metrics: dict[int, int] = {}  # by identity: a metric is a constant, and computing its hash is slow
    dims: dict[int, int] = {}
    metric_rows: list[_Metric] = []
    dims_rows: list[_Pairs] = []
    rows: list[_Row] = []
    for metric, value, of, at, start_time, start, summary, increase in points:
        m = metrics.get(id(metric))
        if m is None:
            m = metrics[id(metric)] = len(metric_rows)
            metric_rows.append((metric.name, metric.kind, metric.unit, metric.help, metric.level, metric.dims))
        d = dims.get(id(of))
        if d is None:
            d = dims[id(of)] = len(dims_rows)
            dims_rows.append(of.items_sorted)
        rows.append((m, d, value, at, start_time, start, summary, increase))
    pairs = None if common is None else common.items_sorted
    return VERSION + _encoder.encode((pairs, metric_rows, dims_rows, rows))


def is_writable(point: Datapoint, common: Dimensions | None) -> bool:
    """Return whether `point` can be encoded."""
    try:
        encode([point], common)
    except UNWRITABLE:
        return False
    return True


def decode(body: bytes, count: int) -> tuple[list[Datapoint], Dimensions | None]:
    """Return the `count` points of `body` and the dimensions of their machine; raise Unreadable."""
    if body[:1] != VERSION:
        raise Unreadable(f"version {body[:1].hex() or 'none'}, this agent reads {VERSION.hex()}")
    try:
        common, metric_rows, dims_rows, rows = _decoder.decode(memoryview(body)[1:])
        if len(rows) != count:
            raise IndexError(f"{len(rows)} points, expected {count}")  # noqa: TRY301
        metrics = [Metric(*row) for row in metric_rows]
        dims = [Dimensions(dict(pairs)) for pairs in dims_rows]
        points = [Datapoint(metrics[m], value, dims[d], *rest) for m, d, value, *rest in rows]
    except (msgspec.MsgspecError, ValueError, IndexError) as problem:
        raise Unreadable(str(problem)) from problem
    return points, None if common is None else Dimensions(dict(common))
