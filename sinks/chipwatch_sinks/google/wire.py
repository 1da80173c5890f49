"""Encodes points as Cloud Monitoring's protobuf; the constant part of each series is cached as bytes."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from google.api.metric_pb2 import MetricDescriptor

from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.sink import Rejected
from chipwatch.net import protobuf
from chipwatch_sinks.google import metric_service
from chipwatch_sinks.google.history import Last, SentHistory
from chipwatch_sinks.google.rules import AHEAD, PAST, choose_resource, labels_of, metric_type, series_fault

if TYPE_CHECKING:
    from chipwatch_sinks.google import GoogleSink

Interval: Final = metric_service.common.TimeInterval.pb()
Request: Final = metric_service.types.CreateTimeSeriesRequest.pb()
TimeSeries: Final = metric_service.series.TimeSeries.pb()

CACHED_SERIES: Final = 25_000
"""Most series whose constant part is cached; one takes about 0.7 kB."""
CACHED_INTERVALS: Final = 1000
"""Most encoded time intervals that are cached; all points of a window share one."""
FIELDS: Final = {"max": "maximum", "min": "minimum", "last": "last", "mean": ""}
"""Statistic -> field of a point's Summary; empty for the mean, which is the point's value."""


class GoogleSeries(NamedTuple):
    """A series at Google: the part of its points that never changes."""

    fault: str | None
    """Why Cloud Monitoring rejects the series, or None."""
    digest: bytes = b""
    """Hash of the series' name, its key in SentHistory."""
    head: bytes = b""
    """The encoded TimeSeries without its point."""
    field: str = ""
    """Field of a point's Summary to send; empty to send the point's value."""
    kind: Kind = Kind.GAUGE


class SentPoint(NamedTuple):
    """A point of a request, and the entry that SentHistory gets once Google has stored it."""

    point: Datapoint
    series: GoogleSeries
    last: Last
    encoded: bytes

    @property
    def name(self) -> tuple[bytes, int]:
        """The point's series and its end time."""
        return self.series.digest, self.last.end

    @property
    def message(self) -> Any:
        """The decoded TimeSeries without its point."""
        return TimeSeries.FromString(self.series.head)


def request(project: str, sent: Sequence[SentPoint]) -> Any:
    """Return the CreateTimeSeriesRequest of these points."""
    made = Request.FromString(b"".join([one.encoded for one in sent]))
    made.name = f"projects/{project}"
    return made


class GoogleEncoder:
    """Encodes points for Cloud Monitoring, and rejects points that break its documented rules."""

    def __init__(self, history: SentHistory, config: GoogleSink.Config) -> None:
        self._history, self._config = history, config
        self._fallback = {"location": config.location, "namespace": config.namespace, "hostname": platform.node()}
        self._known: dict[tuple[str, Dimensions], GoogleSeries] = {}
        self._names: dict[bytes, tuple[str, Dimensions]] = {}
        self._first: dict[str, Metric] = {}
        self._undescribed: set[str] = set()

    def encode(self, batch: Sequence[Datapoint], now: int | None) -> tuple[list[SentPoint], list[Rejected]]:
        """Return the points to send, and the rejected ones; times are checked if `now` (ns) is given. Raise Refused."""
        good, rejected = [], []
        oldest, newest = (-math.inf, math.inf) if now is None else (now - PAST, now + AHEAD)
        for point in batch:
            metric, _, dims, at, *_ = point
            series = self._known.get((metric.name, dims))
            if series is None or series.kind is not metric.kind:
                series = self._learn(metric, dims)
            fault = series.fault or (None if oldest <= at <= newest else "too old" if at < oldest else "too far ahead")
            last = fault or self._history.follow(series.digest, point)
            if isinstance(last, str):
                rejected.append(Rejected(point, last))
            else:
                good.append(SentPoint(point, series, last, encode_point(series, point, last)))
        return good, rejected

    def undescribe(self, series: Sequence[GoogleSeries]) -> None:
        """From now on send these series' metrics without unit and description, since Google has others for them."""
        self._undescribed.update([TimeSeries.FromString(one.head).metric.type for one in series])
        self._forget()

    def _forget(self) -> None:
        self._known.clear()
        self._names.clear()

    def _learn(self, metric: Metric, dims: Dimensions) -> GoogleSeries:
        if len(self._known) >= CACHED_SERIES:
            self._forget()
        series = self._known[metric.name, dims] = self._encode_series(metric, dims)._replace(kind=metric.kind)
        return series

    def _encode_series(self, metric: Metric, dims: Dimensions) -> GoogleSeries:
        kind = metric_type(self._config.prefix, metric.name)
        if fault := series_fault(kind, dims):
            return GoogleSeries(fault)
        labels = labels_of(dims)
        first = self._first.setdefault(kind, metric)  # at Google a metric type keeps its first unit and description
        if (first.name, first.kind) != (metric.name, metric.kind):
            same = first.name == metric.name
            return GoogleSeries("kind of the metric changed" if same else "two metrics become the same type")
        words = self._fallback | {key[1:]: value for key, value in dims.items_sorted if key.startswith(HIDDEN)}
        resource, its_labels = choose_resource(self._config.resource, words)
        is_described = kind not in self._undescribed
        try:
            message = TimeSeries(
                metric={"type": kind, "labels": labels},
                resource={"type": resource, "labels": its_labels},
                metric_kind=MetricDescriptor.GAUGE if metric.kind is Kind.GAUGE else MetricDescriptor.CUMULATIVE,
                value_type=MetricDescriptor.DOUBLE,
                unit=first.unit if is_described else "",
                description=first.help if is_described else "",
            )
        except UnicodeEncodeError:
            return GoogleSeries("unit, description or resource is not UTF-8")
        text = "\0".join((kind, resource, *(f"{k}={v}" for k, v in (*its_labels.items(), *labels.items()))))
        digest = blake2b(text.encode(), digest_size=8).digest()
        if self._names.setdefault(digest, (metric.name, dims)) != (metric.name, dims):
            return GoogleSeries("the same series as another, once empty dimensions are left out")
        globs = self._config.statistic.items()
        statistic = next((word for glob, word in globs if fnmatchcase(metric.name, glob)), "mean")
        return GoogleSeries(None, digest, message.SerializeToString(), FIELDS[statistic])


varint: Final = lru_cache(CACHED_INTERVALS)(protobuf.varint)


def _tag(message: Any, field: str) -> bytes:
    """Return the protobuf tag of a field that holds bytes or a message."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | 2)


DOUBLE: Final = Struct("<d")
double: Final = DOUBLE.pack
SERIES: Final = _tag(Request, "time_series")
POINTS: Final = _tag(TimeSeries, "points")
_Point: Final = metric_service.series.Point.pb()
INTERVAL: Final = _tag(_Point, "interval")
_NUMBER: Final = metric_service.common.TypedValue.pb().DESCRIPTOR.fields_by_name["double_value"].number << 3 | 1
VALUE: Final = _tag(_Point, "value") + varint(len(varint(_NUMBER)) + DOUBLE.size) + varint(_NUMBER)


def encode_point(series: GoogleSeries, point: Datapoint, last: Last) -> bytes:
    """Return one point, encoded as the field `time_series` of a CreateTimeSeriesRequest."""
    if last.start:
        value = last.value - last.base
    elif series.field and point.summary is not None:
        value = getattr(point.summary, series.field)
    else:
        value = point.value
    body = b"".join((series.head, _encode_interval(last.start, last.end), double(value)))
    return b"".join((SERIES, varint(len(body)), body))


@lru_cache(CACHED_INTERVALS)
def _encode_interval(start: int, end: int) -> bytes:
    """Encode a point up to its value. Times are in ns since the epoch; a `start` of 0 stands for no start."""
    message = Interval(end_time=_timestamp(end), start_time=_timestamp(start) if start else None)
    made: bytes = message.SerializeToString()
    inner = INTERVAL + varint(len(made)) + made + VALUE
    return POINTS + varint(len(inner) + DOUBLE.size) + inner


def _timestamp(at: int) -> dict[str, int]:
    return {"seconds": at // 1_000_000_000, "nanos": at % 1_000_000_000}
