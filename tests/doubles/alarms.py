"""
The state that CloudWatch gives to an alarm, by what its user guide says; nothing that runs here evaluates alarms.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html: states, the evaluation range, missing
data, premature transitions, and missing data of Metrics Insights; .../alarm-limits.html: a query sees three hours.
The guide does not say how many datapoints beyond the evaluation periods are looked at; its examples have 2.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from tests.agent.advisor.dashboard.strict import query

LOOK_BACK = 3 * 3600
"""Seconds before an evaluation from which a query takes series."""
EXTRA = 2
"""Datapoints of the evaluation range beyond the evaluation periods, in the guide's examples."""
MATH = re.compile(r"(\w+) - ([\d.]+) \* \((\w+(?: \+ \w+)*)\)")
_at = attrgetter("at")
OK, ALARM, UNKNOWN = "OK", "ALARM", "INSUFFICIENT_DATA"


class Stored(NamedTuple):
    """Values that CloudWatch stores of one metric for a minute or less."""

    at: float
    """Seconds since the epoch, of its begin."""
    namespace: str
    name: str
    dims: Mapping[str, str]
    count: float
    sum: float
    minimum: float
    maximum: float


def state_of(alarm: Mapping[str, Any], stored: Sequence[Stored], at: float, before: str) -> str:
    """Return the state of an alarm, as PutMetricAlarm takes it, at a moment (s since the epoch); `stored` is in order."""
    period = next(_period(one) for one in alarm["Metrics"] if _period(one))
    reach = range(alarm["EvaluationPeriods"] + EXTRA, 0, -1)
    starts = [at // period * period - n * period for n in reach]
    recent = stored[bisect_left(stored, at - LOOK_BACK, key=_at) : bisect_left(stored, at, key=_at)]
    series = _series(alarm["Metrics"], recent, period)
    if not any("GROUP BY" in one.get("Expression", "") for one in alarm["Metrics"]):
        ((_, values),) = series.items() or [((), {})]
        return evaluate(alarm, [values.get(start) for start in starts], before)
    states = {evaluate(alarm, [values.get(start) for start in starts], before) for values in series.values()}
    return ALARM if ALARM in states else OK if states else UNKNOWN


def evaluate(alarm: Mapping[str, Any], values: Sequence[float | None], before: str) -> str:
    """Return the state by the datapoints of the evaluation range, the oldest first; None is a missing one."""
    periods, wanted, missing = (alarm[key] for key in ("EvaluationPeriods", "DatapointsToAlarm", "TreatMissingData"))
    real = [_breaches(alarm, value) for value in values if value is not None]
    if len(real) >= periods:
        return ALARM if sum(real[-periods:]) >= wanted else OK
    filled = (periods - len(real)) * (missing == "breaching")
    if sum(real) + filled >= wanted:
        return ALARM
    if missing in {"breaching", "notBreaching"}:
        return OK
    if not real:
        return UNKNOWN if missing == "missing" else before
    if not all(real):
        return OK
    oldest = next(n for n, value in enumerate(values) if value is not None)
    return ALARM if missing == "missing" and len(values) - oldest >= wanted else before


def _breaches(alarm: Mapping[str, Any], value: float) -> bool:
    return {
        "LessThanThreshold": value < alarm["Threshold"],
        "GreaterThanThreshold": value > alarm["Threshold"],
    }[alarm["ComparisonOperator"]]


def _series(metrics: Sequence[Mapping[str, Any]], stored: Sequence[Stored], period: int) -> dict[tuple[str, ...], dict]:
    """Return the values of what an alarm watches, by series and start of the period."""
    found = {one["Id"]: _values(one, stored, period) for one in metrics if "MetricStat" in one or _selects(one)}
    (watched,) = (one for one in metrics if one["ReturnData"])
    if watched["Id"] in found:
        return found[watched["Id"]]
    first, factor, others = MATH.fullmatch(watched["Expression"]).groups()
    parts = [found[name].get((), {}) for name in (first, *others.split(" + "))]
    starts = set(parts[0]).intersection(*parts[1:])  # where one part has no value, there is none of the whole
    return {(): {start: parts[0][start] - float(factor) * sum(part[start] for part in parts[1:]) for start in starts}}


def _values(one: Mapping[str, Any], stored: Sequence[Stored], period: int) -> dict[tuple[str, ...], dict[float, float]]:
    if "MetricStat" in one:
        metric = one["MetricStat"]["Metric"]
        namespace, name, groups, excluded = metric["Namespace"], metric["MetricName"], (), set()
        dims, function = (
            tuple(sorted(dim["Name"] for dim in metric["Dimensions"])),
            {"Minimum": "MIN"}[one["MetricStat"]["Stat"]],
        )
    else:
        namespace, name, dims, function, groups, excluded = query(one["Expression"])
    found: dict[tuple[str, ...], dict[float, list[Stored]]] = defaultdict(lambda: defaultdict(list))
    for point in stored:
        fits = (point.namespace, point.name, tuple(sorted(point.dims))) == (namespace, name, dims)
        if fits and not excluded & point.dims.items():
            found[tuple(point.dims[key] for key in groups)][point.at // period * period].append(point)
    return {
        group: {start: _statistic(function, points) for start, points in by_start.items()}
        for group, by_start in found.items()
    }


def _statistic(function: str, points: Sequence[Stored]) -> float:
    count, total = sum(one.count for one in points), sum(one.sum for one in points)
    return {
        "COUNT": count, "SUM": total, "AVG": total / count,
        "MIN": min(one.minimum for one in points), "MAX": max(one.maximum for one in points),
    }[function]  # fmt: skip


def _selects(one: Mapping[str, Any]) -> bool:
    return one.get("Expression", "").startswith("SELECT ")


def _period(one: Mapping[str, Any]) -> int | None:
    return one.get("Period") or one.get("MetricStat", {}).get("Period")
