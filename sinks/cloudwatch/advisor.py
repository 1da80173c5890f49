"""CloudWatch's prices, and its dashboards and alarms: the body of PutDashboard, and parameters of PutMetricAlarm."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent.advice import MONTH, Alarm, Chart, Load, Quota, Scope, Sent, Statistic, Terms
from agent.errors import Refused
from sinks.common.advice import placed
from sinks.common.cloudwatch_prices import CloudwatchPrices

WIDE, HIGH = 8, 6
"""Of a graph, in CloudWatch's units."""
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
STATISTICS: Final = {"mean": ("Average",), "peaks": ("Average", "p99"), "rate": ("Sum",), "increase": ("Sum",)}
"""Counters come as increases, gauges with all their values."""
MOST_GROUPS: Final = 9
"""Auto Scaling groups of an alarm, which takes ten metrics: PutMetricAlarm."""


class CloudwatchAdvisor(CloudwatchPrices):
    """Graphs are searches, and alarms are queries of Metrics Insights: machines that come later are in both."""

    max_lines = MOST_SERIES
    counts_hosts = True

    def __init__(self, config: Any, terms: Terms) -> None:
        """Take the Config of CloudwatchSink."""
        super().__init__(config, terms)
        self._config = config

    def quotas(self, load: Load) -> Iterable[Quota]:
        """Return the requests a second."""
        limit = self.book.requests_per_second
        return (Quota("requests/s", limit, load.requests / MONTH, "an account has in a region", shared=True),)

    def notes(self) -> Iterable[str]:
        """Return those of the prices, and what high resolution costs."""
        return *super().notes(), "High resolution costs requests; a metric costs the same."

    def dashboard(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        """Return the body of PutDashboard; raise Refused where CloudWatch would not take it."""
        if not self.region:
            raise Refused("region: each graph of CloudWatch names its region: give --region, or set AWS_REGION")
        widgets: list[dict[str, Any]] = []
        for what, x, y in placed(charts, WIDE, HIGH):
            if isinstance(what, str):
                widget = {"type": "text", "x": 0, "y": y, "width": 3 * WIDE, "height": 1}
                widgets.append({**widget, "properties": {"markdown": f"## {what}"}})
            else:
                where = {"x": x, "y": y, "width": WIDE, "height": HIGH}
                widgets.append({"type": "metric", **where, "properties": self._graph(what, scope)})
        if len(widgets) > MOST_WIDGETS:
            raise Refused(
                f"{len(widgets)} widgets, and CloudWatch takes {MOST_WIDGETS}: choose less with --for or --level"
            )
        board = {"start": "-PT3H", "periodOverride": "inherit", "widgets": widgets}
        return (json.dumps(board, indent=2, ensure_ascii=False),)

    def alarms(self, alarms: Sequence[Alarm], scope: Scope) -> Iterable[str]:
        """Return the parameters of PutMetricAlarm, one for each alarm; raise Refused where it would not take them."""
        made = [self._alarm(alarm, scope) for alarm in alarms]
        return (json.dumps(made, indent=2, ensure_ascii=False),)

    def _graph(self, chart: Chart, scope: Scope) -> dict[str, Any]:
        seconds = self._period(scope)
        lines = [(one, statistic) for one in chart.series for statistic in STATISTICS[one.drawn]]
        most = MOST_SERIES // len(lines)
        metrics = []
        for number, (one, statistic) in enumerate(lines, 1):
            search = f"SEARCH('{self._schema(one, scope)} MetricName={_quoted(one.name)}', '{statistic}', {seconds})"
            if one.drawn == "rate":
                search = f"{search} / {seconds}"
            line = {"expression": f"SLICE(SORT({search}, MAX, DESC), 0, {most})", "id": f"e{number}", "period": seconds}
            metrics.append([{**line, "label": statistic} if statistic.startswith("p") else line])
        left = {"label": chart.label, "showUnits": False, "min": chart.bottom, "max": chart.top}
        return {
            "title": chart.title,
            "view": "timeSeries",
            "stacked": False,
            "region": self.region,
            "period": seconds,
            "metrics": metrics,
            "yAxis": {"left": {key: value for key, value in left.items() if value is not None}},
        }

    def _period(self, scope: Scope) -> int:
        """Return the seconds of one dot, as CloudWatch can show them; raise Refused for what it cannot."""
        if scope.period is not None:
            if scope.period not in SHORT and scope.period % 60:
                raise Refused(f"--period: CloudWatch has 1, 5, 10, 20, 30 and whole minutes, not {scope.period} s")
            return scope.period
        short = [short for short in SHORT if scope.window <= short] if self._config.high_resolution else []
        return short[0] if short else _minutes(scope.window)

    def _alarm(self, alarm: Alarm, scope: Scope) -> dict[str, Any]:
        """
        Return an alarm on a query of Metrics Insights: machines that come later are in it by themselves.

        Silence is watched over all series as one: one that has ended leaves the answer, and its state goes with it.
        Otherwise each series of the answer has a state of its own, which takes both GROUP BY and ORDER BY:
        https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Create_Metrics_Insights_Alarm.html
        """
        rule, counts = alarm.rule, alarm.rule.per == "host"
        longer = 300 if alarm.minutes >= 15 and alarm.minutes % 5 == 0 else 60
        seconds = math.lcm(60, math.ceil(scope.window)) if counts else max(longer, _minutes(scope.window))
        periods = max(1, math.ceil(alarm.minutes * 60 / seconds))
        if periods * seconds > LOOK_BACK * 60:
            raise Refused(
                f"--minutes: {rule.key}: an alarm of CloudWatch on a fleet looks back {LOOK_BACK} minutes at most"
            )
        threshold = alarm.threshold * (seconds if rule.statistic == "rate" else 1)
        metrics = [{"Id": "q1", "Expression": self._query(alarm, scope), "Period": seconds, "ReturnData": True}]
        if counts:
            each = seconds / scope.window
            threshold = each * (scope.hosts - 0.5)  # half a machine of slack: windows are not cut at the very second
            metrics = _without_groups(metrics, each, scope.groups)
        return {
            "AlarmName": alarm.name,
            "AlarmDescription": f"{rule.title}. {rule.text}"[:LONGEST],
            "ActionsEnabled": True,
            "AlarmActions": list(scope.notify),
            "OKActions": list(scope.notify),
            "ComparisonOperator": "LessThanThreshold" if rule.below else "GreaterThanThreshold",
            "Threshold": threshold,
            "EvaluationPeriods": periods,
            "DatapointsToAlarm": periods,
            "TreatMissingData": "breaching" if rule.statistic == "absent" else "notBreaching",
            "Metrics": metrics,
        }

    def _query(self, alarm: Alarm, scope: Scope) -> str:
        sent, function = alarm.sent, FUNCTIONS[alarm.rule.statistic]
        where = " AND ".join(f"{_quoted(key)} != '{value}'" for key, value in alarm.but)
        groups = _keys(sent, scope)
        schema = ", ".join([_quoted(self._config.namespace), *groups])
        query = f"SELECT {function}({_quoted(sent.name)}) FROM SCHEMA({schema}){where and f' WHERE {where}'}"  # noqa: S608  # of our own names
        if not groups or alarm.rule.statistic == "absent":
            return query
        order = "ASC" if alarm.rule.below else "DESC"
        return f"{query} GROUP BY {', '.join(groups)} ORDER BY {function}() {order}"

    def _schema(self, sent: Sent, scope: Scope) -> str:
        """Return namespace and all dimensions: a search finds the series that have exactly these."""
        return f"{{{','.join([_quoted(self._config.namespace), *_keys(sent, scope)])}}}"


def _without_groups(metrics: list[dict[str, Any]], each: float, groups: Sequence[str]) -> list[dict[str, Any]]:
    """Take from the points that came those that the groups owe: `each` an instance in service."""
    if not groups:
        return metrics
    if len(groups) > MOST_GROUPS:
        raise Refused(f"--autoscaling-group: an alarm takes {MOST_GROUPS} groups, not {len(groups)}")
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
        for number, group in enumerate(groups, 1)
    ]
    owed = " + ".join(f"m{number}" for number in range(1, len(stated) + 1))
    watched = {"Id": "e1", "Expression": f"q1 - {each:g} * ({owed})", "ReturnData": True}
    return [{**query, "ReturnData": False}, *stated, watched]


def _keys(sent: Sent, scope: Scope) -> list[str]:
    """Return the dimensions, quoted: the metric's own, then the machine's or what stands for them."""
    return [*map(_quoted, sent.dims), *([scope.dims_as] if scope.dims_as else map(_quoted, scope.machine))]


def _minutes(seconds: float) -> int:
    return 60 * max(1, math.ceil(seconds / 60))


def _quoted(name: str) -> str:
    """Return a name as both languages take any: in double quotes; raise Refused for one that they cannot say."""
    if "'" in name or '"' in name or "\\" in name:
        raise Refused(f"CloudWatch's searches and queries cannot name {name!r}: no quotes, no backslashes")
    return f'"{name}"'
