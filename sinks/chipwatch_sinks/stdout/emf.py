"""Writes points in CloudWatch's embedded metric format (EMF): each line is one log event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.errors import Refused
from chipwatch.contract.sink import Rejected
from chipwatch_sinks.common import cloudwatch_rules
from chipwatch_sinks.common.cloudwatch_rules import unit_of
from chipwatch_sinks.stdout.jsonl import SERIES

compact: Final = json.JSONEncoder(separators=(",", ":")).encode
EMF_NUMBERS: Final = 100
"""Most metrics in an event, and most values in an array: AWS, Embedded Metric Format Specification."""
EMF_BYTES: Final = 250_000
"""Most bytes of an event: CloudWatch Logs accepts 1 MB, but log forwarders may cut at 256 kB."""


def check_namespace(namespace: str) -> None:
    """Raise Refused if CloudWatch does not allow this namespace."""
    if fault := cloudwatch_rules.namespace_fault(namespace):
        raise Refused(f"CloudWatch does not allow the namespace {namespace!r}: {fault}")


def events(namespace: str, resolution: int, batch: Sequence[Datapoint], rejected: list[Rejected]) -> str:
    """Return a line for each time and set of dimensions; points that CloudWatch rejects go to `rejected`."""
    done: list[_Event] = []
    latest: dict[tuple[Dimensions, int], _Event] = {}
    for point in batch:
        name, definition, reason = _emf_series(point.metric, point.dims, resolution)
        if reason := reason or cloudwatch_rules.point_fault(point, None):
            rejected.append(Rejected(point, reason))
            continue
        key = (point.dims, point.at // 1_000_000)
        for number in _emf_numbers(point):
            event = latest.get(key)
            if event is None or not event.add(name, definition, number):
                event = latest[key] = _Event(namespace, *key)
                event.add(name, definition, number)
                done.append(event)
    return "".join([event.line() for event in done])


class _Event:
    """One log event: metrics of one time and one set of dimensions, none twice."""

    __slots__ = ("_after", "_before", "_metrics", "_size")

    def __init__(self, namespace: str, dims: Dimensions, ms: int) -> None:
        directive = f'"Namespace":{json.dumps(namespace)},"Dimensions":[{compact([*dims])}],"Metrics":['
        self._before = f'{{"_aws":{{"Timestamp":{ms},"CloudWatchMetrics":[{{{directive}'
        self._after = "]}]}" + "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in dims.items_sorted)
        self._metrics: dict[str, tuple[str, str]] = {}
        self._size = len(self._before) + len(self._after) + 2

    def add(self, name: str, definition: str, number: str) -> bool:
        """Add a metric; return False if its name is already used or the event is full."""
        size = self._size + len(name) + len(definition) + len(number) + 3
        if name in self._metrics or len(self._metrics) == EMF_NUMBERS or size > EMF_BYTES:
            return False
        self._metrics[name] = (definition, number)
        self._size = size
        return True

    def line(self) -> str:
        """Return the event as a line of JSON."""
        definitions = ",".join([definition for definition, _ in self._metrics.values()])
        numbers = "".join([f",{name}:{number}" for name, (_, number) in self._metrics.items()])
        return f"{self._before}{definitions}{self._after}{numbers}}}\n"


@lru_cache(maxsize=SERIES)
def _emf_series(metric: Metric, dims: Dimensions, resolution: int) -> tuple[str, str, str | None]:
    """Return a metric's name and its definition as JSON texts, and why CloudWatch rejects the series, or None."""
    reason = cloudwatch_rules.series_fault(metric.name, dims)
    if metric.name in dims or "_aws" in {metric.name, *dims}:
        reason = reason or "name taken"
    definition = {"Name": metric.name, "Unit": unit_of(metric.unit), "StorageResolution": resolution}
    return json.dumps(metric.name), compact(definition), reason


def series_fault(metric: Metric, dims: Dimensions) -> str | None:
    """Return why CloudWatch rejects every point of this series, or None."""
    return _emf_series(metric, dims, 60)[2]


def _emf_numbers(point: Datapoint) -> list[str]:
    """Return the numbers of a point as JSON texts, one for each event: its value, or arrays of its samples."""
    total = point.summary
    if total is None:
        return [repr(point.increase if point.metric.kind is Kind.COUNTER else point.value)]
    samples = [*chain.from_iterable(map(repeat, total.values, total.counts))]
    parts = (samples[i : i + EMF_NUMBERS] for i in range(0, len(samples), EMF_NUMBERS))
    return [compact(part) for part in parts]
