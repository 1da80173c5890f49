"""CloudWatch: the body of PutDashboard, and parameters of PutMetricAlarm."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent.commands.dashboard.alarms import Alarm, Statistic, but
from agent.commands.dashboard.charts import TAILS, Chart, is_rare
from agent.commands.dashboard.options import Wishes
from agent.commands.dashboard.sent import Found, Sent
from agent.config.convert import ConfigError
from agent.datapoint import Kind

WIDE, HIGH, PAGE = 8, 6, 24
"""Of a graph and of the page, in CloudWatch's units."""
MOST_SERIES: Final = 500
"""Lines of a graph, and time series of a query: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/
cloudwatch_limits.html."""
MOST_WIDGETS: Final = 500
"""Of a dashboard; the same source."""
LONGEST: Final = 1024
"""Characters of an alarm's description: PutMetricAlarm."""
LOOK_BACK: Final = 180
"""Minutes that an alarm on a query may look back: .../monitoring/alarm-limits.html."""
SHORT: Final = (1, 5, 10, 20, 30)
"""Periods below a minute, which only metrics of high resolution have."""
FUNCTIONS: Final[Mapping[Statistic, str]] = {
    "mean": "AVG", "min": "MIN", "max": "MAX", "sum": "SUM", "rate": "SUM", "absent": "COUNT",
}  # fmt: skip
MOST_GROUPS: Final = 9
"""Auto Scaling groups of an alarm, which takes ten metrics: PutMetricAlarm."""


def dashboard(graphs: Iterable[Chart], found: Found, wishes: Wishes) -> dict[str, Any]:
    """Return the body of PutDashboard; raise ConfigError where CloudWatch would not take it."""
    place = found.options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not place:
        raise ConfigError("region: each graph of CloudWatch names its region: give --region, or set AWS_REGION")
    widgets: list[dict[str, Any]] = []
    section, x, y = "", 0, 0
    for chart in graphs:
        if chart.section != section:
            y += HIGH if x else 0
            section, x = chart.section, 0
            text = {"markdown": f"## {section}"}
            widgets.append({"type": "text", "x": 0, "y": y, "width": PAGE, "height": 1, "properties": text})
            y += 1
        where = {"x": x, "y": y, "width": WIDE, "height": HIGH}
        widgets.append({"type": "metric", **where, "properties": _graph(chart, found, wishes, place)})
        x = (x + WIDE) % PAGE
        y += 0 if x else HIGH
    if len(widgets) > MOST_WIDGETS:
        raise ConfigError(
            f"{len(widgets)} widgets, and CloudWatch takes {MOST_WIDGETS}: choose less with --for or --level"
        )
    return {"start": "-PT3H", "periodOverride": "inherit", "widgets": widgets}


def _graph(chart: Chart, found: Found, wishes: Wishes, place: str) -> dict[str, Any]:
    seconds = period(found, wishes)
    lines = [(one, statistic) for one in chart.series for statistic in _statistics(one)]
    most = MOST_SERIES // len(lines)
    metrics = []
    for number, (one, statistic) in enumerate(lines, 1):
        search = f"SEARCH('{_schema(one, found, wishes)} MetricName={_quoted(one.name)}', '{statistic}', {seconds})"
        if one.metric.kind is Kind.COUNTER and not is_rare(one):
            search = f"{search} / {seconds}"
        line = {"expression": f"SLICE(SORT({search}, MAX, DESC), 0, {most})", "id": f"e{number}", "period": seconds}
        metrics.append([{**line, "label": statistic} if statistic.startswith("p") else line])
    left = {"label": chart.label, "showUnits": False, "min": chart.bottom, "max": chart.top}
    return {
        "title": chart.title,
        "view": "timeSeries",
        "stacked": False,
        "region": place,
        "period": seconds,
        "metrics": metrics,
        "yAxis": {"left": {key: value for key, value in left.items() if value is not None}},
    }


def _statistics(sent: Sent) -> tuple[str, ...]:
    """Return which statistics are drawn: counters come as increases, gauges with all their values."""
    if sent.metric.kind is Kind.COUNTER:
        return ("Sum",)
    return ("Average", "p99") if sent.metric.name in TAILS else ("Average",)


def period(found: Found, wishes: Wishes) -> int:
    """Return the seconds of one dot, as CloudWatch can show them; raise ConfigError for what it cannot."""
    if wishes.period is not None:
        if wishes.period not in SHORT and wishes.period % 60:
            raise ConfigError(f"--period: CloudWatch has 1, 5, 10, 20, 30 and whole minutes, not {wishes.period} s")
        return wishes.period
    if found.options.get("high_resolution"):
        for short in SHORT:
            if found.window <= short:
                return short
    return _minutes(found.window)


def _minutes(seconds: float) -> int:
    return 60 * max(1, math.ceil(seconds / 60))


# -- alarms -------------------------------------------------------------------------------------------------------


def metric_alarms(alarms: Iterable[Alarm], found: Found, wishes: Wishes) -> list[dict[str, Any]]:
    """Return the parameters of PutMetricAlarm, one for each alarm; raise ConfigError where it would not take them."""
    return [_alarm(alarm, found, wishes) for alarm in alarms]


def _alarm(alarm: Alarm, found: Found, wishes: Wishes) -> dict[str, Any]:
    """
    Return an alarm on a query of Metrics Insights: machines that come later are in it by themselves.

    Silence is watched over all series as one: a series that has ended leaves the answer, and its state goes with it.
    Otherwise each series of the answer has a state of its own, which takes both GROUP BY and ORDER BY:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Create_Metrics_Insights_Alarm.html
    """
    rule, counts = alarm.rule, alarm.rule.key == "agent-silent"
    longer = 300 if alarm.minutes >= 15 and alarm.minutes % 5 == 0 else 60
    seconds = math.lcm(60, math.ceil(found.window)) if counts else max(longer, _minutes(found.window))
    periods = max(1, math.ceil(alarm.minutes * 60 / seconds))
    if periods * seconds > LOOK_BACK * 60:
        raise ConfigError(
            f"--minutes: {rule.key}: an alarm of CloudWatch on a fleet looks back {LOOK_BACK} minutes at most"
        )
    threshold = alarm.threshold * (seconds if rule.statistic == "rate" else 1)
    metrics = [{"Id": "q1", "Expression": _query(alarm, found, wishes), "Period": seconds, "ReturnData": True}]
    if counts:
        each = seconds / found.window
        threshold = each * (wishes.hosts - 0.5)  # half a machine of slack: windows are not cut at the very second
        metrics = _without_groups(metrics, each, wishes)
    return {
        "AlarmName": alarm.name,
        "AlarmDescription": f"{rule.title}. {rule.text}"[:LONGEST],
        "ActionsEnabled": True,
        "AlarmActions": list(wishes.notify),
        "OKActions": list(wishes.notify),
        "ComparisonOperator": "LessThanThreshold" if rule.below else "GreaterThanThreshold",
        "Threshold": threshold,
        "EvaluationPeriods": periods,
        "DatapointsToAlarm": periods,
        "TreatMissingData": "breaching" if rule.statistic == "absent" else "notBreaching",
        "Metrics": metrics,
    }


def _without_groups(metrics: list[dict[str, Any]], each: float, wishes: Wishes) -> list[dict[str, Any]]:
    """Take from the points that came those that the groups owe: `each` an instance in service."""
    if not wishes.groups:
        return metrics
    if len(wishes.groups) > MOST_GROUPS:
        raise ConfigError(f"--autoscaling-group: an alarm takes {MOST_GROUPS} groups, not {len(wishes.groups)}")
    (query,) = metrics
    stated = [
        {
            "Id": f"m{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/AutoScaling",
                    "MetricName": "GroupInServiceInstances",
                    "Dimensions": [{"Name": "AutoScalingGroupName", "Value": group}],
                },
                "Period": query["Period"],
                "Stat": "Minimum",
            },
            "ReturnData": False,
        }
        for number, group in enumerate(wishes.groups, 1)
    ]
    owed = " + ".join(f"m{number}" for number in range(1, len(stated) + 1))
    watched = {"Id": "e1", "Expression": f"q1 - {each:g} * ({owed})", "ReturnData": True}
    return [{**query, "ReturnData": False}, *stated, watched]


def _query(alarm: Alarm, found: Found, wishes: Wishes) -> str:
    sent, function = alarm.sent, FUNCTIONS[alarm.rule.statistic]
    machine = [wishes.dims_as] if wishes.dims_as else [_quoted(key) for key in found.machine]
    own = [_quoted(key) for key in sent.dims]
    schema = ", ".join([_quoted(_namespace(found)), *own, *machine])
    where = " AND ".join(f"{_quoted(key)} != '{value}'" for key, value in but(alarm))
    query = f"SELECT {function}({_quoted(sent.name)}) FROM SCHEMA({schema}){where and f' WHERE {where}'}"  # noqa: S608  # of our own names
    groups = [*own, *machine]
    if not groups or alarm.rule.statistic == "absent":
        return query
    order = "ASC" if alarm.rule.below else "DESC"
    return f"{query} GROUP BY {', '.join(groups)} ORDER BY {function}() {order}"


# -- names --------------------------------------------------------------------------------------------------------


def _schema(sent: Sent, found: Found, wishes: Wishes) -> str:
    """Return namespace and all dimensions: a search finds the series that have exactly these."""
    machine = [wishes.dims_as] if wishes.dims_as else [_quoted(key) for key in found.machine]
    return f"{{{','.join([_quoted(_namespace(found)), *(_quoted(key) for key in sent.dims), *machine])}}}"


def _namespace(found: Found) -> str:
    return str(found.options.get("namespace") or "Chipwatch")


def _quoted(name: str) -> str:
    """Return a name as both languages take any: in double quotes; raise ConfigError for one that they cannot say."""
    if "'" in name or '"' in name or "\\" in name:
        raise ConfigError(f"CloudWatch's searches and queries cannot name {name!r}: no quotes, no backslashes")
    return f'"{name}"'
