"""
Encodes points as OTLP's ExportMetricsServiceRequest; the constant part of each series is cached as bytes.

Field numbers: https://github.com/open-telemetry/opentelemetry-proto, v1.11.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, Literal, NamedTuple

from chipwatch.base.version import __version__
from chipwatch.contract.datapoint import COUNTER, HIDDEN, Datapoint, Dimensions, Kind, Metric, Summary
from chipwatch.net.protobuf import message, text, varint, zigzag
from chipwatch_sinks.otlp.resource import SCHEMA, attribute_of, resource_of

Gauges = Literal["mean", "mean-min-max", "histogram"]
GAUGE, SUM, HISTOGRAM = 5, 7, 10
"""Numbers of the fields of a Metric that hold its points, by kind."""
DELTA, CUMULATIVE = 1, 2
CACHED_SERIES: Final = 25_000
"""Most series whose constant part is cached; one takes about 0.6 kB."""
FIRST_GAP: Final = 120 * 10**9
ENDED_AFTER: Final = 2.5
"""
A series has ended if no point came for this many times the gap between its last two points.

FIRST_GAP (ns) stands in for the gap of a series with one point: that ends after 5 minutes, Prometheus' look-back.
"""
sample: Final = Struct("<BQBd").pack
sample_since: Final = Struct("<BQBQBd").pack
whole: Final = Struct("<BQBq").pack
whole_since: Final = Struct("<BQBQBq").pack
SAMPLE, SAMPLE_SINCE, MARKER = 18, 27, 11
"""Encoded bytes of time and value; of start time, time and value; of time and flag."""
TIME, START, VALUE, WHOLE = 0x19, 0x11, 0x21, 0x31
"""Protobuf tags of a NumberDataPoint's fields; VALUE is as_double, WHOLE as_int."""
MAX_SCALE: Final = 20
"""Finest scale, as in OpenTelemetry's SDKs: the index of any double's bucket fits into 32 bits."""
MAX_BUCKETS: Final = 160
"""Most buckets for each sign, as in OpenTelemetry's SDKs."""
MOST_WHOLE: Final = 1 << 63


@dataclass(slots=True, eq=False)
class _Group:
    """An OTLP Metric of one machine, and its points in the current request."""

    resource: bytes
    """The machine, encoded as a Resource."""
    head: bytes
    """The metric's name, description and unit, encoded."""
    data: int
    """Field that holds the points: GAUGE, SUM or HISTOGRAM."""
    tail: bytes
    """The encoded part after the points: the temporality."""
    parts: list[bytes] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Series:
    """A series: the part of its points that never changes, and the time of the last point."""

    kind: Kind
    unit: str
    group: _Group
    attributes: bytes
    head: bytes
    """Encoded beginning of a point with time and value: tag, length, attributes."""
    size: int
    """Most bytes that a point adds to a request."""
    counts: bool
    """True if its unit counts things, so that its readings are integers."""
    sides: tuple[_Group, ...] = ()
    """Metrics that get the window's minimum and maximum."""
    at: int = 0
    gap: int = FIRST_GAP
    """`at`: time of its last point; `gap`: time between its last two points (ns)."""
    start: int = 0
    base: float = 0.0
    value: float = 0.0
    """For a counter without a known start: when it was first read, its value then, and its last value."""


class OtlpEncoder:
    """Encodes batches, and notices which series have ended. Used by one thread."""

    def __init__(
        self,
        given: Mapping[str, str],
        *,
        gauges: Gauges = "mean",
        delta: bool = False,
        on_points: bool = False,
        needs_start: bool = False,
    ) -> None:
        """
        `given`: the user's resource attributes; `gauges`, `delta`: how gauges and counters are sent.

        With `on_points`, each point also has the machine's dimensions. With `needs_start`, a counter counts from its
        first reading unless its start is known.
        """
        self.given = dict(given)
        """The user's resource attributes; they may change until the first batch."""
        self._gauges, self._on_points, self._adjusts = gauges, on_points, delta or needs_start
        self._temporality = DELTA if delta else CUMULATIVE
        self._series: dict[tuple[str, Dimensions], _Series] = {}
        self._groups: dict[tuple[bytes, str, str, int], _Group] = {}
        self._resources: dict[tuple[tuple[str, str], ...], bytes] = {}
        self._used: list[_Group] = []  # groups with points in the current request
        self._newest = 0

    def encode(self, batch: Sequence[Datapoint], ended: Sequence[tuple[str, Dimensions]] = ()) -> bytes:
        """Return the request with these points, and with a point without value for each series in `ended`."""
        cache, used, is_plain = self._series, self._used, self._gauges == "mean"
        for point in batch:
            metric, value, dims, at, start_time, _, total, _ = point
            series, kind = cache.get((metric.name, dims)), metric.kind
            if series is None or series.kind is not kind or series.unit != metric.unit:
                series = self._learn(point)
            if kind is COUNTER:
                if self._adjusts:
                    start_time, value = self._adjusted(series, point)
                n = _whole(value) if series.counts else None
                moment = (START, start_time or 0, TIME, at)
                tail = sample_since(*moment, VALUE, value) if n is None else whole_since(*moment, WHOLE, n)
            elif is_plain:
                n = _whole(value) if series.counts and total is None else None
                tail = sample(TIME, at, VALUE, value) if n is None else whole(TIME, at, WHOLE, n)
            else:
                self._add_window(series, point)
                continue
            if not (parts := series.group.parts):
                used.append(series.group)
            parts += (series.head, tail)
            if at > series.at:
                series.gap, series.at = at - series.at, at
        self._newest = max(self._newest, batch[-1].at)
        for key in ended:
            if (series := cache.get(key)) is not None:
                self._add_marker(series)
        return self._finish()

    def ended(self, most: int) -> list[tuple[str, Dimensions]]:
        """Return up to `most` series that have ended (ENDED_AFTER)."""
        now = self._newest
        return [key for key, of in self._series.items() if now - of.at > ENDED_AFTER * of.gap][:most]

    def forget(self, series: Iterable[tuple[str, Dimensions]]) -> None:
        """Forget series whose end was sent to the receiver."""
        for key in series:
            self._series.pop(key, None)

    def size(self, point: Datapoint) -> int:
        """Return the most bytes that a point adds to a request."""
        series = self._series.get((point.metric.name, point.dims)) or self._learn(point)
        if self._gauges != "histogram" or point.summary is None:
            return series.size
        return series.size + 4 * 160 + 2 * len(point.summary.values) * len(varint(point.summary.count))

    def _adjusted(self, series: _Series, point: Datapoint) -> tuple[int, float]:
        """
        Return the start time and the value to send for a counter: as a delta its increase, otherwise its total.

        A counter without a known start counts from its first reading, and restarts when it falls. Google wants each
        start before its end.
        """
        begins = point.at if point.window_start is None else point.window_start
        if self._temporality == DELTA:
            return begins, point.increase or 0.0
        if point.start_time is not None:
            return min(point.start_time, point.at - 1), point.value
        begins = min(begins, point.at - 1)
        if not series.start:
            series.start, series.base = begins, point.value - (point.increase or 0.0)
        elif point.at > series.at and point.value < series.value:
            series.start, series.base = max(begins, series.at), 0.0
        series.value = point.value
        return series.start, max(0.0, point.value - series.base)

    def _add_window(self, series: _Series, point: Datapoint) -> None:
        """Add a gauge's point, and what `gauges` wants of its window: minimum and maximum, or a histogram."""
        total, at = summary_of(point), point.at
        if self._gauges == "histogram":
            self._add(series.group, _histogram_point(series.attributes, point))
        else:
            values = (point.value, total.minimum, total.maximum)
            for group, value in zip((series.group, *series.sides), values, strict=True):
                self._add(group, series.head + sample(TIME, at, VALUE, value))
        if at > series.at:
            series.gap, series.at = at - series.at, at

    def _add(self, group: _Group, point: bytes) -> None:
        if not group.parts:
            self._used.append(group)
        group.parts.append(point)

    def _add_marker(self, series: _Series) -> None:
        """Add a point without a value (flags = 1), which marks the end of a series."""
        for group in (series.group, *series.sides):
            time = Struct("<BQ").pack(TIME, self._newest)
            flags = b"\x50\x01" if group.data == HISTOGRAM else b"\x40\x01"
            self._add(group, message(1, series.attributes + time + flags))

    def _finish(self) -> bytes:
        """Return the request with all groups that have points, and empty the groups."""
        metrics: dict[bytes, list[bytes]] = {}
        for group in self._used:
            points = b"".join(group.parts) + group.tail
            metrics.setdefault(group.resource, []).append(message(2, group.head + message(group.data, points)))
            group.parts.clear()
        self._used.clear()
        scope = message(1, text(1, "chipwatch") + text(2, __version__))
        schema = text(3, SCHEMA)
        return b"".join([message(1, held + message(2, scope + b"".join(of)) + schema) for held, of in metrics.items()])

    def _learn(self, point: Datapoint) -> _Series:
        """Cache a series that is new, or whose kind or unit has changed."""
        if len(self._series) >= CACHED_SERIES:
            for cache in (self._series, self._groups, self._resources):
                cache.clear()
        series = self._make_series(point.metric, point.dims)
        series.at = point.at - FIRST_GAP
        self._series[point.metric.name, point.dims] = series
        return series

    def _make_series(self, metric: Metric, dims: Dimensions) -> _Series:
        machine = tuple(pair for pair in dims.items_sorted if pair[0] not in metric.dims)
        if (resource := self._resources.get(machine)) is None:
            held = attributes(1, resource_of(machine, self.given).items())
            resource = self._resources[machine] = message(1, held)
        own = attributes(7, point_attributes(metric, dims, on_points=self._on_points))
        if metric.kind is COUNTER:
            tail = bytes((0x10, self._temporality, 0x18, 1))  # monotonic
            group = self._group(resource, metric, metric.name, SUM, tail)
            return self._series_of(metric, group, own, SAMPLE_SINCE)
        if self._gauges == "histogram":
            own = attributes(1, point_attributes(metric, dims, on_points=self._on_points))
            group = self._group(resource, metric, metric.name, HISTOGRAM, bytes((0x10, DELTA)))
            return self._series_of(metric, group, own, 120)
        group = self._group(resource, metric, metric.name, GAUGE, b"")
        series = self._series_of(metric, group, own, SAMPLE)
        if self._gauges == "mean-min-max":
            names = (f"{metric.name}.min", f"{metric.name}.max")
            series.sides = tuple(self._group(resource, metric, name, GAUGE, b"") for name in names)
            series.size *= 3
        return series

    def _series_of(self, metric: Metric, group: _Group, own: bytes, tail: int) -> _Series:
        head = b"\x0a" + varint(len(own) + tail) + own
        size = len(head) + tail + len(group.head) + 24
        return _Series(metric.kind, metric.unit, group, own, head, size, metric.unit == "By" or metric.unit[:1] == "{")

    def _group(self, resource: bytes, metric: Metric, name: str, data: int, tail: bytes) -> _Group:
        key = (resource, name, metric.unit, data)
        if key not in self._groups:
            head = text(1, name) + text(2, metric.help) + text(3, metric.unit)
            self._groups[key] = _Group(resource, head, data, tail)
        return self._groups[key]


def attributes(number: int, pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return attributes with texts as values, each encoded as a KeyValue in the field with this number."""
    return b"".join([message(number, text(1, key) + message(2, text(1, value))) for key, value in pairs])


def point_attributes(metric: Metric, dims: Dimensions, *, on_points: bool) -> list[tuple[str, str]]:
    """Return a point's attributes: the metric's own dimensions, and with `on_points` also the machine's."""
    pairs = {key: value for key, value in dims.items_sorted if key in metric.dims}
    if on_points:
        machine = {attribute_of(key): value for key, value in dims.items_sorted if key[:1] != HIDDEN}
        pairs = {key: value for key, value in machine.items() if key not in pairs} | pairs
    return sorted(pairs.items())


def labels(metric: Metric, dims: Dimensions, given: Mapping[str, str], *, on_points: bool) -> list[tuple[str, str]]:
    """Return all attributes of a point, and of its resource with the user's `given` ones."""
    machine = [pair for pair in dims.items_sorted if pair[0] not in metric.dims]
    return [*point_attributes(metric, dims, on_points=on_points), *resource_of(machine, given).items()]


def _whole(value: float) -> int | None:
    """Return the value as an integer, for as_int; None unless it is one of 64 bits."""
    number = int(value)
    return number if number == value and -MOST_WHOLE <= number < MOST_WHOLE else None


def _histogram_point(own: bytes, point: Datapoint) -> bytes:
    """Return a window as an ExponentialHistogramDataPoint; it has no sum if values are negative, as OTLP demands."""
    total = summary_of(point)
    histogram = histogram_of(total)
    start = point.at if point.window_start is None else point.window_start
    head = Struct("<BQBQBQ").pack(0x11, start, 0x19, point.at, 0x21, total.count)
    if total.minimum >= 0:
        head += Struct("<Bd").pack(0x29, total.sum)
    tail = Struct("<BQBdBd").pack(0x39, histogram.zeros, 0x61, total.minimum, 0x69, total.maximum)
    buckets = _buckets(8, histogram.positive) + _buckets(9, histogram.negative)
    return message(1, own + head + b"\x30" + zigzag(histogram.scale) + buckets + tail)


def _buckets(number: int, buckets: Buckets) -> bytes:
    if not buckets.counts:
        return b""
    return message(number, b"\x08" + zigzag(buckets.offset) + message(2, b"".join(map(varint, buckets.counts))))


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
    if not (placed := [(index >> shift, count) for index, count in found]):
        return Buckets(0, [])
    first, last = (pick(index for index, _ in placed) for pick in (min, max))
    counts = [0] * (last - first + 1)
    for index, count in placed:
        counts[index - first] += count
    return Buckets(first, counts)
