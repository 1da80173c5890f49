"""Datapoints as Cloud Monitoring's series: raw protobuf, the constant part of each made once and kept as bytes."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Any, Final, Literal, NamedTuple

from google.api.metric_pb2 import MetricDescriptor

from agent.datapoint import HIDDEN, Datapoint, Dimensions, Kind, Metric
from agent.errors import Refused
from agent.sink import Rejected
from sinks.google import metric_service
from sinks.google.history import History, Last
from sinks.google.rules import AHEAD, PAST, Unfit, choose_resource, labels_of, metric_type, series_fault

Interval: Final = metric_service.common.TimeInterval.pb()
Request: Final = metric_service.types.CreateTimeSeriesRequest.pb()
TimeSeries: Final = metric_service.series.TimeSeries.pb()

MOST_SERIES: Final = 20_000
"""Series whose constant part is remembered: about 0.7 kB each."""
MOST_INTERVALS: Final = 1000
"""Intervals whose encoding is remembered: the points of a window share theirs."""
GAUGE: Final = Kind.GAUGE

Statistic = Literal["mean", "max", "min", "last"]


class Series(NamedTuple):
    """What is the same for every point of a series."""

    fault: str | None
    """Why it will never be taken, or None."""
    digest: bytes = b""
    """Its name, short: what its history is kept under."""
    head: bytes = b""
    """Its TimeSeries without the point."""
    statistic: Statistic = "mean"
    kind: Kind = GAUGE


class Sent(NamedTuple):
    """A point on its way: as it came, as a series of a request, and as what will be its series' last point."""

    point: Datapoint
    series: Series
    last: Last
    field: bytes

    @property
    def name(self) -> tuple[bytes, int]:
        """Which point of which series it is."""
        return self.series.digest, self.last.end

    @property
    def is_described(self) -> bool:
        """Whether a unit or a description goes with it."""
        return bool(self.message.unit or self.message.description)

    @property
    def message(self) -> Any:
        """Its TimeSeries."""
        return TimeSeries.FromString(self.series.head)


def request(project: str, sent: Sequence[Sent]) -> Any:
    """Return the CreateTimeSeriesRequest of these points."""
    made = Request.FromString(b"".join([one.field for one in sent]))
    made.name = f"projects/{project}"
    return made


class Encoder:
    """Turns points into series of Cloud Monitoring; what it would refuse by its documented rules is rejected here."""

    def __init__(
        self,
        history: History,
        *,
        prefix: str,
        resource: str,
        location: str,
        namespace: str,
        statistic: Mapping[str, Statistic],
    ) -> None:
        """Take what was sent before, and the sink's configuration."""
        self.history = history
        self._prefix, self._resource = prefix, resource
        self._fallback = {"location": location, "namespace": namespace, "hostname": platform.node()}
        self._statistic = statistic
        self._known: dict[tuple[str, Dimensions], Series] = {}
        self._kinds: dict[str, Metric] = {}
        self._names: dict[bytes, tuple[str, Dimensions]] = {}
        self._plain: set[str] = set()
        self._intervals: dict[tuple[int, int], bytes] = {}

    def encode(self, batch: Sequence[Datapoint], now: int | None) -> tuple[list[Sent], list[Rejected]]:
        """
        Return the points that may be sent at `now` (ns), their series filled, and the others; raise Refused.

        Where `now` is not known, it is left to the service to judge the time.
        """
        good, rejected = [], []
        oldest, newest = (-math.inf, math.inf) if now is None else (now - PAST, now + AHEAD)
        for point in batch:
            metric, _, dims, at, *_ = point
            series = self._known.get((metric.name, dims))
            if series is None or series.kind is not metric.kind:
                series = self._learn(point)
            fault = series.fault or (None if oldest <= at <= newest else "too old" if at < oldest else "too far ahead")
            last = fault or self.history.follow(series.digest, point)
            if isinstance(last, str):
                rejected.append(Rejected(point, last))
            else:
                good.append(Sent(point, series, last, self._field(series, point, last)))
        return good, rejected

    def _field(self, series: Series, point: Datapoint, last: Last) -> bytes:
        """Return the field of a CreateTimeSeriesRequest that holds this point of its series."""
        if last.start:
            value = last.value - last.base
        elif point.summary is None or series.statistic == "mean":
            value = point.value
        else:
            value = VALUES[series.statistic](point.summary)
        interval = self._intervals.get((last.start, last.end)) or self._encode_interval(last.start, last.end)
        body = b"".join((series.head, interval, double(value)))
        return b"".join((SERIES, varint(len(body)), body))

    def _encode_interval(self, start: int, end: int) -> bytes:
        """Return the field of a TimeSeries that holds a point, up to the value."""
        if len(self._intervals) >= MOST_INTERVALS:
            self._intervals.clear()
        message = Interval(end_time=moment(end), start_time=moment(start) if start else None)
        made: bytes = message.SerializeToString()
        inner = INTERVAL + varint(len(made)) + made + VALUE
        self._intervals[start, end] = found = POINTS + varint(len(inner) + DOUBLE.size) + inner
        return found

    def undescribe(self, series: Sequence[Series]) -> None:
        """Send these metrics without unit and description from now on: they were described otherwise before."""
        self._plain.update([TimeSeries.FromString(one.head).metric.type for one in series])
        self._known.clear()
        self._names.clear()

    def _learn(self, point: Datapoint) -> Series:
        if len(self._known) >= MOST_SERIES:
            self._known.clear()
            self._names.clear()
        metric, dims = point.metric, point.dims
        series = self._known[metric.name, dims] = self._make(metric, dims)._replace(kind=metric.kind)
        return series

    def _make(self, metric: Metric, dims: Dimensions) -> Series:
        kind = metric_type(self._prefix, metric.name)
        if fault := series_fault(kind, dims):
            return Series(fault)
        labels = labels_of(dims)
        first = self._kinds.setdefault(kind, metric)  # a type has one unit and description: those that came first
        if (first.name, first.kind) != (metric.name, metric.kind):
            same = first.name == metric.name
            return Series("kind of the metric changed" if same else "two metrics become the same type")
        words = self._fallback | {key[1:]: value for key, value in dims.items_sorted if key.startswith(HIDDEN)}
        try:
            resource, its_labels = choose_resource(self._resource, words)
        except Unfit as problem:
            raise Refused(f"{problem}; give it with --dim, or choose another: sinks.google.resource") from problem
        try:
            message = TimeSeries(
                metric={"type": kind, "labels": labels},
                resource={"type": resource, "labels": its_labels},
                metric_kind=MetricDescriptor.GAUGE if metric.kind is GAUGE else MetricDescriptor.CUMULATIVE,
                value_type=MetricDescriptor.DOUBLE,
                unit="" if kind in self._plain else first.unit,
                description="" if kind in self._plain else first.help,
            )
        except UnicodeEncodeError:
            return Series("unit, description or resource is not UTF-8")
        text = "\0".join((kind, resource, *(f"{k}={v}" for k, v in (*its_labels.items(), *labels.items()))))
        digest = blake2b(text.encode(), digest_size=8).digest()
        if self._names.setdefault(digest, (metric.name, dims)) != (metric.name, dims):
            return Series("the same series as another, once empty dimensions are left out")
        return Series(None, digest, message.SerializeToString(), self._statistic_of(metric.name))

    def _statistic_of(self, name: str) -> Statistic:
        return next((word for glob, word in self._statistic.items() if fnmatchcase(name, glob)), "mean")


def moment(at: int) -> dict[str, int]:
    """Return a time in ns since the epoch as a google.protobuf.Timestamp."""
    return {"seconds": at // 1_000_000_000, "nanos": at % 1_000_000_000}


@lru_cache(MOST_INTERVALS)
def varint(number: int) -> bytes:
    """Return a number as protobuf writes lengths (https://protobuf.dev/programming-guides/encoding)."""
    if number < 0x80:
        return bytes((number,))
    return bytes((number & 0x7F | 0x80,)) + varint(number >> 7)


def _tag(message: Any, field: str) -> bytes:
    """Return what a field of bytes begins with."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2)


DOUBLE: Final = Struct("<d")
double: Final = DOUBLE.pack
SERIES: Final = _tag(Request, "time_series")
POINTS: Final = _tag(TimeSeries, "points")
_Point: Final = metric_service.series.Point.pb()
INTERVAL: Final = _tag(_Point, "interval")
_NUMBER: Final = metric_service.common.TypedValue.pb().DESCRIPTOR.fields_by_name["double_value"].number << 3 | 1
VALUE: Final = _tag(_Point, "value") + varint(len(varint(_NUMBER)) + DOUBLE.size) + varint(_NUMBER)
VALUES: Final[Mapping[Statistic, Callable[[Any], float]]] = {
    "max": lambda summary: summary.maximum,
    "min": lambda summary: summary.minimum,
    "last": lambda summary: summary.last,
}
