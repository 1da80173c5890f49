"""Stored points, and the rules by which points of a write join them."""

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import grpc
from google.api import metric_pb2
from google.cloud.monitoring_v3 import types
from google.rpc import code_pb2, status_pb2
from tests.doubles.monitoring import rules
from tests.doubles.monitoring.answers import CODES, Answer
from tests.doubles.monitoring.rules import Key, Point
from tests.doubles.monitoring.words import Fault, tell

WRITE = types.CreateTimeSeriesRequest.pb()
SUMMARY = types.CreateTimeSeriesSummary.pb()
OK = Answer(grpc.StatusCode.OK)


class Store:
    """Series and metrics, and the rules for more."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.series: dict[Key, deque[Point]] = {}
        """Stored points by series, in order; the last 10,000 points of each."""
        self.descriptors: dict[tuple[str, str], metric_pb2.MetricDescriptor] = {}
        """Metrics: (project, type) -> descriptor, made by the first write."""
        self.count: Counter[str] = Counter()
        """Number of points that were stored, and refused with each code: FAILED_PRECONDITION and so on."""
        self.clock: Callable[[], float] = time.time
        """The server's time (s since the epoch)."""
        self.min_gap = 10.0
        """Least distance of the ends of a series' points (s)."""
        self.wording = "new"
        """Form of partial refusals: new, old; see `words.tell`."""
        self.most_series = 200_000
        """Limit of series of a monitored resource."""
        self.lock = threading.RLock()
        self._at_home: Counter[tuple[Any, ...]] = Counter()

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
        return self._answer(series, faults), len(good)

    def _fault(self, place: str, key: Key, series: Any, seen: set[Key], now: int) -> Fault | None:
        metric = self.descriptors.get(key[:2])
        for fault in rules.faults_of_form(place, series, metric, now):
            return fault
        if key in seen:
            why = "Duplicate TimeSeries encountered. Only one point can be written per TimeSeries per request."
            return Fault(f"Field {place} had an invalid value: {why}")
        if metric:
            for fault in rules.faults_of_metric(place, series, metric):
                return fault
        return self._fault_of_quota(key, series, metric) or self._fault_of_series(key, series, metric)

    def _fault_of_quota(self, key: Key, series: Any, metric: metric_pb2.MetricDescriptor | None) -> Fault | None:
        known = {label.key for label in metric.labels} if metric else set()
        if len(known | {*series.metric.labels}) > 30:
            return Fault(f"The new labels would cause the metric {key.type} to have over 30 labels.")
        if key not in self.series and self._at_home[_home(key)] >= self.most_series:
            text = f"Monitored resource has too many time series ({key.type.partition('.')[0]} metrics)."
            return Fault(text, code_pb2.RESOURCE_EXHAUSTED, late=True)
        return None

    def _fault_of_series(self, key: Key, series: Any, metric: metric_pb2.MetricDescriptor | None) -> Fault | None:
        if not (points := self.series.get(key)):
            return None
        kind, point, gap = rules.kind_of(series, metric), rules.point_of(series), int(self.min_gap * 10**9)
        return rules.fault_of_order(series, kind, points[-1], point, gap)

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
        return Answer(whole, tell(series, faults, self.wording), (summary,))


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
