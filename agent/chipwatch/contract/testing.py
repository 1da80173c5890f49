"""Checks that a plugin keeps its contract, for our tests and for the tests of other people's plugins."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.errors import PartlyCollected
from chipwatch.contract.facts import Unlisted
from chipwatch.contract.plugin import Given, fault_of, hides
from chipwatch.contract.sink import Limits, Rejected, Sink, destination_of

NAME: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
_WORD: Final = r"(([kMGTmun]|[KMGT]i)?(By|bit|s|W|Wh|J|Hz|V|A|T|m|g|L|Pa)|min|h|d|Cel|K|[{][^{}\s]+[}])"
UNIT: Final = re.compile(rf"(%|1|{_WORD})(/{_WORD})?")
"""The units of UCUM that metrics of computers need, and `{thing}`; alone, or as a rate such as `By/s`."""
SCALARS: Final = (str, int, float, bool, Path)
"""Types of options that both a file and an environment variable can set."""


def check_collector(
    collector: Collector,
    *,
    ticks: int = 3,
    at: int = 1_800_000_000_000_000_000,
    earlier: Iterable[Datapoint] = (),
    given: Given = Given(),  # noqa: B008  # immutable
) -> list[Datapoint]:
    """
    Run a collector as the agent would, and assert that it keeps the contract; return the points that it yielded.

    A counter must not fall without a newer start time, nor from the points of an `earlier` run. To test a sum, take a
    member such as a disk away between two runs. A counter that was read twice must have an increase: its start time
    stays, or lies between two readings. `open` gets what the class needs of `given`. Raise AssertionError with a
    sentence, or Unavailable if there is nothing to read.
    """
    _check_contract(collector, Collector)
    collector.close()
    name = type(collector).__name__
    declared = None if collector.yields_others() else frozenset(collector.metrics)
    for metric in collector.metrics:
        _check_metric(metric)
    _check_config(getattr(collector, "Config", None))
    yielded: list[Datapoint] = []
    last = {(point.metric.name, point.dims): point for point in earlier}
    try:
        collector.open(type(collector).needs.of(given))
        for tick in range(ticks):
            now = at + tick * 1_000_000_000
            seen: set[tuple[str, Dimensions]] = set()
            with suppress(PartlyCollected):
                for point in collector.collect(now):
                    _check_point(name, point, now, declared)
                    series = (point.metric.name, point.dims)
                    assert series not in seen, f"{name} yielded {series} twice in one tick"
                    seen.add(series)
                    _check_fall(last.get(series, point), point)
                    last[series] = point
                    yielded.append(point)
            for fact in collector.facts():
                assert isinstance(fact, (*type(collector).knows, Unlisted)), (
                    f"{name} yielded the fact {fact!r:.80}, whose kind its `knows` does not list"
                )
        assert isinstance(collector.describe(), str), f"{name}.describe returns no text"
    finally:
        collector.close()
        collector.close()
    _check_increases(yielded)
    return yielded


def _check_contract(plugin: object, contract: type) -> None:
    """Assert that the class keeps the contract, and that no attribute of the object hides a part of it."""
    fault = fault_of(type(plugin), contract) or hides(plugin, contract)
    assert fault is None, f"{type(plugin).__name__} {fault}"


def _check_metric(metric: Metric) -> None:
    name = metric.name
    assert name == name.lower(), f"{name} has capitals"
    assert NAME.fullmatch(name), f"the name {name!r} is not area.thing, of a to z, 0 to 9, _ and points"
    assert UNIT.fullmatch(metric.unit), (
        f"the unit {metric.unit!r} of {name} is not a UCUM word; write {{thing}} for others"
    )
    assert metric.help.endswith("."), f"the help of {name} is not a sentence"


def _check_config(shape: Any) -> None:
    for field in dataclasses.fields(shape) if dataclasses.is_dataclass(shape) else ():
        hint = typing.get_type_hints(shape)[field.name]
        assert _is_option(hint), (
            f"Config.{field.name} is {hint}: expected str, int, float, bool or Path, perhaps `| None`, or a tuple"
        )


def _is_option(hint: Any) -> bool:
    """Return whether a file and an environment variable can set an option of this type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (tuple, Mapping):
        return True
    parts = args if origin in (typing.Union, types.UnionType) else (hint,)
    return all(part in (*SCALARS, type(None)) or typing.get_origin(part) is typing.Literal for part in parts)


def _check_point(who: str, point: Datapoint, at: int, declared: AbstractSet[Metric] | None) -> None:
    name = point.metric.name
    assert declared is None or point.metric in declared, (
        f"{who} yielded {name}, which its `metrics` does not declare so"
    )
    assert point.at == at, f"{who} stamped {name} {point.at} instead of {at}"
    assert tuple(point.dims) == tuple(sorted(point.metric.dims)), f"{name} has dimensions {tuple(point.dims)}"
    assert isinstance(point.value, int | float), f"{name} is not a number"
    assert math.isfinite(point.value), f"{name} is {point.value}: yield nothing where a value could not be read"
    if point.metric.kind is Kind.COUNTER:
        assert point.start_time is not None, f"the counter {name} does not say since when it counts"
        assert point.start_time <= at, f"the counter {name} starts after its reading"
        assert point.value >= 0, f"the counter {name} is negative"
    if point.metric.unit == "%":
        assert 0 <= point.value <= 100, f"{name} is {point.value} %"


def _check_fall(last: Datapoint, point: Datapoint) -> None:
    if point.metric.kind is Kind.COUNTER and point.value < last.value:
        assert (point.start_time or 0) > (last.start_time or 0), (
            f"the counter {point.metric.name} fell from {last.value} to {point.value} without a newer start_time"
        )


def _check_increases(points: Iterable[Datapoint]) -> None:
    readings: dict[tuple[str, Dimensions], list[Datapoint]] = {}
    for point in points:
        if point.metric.kind is Kind.COUNTER:
            readings.setdefault((point.metric.name, point.dims), []).append(point)
    for (name, _), each in readings.items():
        starts = [point.start_time for point in each]
        assert len(each) == 1 or any(map(_has_increase, each, each[1:])), (
            f"the counter {name} has no increase: its start_time is another one in each reading, {starts};"
            " keep it until the source starts again, then use the time of the last reading"
        )


def _has_increase(last: Datapoint, point: Datapoint) -> bool:
    return point.start_time == last.start_time or last.at <= (point.start_time or 0) < point.at


def check_sink(sink: Sink, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
    """Run a sink as the agent would on `batch`, and assert that it keeps the contract; return what it rejected."""
    _check_contract(sink, Sink)
    limits = getattr(sink, "limits", None)
    assert isinstance(limits, Limits), f"limits is {limits!r}: set limits = Limits(max_points=...) in the class"
    assert sink.limits.max_points > 0, "a request must hold at least one point"
    is_sized = sink.limits.max_bytes is None or type(sink).size is not Sink.size
    assert is_sized, "limits.max_bytes is set, and size is missing"
    sink.close()
    try:
        sink.open()
        assert isinstance(sink.describe(), str), "describe returns no text"
        destination_of(sink)
        assert len(batch) <= sink.limits.max_points, "the batch is above the sink's own limits"
        rejected = sink.write(batch)
        assert isinstance(rejected, Sequence), (
            f"write returned {rejected!r}: return the points that were rejected, () where all were taken"
        )
        ours = {id(point) for point in batch}
        assert all(id(r.point) in ours for r in rejected), "a rejected point is none of the batch"
        assert len({id(r.point) for r in rejected}) == len(rejected), "a point is rejected twice"
    finally:
        sink.close()
        sink.close()
    return rejected
