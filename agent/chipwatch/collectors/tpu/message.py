"""Encodes and decodes the gRPC messages of the TPU runtime, as far as they are needed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from chipwatch.net.protobuf import FIXED64, LENGTH, VARINT, fields, messages, text_in, varints, wired

DOUBLE = struct.Struct("<d")
ValuesByDevice = dict[int, float]
"""Number of a device or chip -> value."""
LONGEST = 64
"""Most characters of a label."""
ORDINAL = "device_ordinal"
"""Label with the number of the device, if there are several labels."""


class Distribution(NamedTuple):
    """A histogram: the first bucket ends at `scale`, and each further bound is `growth` times the one before."""

    number: int
    mean: float
    scale: float = 0
    growth: float = 0
    buckets: Sequence[int] = ()

    def quantile(self, share: float) -> float | None:
        """Return the quantile `share` (0 to 1), interpolated within its bucket; None if unknown."""
        if self.growth <= 1 or self.scale <= 0 or sum(self.buckets) != self.number:
            return None
        rank, below = share * self.number, 0
        for index, inside in enumerate(self.buckets):
            if inside and below + inside >= rank:
                with suppress(OverflowError):
                    low = self.scale * self.growth ** (index - 1) if index else 0
                    high = self.scale * self.growth**index
                    return low + (high - low) * (rank - below) / inside
            below += inside
        return None


def encode(name: str) -> bytes:
    """Encode a MetricRequest; `name` must be shorter than 128 bytes."""
    return b"\x0a" + bytes([len(name)]) + name.encode()


def gauges(data: bytes) -> ValuesByDevice:
    """Decode a MetricResponse with one value for each device; raise ValueError if it is malformed."""
    values: ValuesByDevice = {}
    for labels, metric in _labelled(data):
        index, value = next((int(text) for text in labels.values() if is_number(text)), None), _gauge(metric)
        if index is None or value is None or index in values:
            raise ValueError("the answer does not have exactly one value for each device")
        values[index] = value
    return values


def _gauge(metric: bytes, kind: int = 3) -> float | None:
    """Return Metric.gauge, or the field `kind`, such as Metric.counter, as a number; None if absent."""
    for content in messages(metric, kind):
        for number, wire, value in wired(content):
            if number == 1 and wire == FIXED64 and isinstance(value, bytes):
                return float(*DOUBLE.unpack(value))
            if number == 2 and isinstance(value, int) and value < 1 << 63:  # larger values are negative
                return value
    return None


def queued(data: bytes) -> ValuesByDevice:
    """Decode a MetricResponse with sizes of queues; add them up for each device. Raise ValueError if malformed."""
    sizes: ValuesByDevice = {}
    for labels, metric in _labelled(data):
        device, size = labels.get(ORDINAL, ""), _gauge(metric)
        if not is_number(device) or size is None:
            raise ValueError("the answer does not have a size for each queue")
        sizes[int(device)] = sizes.get(int(device), 0) + size
    return sizes


def totals(data: bytes) -> dict[str, float]:
    """Decode a MetricResponse to labels -> number; equal labels are added up. Raise ValueError if malformed."""
    numbers: dict[str, float] = {}
    for labels, metric in _labelled(data):
        for kind in (3, 4):
            if (value := _gauge(metric, kind)) is not None:
                numbers[repr(labels)] = numbers.get(repr(labels), 0) + value
    return numbers


def distributions(data: bytes, label: str) -> dict[str, Distribution]:
    """
    Decode a MetricResponse; return each value of the label `label` with its histogram. Raise ValueError if malformed.

    Histograms with the same value are merged. A metric without the label is found by its first label, as in tpu-info.
    """
    by_label: dict[str, list[Distribution]] = {}
    for labels, metric in _labelled(data):
        name = (labels.get(label) or next(iter(labels.values()), ""))[:LONGEST]
        by_label.setdefault(name, []).extend(_distribution(content) for content in messages(metric, 5))
    return {name: merged(parts) for name, parts in by_label.items() if any(part.number for part in parts)}


def merged(parts: Sequence[Distribution]) -> Distribution:
    """Merge histograms, which must not all be empty; the result has no buckets if their bounds differ."""
    count = sum(part.number for part in parts)
    mean = sum(part.mean * part.number for part in parts) / count
    first = parts[0]
    if any(part[2:4] != first[2:4] or len(part.buckets) != len(first.buckets) for part in parts):
        return Distribution(count, mean)
    return Distribution(
        count, mean, first.scale, first.growth, [*map(sum, zip(*(p.buckets for p in parts), strict=True))]
    )


def _labelled(data: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield each Metric of a MetricResponse with its labels."""
    for metrics in messages(data, 1):  # TPUMetric
        for metric in messages(metrics, 3):
            lists = [part for one in messages(metric, 1) for part in messages(one, 2)]
            listed = [attribute for part in lists for labels in messages(part, 6) for attribute in messages(labels, 1)]
            yield {key: text for one in (*messages(metric, 1), *listed) for key, text in _labels(one)}, metric


def _labels(attribute: bytes) -> Iterator[tuple[str, str]]:
    """Yield the key and value of an Attribute, if the value is a text or a number."""
    for value in messages(attribute, 2):
        for number, content in fields(value):
            if number == 1 and isinstance(content, bytes):
                yield text_in(attribute, 1), content.decode("utf-8", "replace")
            elif number == 3 and isinstance(content, int):
                yield text_in(attribute, 1), str(content)


def _distribution(data: bytes) -> Distribution:
    count, mean, buckets = 0, 0.0, list[int]()
    scale = growth = 0.0
    for number, wire, value in wired(data):
        if (number, wire) == (1, VARINT) and isinstance(value, int) and value < 1 << 63:
            count = value
        elif (number, wire) == (2, FIXED64) and isinstance(value, bytes):
            (mean,) = DOUBLE.unpack(value)
        elif (number, wire) == (6, LENGTH) and isinstance(value, bytes):
            for exponential in messages(value, 2):
                parts = {key: content for key, content in fields(exponential) if isinstance(content, bytes)}
                growth, scale = (
                    DOUBLE.unpack(part)[0] if len(part := parts.get(key, b"")) == 8 else 0.0 for key in (2, 3)
                )
        elif number == 7:
            buckets += varints(value) if isinstance(value, bytes) else [value]
    return Distribution(count, mean, scale, growth, buckets)


def is_number(text: str) -> bool:
    """Return True if a text is the number of a device."""
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 31
