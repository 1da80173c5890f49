"""A summary as an exponential histogram: https://opentelemetry.io/docs/specs/otel/metrics/data-model/#exponentialhistogram."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Summary

MAX_SCALE: Final = 20
"""The finest scale of OpenTelemetry's own SDKs: its indexes of all doubles fit 32 bits."""
MAX_BUCKETS: Final = 160
"""Buckets of each sign, as in OpenTelemetry's SDKs."""


class Buckets(NamedTuple):
    """Counts of neighbouring buckets, from the one with the index `offset` on."""

    offset: int
    counts: list[int]


class Histogram(NamedTuple):
    """Bucket `i` holds what is above b^i and at most b^(i + 1), with b = 2^(2^-scale)."""

    scale: int
    zeros: int
    positive: Buckets
    negative: Buckets


def summary_of(point: Datapoint) -> Summary:
    """Return the summary of a gauge; outside of a window its value is the only sample."""
    value = point.value
    return point.summary or Summary(1, value, value, value, (value,), (1,))


def histogram_of(summary: Summary) -> Histogram:
    """Return the histogram of the finest scale whose buckets are few enough."""
    pairs = [*zip(summary.values, summary.counts, strict=True)]
    positive = [(_index(value), count) for value, count in pairs if value > 0]
    negative = [(_index(-value), count) for value, count in pairs if value < 0]
    shift = max(_shift([index for index, _ in of]) for of in (positive, negative))
    zeros = sum(count for value, count in pairs if value == 0)
    return Histogram(MAX_SCALE - shift, zeros, _fill(positive, shift), _fill(negative, shift))


def _index(value: float) -> int:
    """Return the index of a value's bucket at MAX_SCALE."""
    return math.ceil(math.log2(value) * 2.0**MAX_SCALE) - 1


def _shift(indexes: list[int]) -> int:
    """Return by how much the scale must fall; halving the scale's base halves the indexes."""
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
