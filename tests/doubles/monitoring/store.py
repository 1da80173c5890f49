"""Stored points, and the rules by which points of a write join them."""

from __future__ import annotations

import re
import struct
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from google.api import metric_pb2, monitored_resource_pb2
from google.cloud.monitoring_v3 import types
from google.protobuf.message import Message
from google.rpc import code_pb2, status_pb2
from tests.doubles.monitoring import rules
from tests.doubles.monitoring.answers import CODES, Answer
from tests.doubles.monitoring.rules import Key, Point
from tests.doubles.monitoring.words import Fault, tell

WRITE = types.CreateTimeSeriesRequest.pb()
SUMMARY = types.CreateTimeSeriesSummary.pb()
OK = Answer(grpc.StatusCode.OK)


class Store:
    """Series and metrics, and the rules for more; with a journal they outlive the process."""

    def __init__(self, journal: Path | None = None, min_gap: float = 10.0) -> None:
        """Remember what an earlier store with this journal took."""
        self.series: dict[Key, deque[Point]] = {}
        """Stored points by series, in order; the last 10,000 points of each."""
        self.descriptors: dict[tuple[str, str], metric_pb2.MetricDescriptor] = {}
        """Metrics: (project, type) -> descriptor, made by the first write."""
        self.count: Counter[str] = Counter()
        """Number of points that were stored, and refused with each code: FAILED_PRECONDITION and so on."""
        self.clock: Callable[[], float] = time.time
        """The server's time (s since the epoch)."""
        self.min_gap = min_gap
        """Least distance of the ends of a series' points (s)."""
        self.wording = "new"
        """Form of partial refusals: new, old, bare; see `words.tell`."""
        self.most_words = 3_000
        """Where such a message is cut."""
        self.edits = False
        """True if a changed unit or description is ignored, False if it is refused."""
        self.most_series = 200_000
        """Limit of series of a monitored resource."""
        self.most_metrics = 10_000
        """Limit of metrics."""
        self.lock = threading.RLock()
        self._failing: list[tuple[str, Fault]] = []
        self._file = journal
        self._at_home: Counter[tuple[Any, ...]] = Counter()
        if journal:
            self._remember(journal)

    def forget(self) -> None:
        """Lose all that was stored, and the journal."""
        with self.lock:
            for memory in (self.series, self.descriptors, self._at_home):
                memory.clear()
            if self._file:
                self._file.unlink(missing_ok=True)

    def points(self, ending: str = "", **labels: str) -> list[Point]:
        """Return the points of the series whose type ends so and that have these labels, of metric or resource."""
        with self.lock:
            return [point for key in self.keys(ending, **labels) for point in self.series[key]]

    def keys(self, ending: str = "", **labels: str) -> list[Key]:
        """Return the series whose type ends so and that have these labels, of metric or resource."""
        with self.lock:
            return [
                key
                for key in self.series
                if key.type.endswith(ending) and labels.items() <= {*key.labels, *key.resource_labels}
            ]

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, request: Any) -> tuple[Answer, int]:
        """Store what is good of a request; return the answer to it, and how many points were stored."""
        project, series = request.name.partition("/")[2], list(request.time_series)
        if text := _fault_of_request(request):
            self.count["INVALID_ARGUMENT"] += len(series)
            return Answer(grpc.StatusCode.INVALID_ARGUMENT, text), 0
        with self.lock:
            now = int(self.clock() * 10**9)
            seen: set[Key] = set()
            faults: dict[int, Fault] = {}
            for index, each in enumerate(series):
                key = rules.key_of(project, each)
                if fault := self._fault(f"timeSeries[{index}]", key, each, seen, now):
                    faults[index] = fault
                    self.count[CODES[fault.code].name] += 1
                else:
                    self._store(key, each)
                seen.add(key)
            good = [each for index, each in enumerate(series) if index not in faults]
            self.count["stored"] += len(good)
            if good and self._file:
                body = WRITE(name=request.name, time_series=good).SerializeToString()
                with self._file.open("ab") as file:
                    file.write(struct.pack(">I", len(body)) + body)
        return self._answer(series, faults), len(good)

    def fail_next(self, ending: str, fault: Fault, n: int) -> None:
        """Let the next `n` good points of metrics whose type ends so fail."""
        with self.lock:
            self._failing.extend([(ending, fault)] * n)

    def _fault(self, place: str, key: Key, series: Any, seen: set[Key], now: int) -> Fault | None:
        metric = self.descriptors.get(key[:2])
        for fault in rules.faults_of_form(place, series, metric, now):
            return fault
        if key in seen:
            why = "Duplicate TimeSeries encountered. Only one point can be written per TimeSeries per request."
            return Fault(f"Field {place} had an invalid value: {why}")
        if metric:
            for fault in rules.faults_of_metric(place, series, metric, edits=self.edits):
                return fault
        return self._fault_of_quota(key, series, metric) or self._fault_of_series(key, series, metric)

    def _fault_of_quota(self, key: Key, series: Any, metric: metric_pb2.MetricDescriptor | None) -> Fault | None:
        known = {label.key for label in metric.labels} if metric else set()
        if len(known | {*series.metric.labels}) > 30:
            return Fault(f"The new labels would cause the metric {key.type} to have over 30 labels.")
        if not metric and len(self.descriptors) >= self.most_metrics:
            return Fault("Your metric descriptor quota has been exhausted.", code_pb2.RESOURCE_EXHAUSTED)
        if key not in self.series and self._at_home[_home(key)] >= self.most_series:
            text = f"Monitored resource has too many time series ({key.type.partition('.')[0]} metrics)."
            return Fault(text, code_pb2.RESOURCE_EXHAUSTED, late=True)
        return None

    def _fault_of_series(self, key: Key, series: Any, metric: metric_pb2.MetricDescriptor | None) -> Fault | None:
        if points := self.series.get(key):
            kind, point, gap = rules.kind_of(series, metric), rules.point_of(series), int(self.min_gap * 10**9)
            if fault := rules.fault_of_order(series, kind, points[-1], point, gap):
                return fault
        for position, (ending, fault) in enumerate(self._failing):
            if key.type.endswith(ending):
                del self._failing[position]
                return fault
        return None

    def _store(self, key: Key, series: Any) -> None:
        metric = self.descriptors.get(key[:2])
        if metric is None:
            metric = self.descriptors[key[:2]] = metric_pb2.MetricDescriptor(
                name=f"projects/{key.project}/metricDescriptors/{key.type}",
                type=key.type,
                metric_kind=rules.kind_of(series, None),
                value_type=rules.TYPES[series.points[0].value.WhichOneof("value")],
            )
        metric.unit = metric.unit or series.unit
        metric.description = metric.description or series.description
        for name in sorted(series.metric.labels.keys() - {label.key for label in metric.labels}):
            metric.labels.add(key=name)
        if key not in self.series:
            self.series[key] = deque(maxlen=10_000)
            self._at_home[_home(key)] += 1
        self.series[key].append(rules.point_of(series))

    def _answer(self, series: list[Any], faults: dict[int, Fault]) -> Answer:
        if not faults:
            return OK
        codes = Counter(fault.code for fault in faults.values())
        summary = SUMMARY(total_point_count=len(series), success_point_count=len(series) - len(faults))
        for code, points in codes.items():
            summary.errors.add(status=status_pb2.Status(code=code), point_count=points)
        # Too frequent points (9) make a request invalid (3); trouble that all failed points share is the request's own.
        whole = CODES[min(codes) if len(codes) == 1 else code_pb2.INVALID_ARGUMENT]
        if whole is grpc.StatusCode.FAILED_PRECONDITION:
            whole = grpc.StatusCode.INVALID_ARGUMENT
        return Answer(whole, tell(series, faults, self.wording, self.most_words), (summary,))

    def _remember(self, journal: Path) -> None:
        """Store again what the journal holds; the torn end of a killed process' last write does not count."""
        data = journal.read_bytes() if journal.exists() else b""
        at = 0
        while len(data) >= at + 4 and len(data) >= (end := at + 4 + struct.unpack_from(">I", data, at)[0]):
            request = WRITE.FromString(data[at + 4 : end])
            for each in request.time_series:
                self._store(rules.key_of(request.name.partition("/")[2], each), each)
            at = end
        if at < len(data):
            journal.write_bytes(data[:at])

    # -- reading ----------------------------------------------------------------------------------------------------

    def list_series(self, asked: Any) -> Message:
        """Answer with all that a filter by metric.type leaves, on one page, each series' points newest first."""
        reply = types.ListTimeSeriesResponse.pb()()
        low, high = rules.nanoseconds(asked.interval.start_time), rules.nanoseconds(asked.interval.end_time)
        with self.lock:
            for key, points in self.series.items():
                within = [point for point in reversed(points) if low <= point.end <= (high or point.end)]
                if within and f"projects/{key.project}" == asked.name and _passes(asked.filter, key.type):
                    _add_series(reply, key, self.descriptors[key[:2]], within)
        return reply

    def list_metrics(self, asked: Any) -> Message:
        """Answer with all that a filter by metric.type leaves, on one page."""
        with self.lock:
            fitting = [
                metric
                for (project, name), metric in self.descriptors.items()
                if f"projects/{project}" == asked.name and _passes(asked.filter, name)
            ]
            return types.ListMetricDescriptorsResponse.pb()(metric_descriptors=fitting)

    def describe_resource(self, asked: Any) -> Message:
        """Answer with the labels of a monitored resource; with none where it cannot be written to."""
        kind = asked.name.rpartition("/")[2]
        labels = [{"key": name} for name in ("project_id", *rules.LABELS.get(kind, ()))]
        return monitored_resource_pb2.MonitoredResourceDescriptor(name=asked.name, type=kind, labels=labels)


def _fault_of_request(request: Any) -> str:
    """Return why a request is refused whole, if it is."""
    project = request.name.partition("/")[2]
    if not re.fullmatch(r"projects/[^/]+", request.name):  # our words
        return f"Name must begin with 'projects/{{project_id}}', got: {request.name}"
    if not request.time_series:
        return "Request was missing field timeSeries."
    if len(request.time_series) > 200:
        return "Field timeSeries had an invalid value: A maximum of 200 TimeSeries can be written in a single request."
    for index, each in enumerate(request.time_series):
        told = each.resource.labels.get("project_id", project)
        if told != project:
            where = f'Field timeSeries[{index}].resource.labels.project_id had an invalid value of "{told}"'
            return f"{where}: if present, must be the project number or ID in the request name."
    return ""


def _home(key: Key) -> tuple[Any, ...]:
    return key.project, key.resource, key.resource_labels


def _passes(wanted: str, name: str) -> bool:
    exact = re.search(r'metric\.type\s*=\s*"([^"]*)"', wanted)
    start = re.search(r'metric\.type\s*=\s*starts_with\("([^"]*)"\)', wanted)
    return name == exact[1] if exact else name.startswith(start[1] if start else "")


def _add_series(reply: Any, key: Key, metric: metric_pb2.MetricDescriptor, points: list[Point]) -> None:
    series = reply.time_series.add(metric_kind=metric.metric_kind, value_type=metric.value_type, unit=metric.unit)
    series.metric.type, series.resource.type = key.type, key.resource
    series.metric.labels.update(key.labels)
    series.resource.labels.update({"project_id": key.project, **dict(key.resource_labels)})
    field = next(name for name, number in rules.TYPES.items() if number == metric.value_type)
    for start, end, value in points:
        point = series.points.add()
        point.interval.start_time.FromNanoseconds(start)
        point.interval.end_time.FromNanoseconds(end)
        if isinstance(value, Message):
            getattr(point.value, field).CopyFrom(value)
        else:
            setattr(point.value, field, value)
