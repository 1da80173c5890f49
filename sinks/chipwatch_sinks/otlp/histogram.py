"""Turns a window's summary into OpenTelemetry's exponential histogram (specs/otel/metrics/data-model)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Summary

MAX_SCALE: Final = 20
"""Finest scale, as in OpenTelemetry's SDKs: the index of any double's bucket fits into 32 bits."""
MAX_BUCKETS: Final = 160
"""Most buckets for each sign, as in OpenTelemetry's SDKs."""


class Buckets(NamedTuple):
    """Counts of adjacent buckets; the first one has the index `offset`."""

    offset: int
    counts: list[int]


class Histogram(NamedTuple):
    """A histogram whose bucket `i` counts values above b^i and up to b^(i + 1), where b = 2^(2^-scale)."""

    scale: int
    zeros: int
    positive: Buckets
    negative: Buckets


def summary_of(point: Datapoint) -> Summary:
    """Return a gauge point's summary; without a window, the point's value is its only sample."""
    value = point.value
    return point.summary or Summary(1, value, value, value, (value,), (1,))


def histogram_of(summary: Summary) -> Histogram:
    """Return the finest histogram that needs at most MAX_BUCKETS."""
    pairs = [*zip(summary.values, summary.counts, strict=True)]
    positive = [(_index(value), count) for value, count in pairs if value > 0]
    negative = [(_index(-value), count) for value, count in pairs if value < 0]
    shift = max(_shift([index for index, _ in of]) for of in (positive, negative))
    zeros = sum(count for value, count in pairs if value == 0)
    return Histogram(MAX_SCALE - shift, zeros, _fill(positive, shift), _fill(negative, shift))


def _index(value: float) -> int:
    """Return the index of a positive value's bucket at MAX_SCALE."""
    return math.ceil(math.log2(value) * 2.0**MAX_SCALE) - 1


def _shift(indexes: list[int]) -> int:
    """Return how far the scale must fall for MAX_BUCKETS; each step merges two neighbouring buckets."""
    shift = 0
    while indexes and (max(indexes) >> shift) - (min(indexes) >> shift) >= MAX_BUCKETS:
        shift += 1
    return shift


def _fill(found: Iterable[tuple[int, int]], shift: int) -> Buckets:
    placed = [(index >> shift, count) for index, count in found]
    if not placed:
        return Buckets(0, [])
    first, last = (pick(index for index, _ in placed) for pick in (min, max))
    counts = [0] * (last - first + 1)
    for index, count in placed:
        counts[index - first] += count
    return Buckets(first, counts)
