"""
Rules of Cloud Monitoring for one time series of a write, and the words of its refusals.

The words are the service's own where a public log shows them; where none does they are ours, marked so.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.api.metric_pb2 import MetricDescriptor
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import code_pb2
from tests.doubles.monitoring.words import Fault, iso, slashed

MS = 10**6
DAY_AND_HOUR, FIVE_MINUTES = 25 * 3_600 * 10**9, 300 * 10**9

LABELS: dict[str, tuple[str, ...]] = {
    "aws_ec2_instance": ("instance_id", "region", "aws_account"),
    "gce_instance": ("instance_id", "zone"),
    "generic_node": ("location", "namespace", "node_id"),
    "generic_task": ("location", "namespace", "job", "task_id"),
    "global": (),
    "k8s_cluster": ("location", "cluster_name"),
    "k8s_container": ("location", "cluster_name", "namespace_name", "pod_name", "container_name"),
    "k8s_node": ("location", "cluster_name", "node_name"),
    "k8s_pod": ("location", "cluster_name", "namespace_name", "pod_name"),
}
"""Monitored resources that may be written to, and their labels beside project_id."""
PREFIXES = ("custom.googleapis.com/", "external.googleapis.com/", "workload.googleapis.com/")
PLACE = re.compile(r"global|(aws:)?[a-z]+(-[a-z]+)+-?\d+(-?[a-z])?")
"""A region or a zone of Google or AWS."""

GAUGE, CUMULATIVE = MetricDescriptor.GAUGE, MetricDescriptor.CUMULATIVE
TYPES = {"int64_value": MetricDescriptor.INT64, "double_value": MetricDescriptor.DOUBLE}
"""Of the values that are written here."""


class Point(NamedTuple):
    """The stored part of a point; times in ns since the epoch."""

    start: int
    end: int
    value: Any


class Key(NamedTuple):
    """A series: empty label values are as good as none, and project_id stands in `project`."""

    project: str
    type: str
    labels: tuple[tuple[str, str], ...]
    resource: str
    resource_labels: tuple[tuple[str, str], ...]


def key_of(project: str, series: Any) -> Key:
    """Return the identity of a series."""
    labels = tuple(sorted((name, value) for name, value in series.metric.labels.items() if value))
    of_resource = tuple(sorted(item for item in series.resource.labels.items() if item[0] != "project_id"))
    return Key(project, series.metric.type, labels, series.resource.type, of_resource)


def nanoseconds(stamp: Timestamp) -> int:
    """Return a time in ns since the epoch."""
    return int(stamp.seconds) * 10**9 + int(stamp.nanos)


def kind_of(series: Any, stored: MetricDescriptor | None) -> int:
    """Return a series' kind: what it says, else what the metric is, else GAUGE."""
    return int(series.metric_kind or (stored.metric_kind if stored else GAUGE))


def point_of(series: Any) -> Point:
    """Return the one point of a series; a start that is not given is the end."""
    interval, value = series.points[0].interval, series.points[0].value
    end = nanoseconds(interval.end_time)
    start = nanoseconds(interval.start_time) if interval.HasField("start_time") else end
    return Point(start, end, getattr(value, value.WhichOneof("value")))


def faults_of_form(place: str, series: Any, stored: MetricDescriptor | None, now: int) -> Iterator[Fault]:
    """Yield what is wrong with a series by itself; `place` is its `timeSeries[n]`."""
    yield from _faults_of_metric(place, series.metric)
    yield from _faults_of_resource(place, series)
    if len(series.points) != 1:  # our words, after the service's for duplicates
        yield Fault(
            f"Field {place}.points had an invalid value: Only one point can be written per TimeSeries per request."
        )
        return
    yield from _faults_of_value(place, series, kind_of(series, stored))
    yield from _faults_of_time(place, series, kind_of(series, stored), now)


def _faults_of_metric(place: str, metric: Any) -> Iterator[Fault]:
    if not re.fullmatch(r"[a-z0-9.-]+\.[a-z]+(/[A-Za-z][A-Za-z0-9_.]*)+", metric.type):
        why = "The metric type must be a URL-formatted string with a domain and non-empty path."
        yield Fault(f'Field {place}.metric.type had an invalid value of "{metric.type}": {why}')
    elif len(metric.type) > 200:  # ours
        yield Fault(f'Field {place}.metric.type had an invalid value of "{metric.type}": The metric type is too long.')
    elif not metric.type.startswith(PREFIXES):
        yield Fault(f"Unknown metric: {metric.type}")
    for name, value in metric.labels.items():
        where = f"Field {place}.metric.labels had an invalid value of"
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            yield Fault(f'{where} "{name}": Label key contains invalid characters.')
        elif len(name) > 100:  # ours
            yield Fault(f'{where} "{name}": Label key is longer than 100 characters.')
        elif len(value) > 1024:  # ours
            yield Fault(f'{where} "{value}": Label value is longer than 1024 characters.')


def _faults_of_resource(place: str, series: Any) -> Iterator[Fault]:
    kind, labels = series.resource.type, dict(series.resource.labels)
    if kind not in LABELS:
        yield Fault(f"Unrecognized resource type: {kind}.")
        return
    labels.pop("project_id", None)
    for name in sorted(labels.keys() - {*LABELS[kind]}):
        yield Fault(f'Field {place}.resource.labels had an invalid value of "{name}": Unrecognized resource label.')
    if missing := sorted({*LABELS[kind]} - labels.keys()):
        yield Fault(f"The set of resource labels is incomplete. Missing labels: ({' '.join(missing)}).")
    for name, value in labels.items():
        if name in {"location", "zone", "region"} and not PLACE.fullmatch(value):
            yield Fault("Unrecognized region or location.")
        elif len(value) > 1024:  # ours
            where = f"Field {place}.resource.labels had an invalid value of"
            yield Fault(f'{where} "{value}": Label value is longer than 1024 characters.')


def _faults_of_value(place: str, series: Any, kind: int) -> Iterator[Fault]:
    """Yield what is wrong with kind and value; all in our words."""
    which = series.points[0].value.WhichOneof("value")
    if which not in TYPES:
        yield Fault(f"Request was missing field {place}.points[0].value, or it is of a type that is not written here.")
        return
    name = MetricDescriptor.ValueType.Name(TYPES[which])
    if kind not in {GAUGE, CUMULATIVE}:
        word = MetricDescriptor.MetricKind.Name(kind) if kind in MetricDescriptor.MetricKind.values() else kind
        yield Fault(f'Field {place}.metricKind had an invalid value of "{word}": It must be GAUGE or CUMULATIVE.')
    if series.value_type not in {0, TYPES[which]}:
        yield Fault(f"Field {place}.valueType had an invalid value: The point is of type {name}.")


def _faults_of_time(place: str, series: Any, kind: int, now: int) -> Iterator[Fault]:
    interval = series.points[0].interval
    if not interval.HasField("end_time"):
        yield Fault(f"Request was missing field {place}.points[0].interval.endTime.")
        return
    if any(not 0 <= stamp.nanos < 10**9 for stamp in (interval.start_time, interval.end_time)):  # ours
        yield Fault(f"Field {place}.points[0].interval had an invalid value: Nanoseconds must be 0 to 999999999.")
        return
    end = nanoseconds(interval.end_time)
    start = nanoseconds(interval.start_time) if interval.HasField("start_time") else end
    if (kind == GAUGE) != (start == end) or start > end:
        rule = f"equal to the end time ({iso(end)}) for the gauge metric"
        if kind != GAUGE:
            rule = f"before the end time ({iso(end)}) for the non-gauge metric"
        where = f'Field {place}.points[0].interval.start_time had an invalid value of "{iso(start)}"'
        yield Fault(f"{where}: The start time must be {rule} '{series.metric.type}'.")
    where = f'Field {place}.points[0].interval.end_time had an invalid value of "{iso(end)}"'
    if end < now - DAY_AND_HOUR:
        yield Fault(f"{where}: Data points cannot be written more than 25h10s in the past.")
    if end > now + FIVE_MINUTES:  # ours
        yield Fault(f"{where}: Data points cannot be written more than 5m in the future.")


def faults_of_metric(place: str, series: Any, stored: MetricDescriptor) -> Iterator[Fault]:
    """Yield where a series contradicts what its metric is, in kind, type, unit or description."""
    name, kind = series.metric.type, kind_of(series, stored)
    if kind != stored.metric_kind:
        was, told = MetricDescriptor.MetricKind.Name(stored.metric_kind), MetricDescriptor.MetricKind.Name(kind)
        yield Fault(f"Metric kind for metric {name} must be {was}, but is {told}.")
    value_type = TYPES[series.points[0].value.WhichOneof("value")]
    if value_type != stored.value_type:
        was, told = MetricDescriptor.ValueType.Name(stored.value_type), MetricDescriptor.ValueType.Name(value_type)
        clash = (
            f"must be {was}, but is {told}."
            if series.value_type
            else f"conflicts with the existing value type ({was})."
        )
        yield Fault(f"Value type for metric {name} {clash}")
    for field in ("unit", "description"):  # ours
        was, told = getattr(stored, field), getattr(series, field)
        if was and told and was != told:
            where = f'Field {place}.{field} had an invalid value of "{told}"'
            yield Fault(f'{where}: The {field} of metric {name} is "{was}" and cannot be changed by a write.')


def fault_of_order(series: Any, kind: int, last: Point, point: Point, gap: int) -> Fault | None:
    """Return what is wrong with a point after the last one of its series; `gap` in ns."""
    disorder = (
        "Points must be written in order. One or more of the points specified had an older start time than the most "
    )
    disorder += "recent point."
    if point.end < last.end + MS:
        return Fault(disorder, late=True)
    if kind == CUMULATIVE and point.start < last.start:
        new, old = (f"'{slashed(at)} ({at // 1000})'" for at in (point.start, last.start))
        text = f"New reset timestamp {new} must not be older than existing reset timestamp {old}."
        return Fault(text, late=True)
    if kind == CUMULATIVE and last.start < point.start < last.end + MS:
        return Fault(disorder, late=True)
    if point.end < last.end + gap:
        text = "One or more points were written more frequently than the maximum sampling period configured for the metric."
        times = f"Youngest Existing: '{slashed(last.end)}', New: '{slashed(point.end)}'"
        text += f" {{Metric: {series.metric.type}, Timestamps: {{{times}}}}}"
        return Fault(text, code_pb2.FAILED_PRECONDITION, late=True)
    return None
