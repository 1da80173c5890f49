"""CloudWatch's prices, and its dashboards and alarms: the body of PutDashboard, and parameters of PutMetricAlarm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from chipwatch.contract import advice
from chipwatch.contract.errors import Refused
from chipwatch_sinks.common.advice import document, whole_minutes, widgets
from chipwatch_sinks.common.cloudwatch_prices import CloudwatchPrices

MAX_SERIES, MAX_SHOWN = 500, 2500
"""
Limits of lines of a graph or time series of a query, and of metrics of all graphs of a dashboard.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html.
"""
ALARM_PRICE: Final = 0.10
"""Dollars a month for each metric that the query of an alarm looks at: https://aws.amazon.com/cloudwatch/pricing/."""
MAX_METRICS: Final = 10_000
"""Metrics that a query looks at; of more, an alarm sees only a part: .../monitoring/alarm-limits.html."""
MAX_SCALING_GROUPS: Final = 9
"""Limit of metrics of an alarm besides its query: PutMetricAlarm."""
MAX_LOOK_BACK: Final = 180
"""Minutes that an alarm on a query may look back: .../monitoring/alarm-limits.html."""
FIRST_SEEN: Final = 15
"""
Longest time (minutes) until a query finds a new metric; its first event is then past, and newer points are 0.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricData.html, of ListMetrics.
"""
SHORT: Final = (1, 5, 10, 20, 30)
"""Periods (s) below a minute, which only metrics of high resolution have."""
FUNCTIONS: Final[Mapping[advice.Statistic | advice.Fold, str]] = {
    "mean": "AVG", "min": "MIN", "max": "MAX", "sum": "SUM", "rate": "MAX", "absent": "COUNT", "count": "METRIC_COUNT",
}  # fmt: skip
STATISTICS: Final = {"mean": ("Average",), "peaks": ("Average", "p99"), "rate": ("Sum",), "increase": ("Sum",)}
"""Counters are sent as increases, gauges with all their values."""


class CloudwatchAdvisor(CloudwatchPrices):
    """Graphs are searches, and alarms are queries of Metrics Insights: both find new machines."""

    board = advice.Board(MAX_SERIES, counts_hosts=True)

    def quotas(self, load: advice.Load) -> Iterable[advice.Quota]:
        limit, used = self.book["requests_per_second"], load.requests / advice.MONTH
        return (advice.Quota("requests/s", limit, used, "an account has in a region", shared=True),)

    def notes(self, load: advice.Load) -> Iterable[str]:
        yield from super().notes(load)
        yield "High resolution costs requests; a metric costs the same."

    def beside(self, load: advice.Load) -> Iterable[str]:
        if load.watched:
            dollars = f"{load.watched * ALARM_PRICE:,.2f} dollars a month more"
            yield f"Alarms (`dashboard --alarms`, Terraform) look at {load.watched:,} metrics: {dollars}."

    def dashboard(self, charts: Sequence[advice.Chart], scope: advice.Scope) -> Iterable[str]:
        note = "" if scope.dims_as else " ".join(self.omissions(charts))  # a template is a part of a dashboard
        drawn = [*widgets(charts, self.region, "metric", lambda chart: self._graph(chart, scope), note)]
        return document({"start": "-PT3H", "periodOverride": "inherit", "widgets": drawn})

    def omissions(self, charts: Sequence[advice.Chart]) -> Iterable[str]:
        each = sum(sent.series * len(STATISTICS[sent.drawn]) for chart in charts for sent in chart.series)
        hosts = MAX_SHOWN // each if each else 0
        fit = f"so all are shown of up to {hosts} hosts" if hosts else "so some of a single host are left out"
        yield (
            f"A graph shows the {MAX_SERIES} series with the highest values, a dashboard {MAX_SHOWN:,} metrics. A host"
            f" has {each:,} here, {fit}. The mean of the fleet is over {MAX_METRICS:,} metrics at most."
        )

    def alarms(self, alarms: Sequence[advice.Alarm], scope: advice.Scope) -> Iterable[str]:
        parts = "give each part of the fleet a separate namespace (-n) and alarms"
        if scope.hosts > MAX_SERIES:
            raise Refused(f"--hosts {scope.hosts}: an alarm watches {MAX_SERIES} hosts at most; {parts}")
        for alarm in alarms:
            if (metrics := alarm.sent.series * scope.hosts) > MAX_METRICS:
                what = f"{alarm.rule.key} would look at {metrics:,} metrics of the {MAX_METRICS:,} that an alarm may"
                raise Refused(f"--hosts {scope.hosts}: {what}; {parts}")
        return document([self._alarm(alarm, scope) for alarm in alarms])

    def _graph(self, chart: advice.Chart, scope: advice.Scope) -> dict[str, Any]:
        seconds = self._period(scope)
        lines = [(sent, statistic) for sent in chart.series for statistic in STATISTICS[sent.drawn]]
        most = (MAX_SERIES - bool(chart.gauge)) // len(lines)
        metrics = []
        for number, (sent, statistic) in enumerate(lines, 1):
            schema = ",".join([_quoted(self._config.namespace), *_keys(sent, scope)])  # a search matches exactly these
            search = f"SEARCH('{{{schema}}} MetricName={_quoted(sent.name)}', '{statistic}', {seconds})"
            if sent.drawn == "rate":
                search = f"{search} / {seconds}"
            line = {"expression": f"SLICE(SORT({search}, MAX, DESC), 0, {most})", "id": f"e{number}", "period": seconds}
            metrics.append([{**line, "label": statistic} if statistic.startswith("p") else line])
        if chart.fold:
            metrics = [[line] for line in self._groups(chart, scope, seconds)]
        elif chart.gauge:  # a widget can have one query
            fleet = {
                "expression": self._select("AVG", chart.gauge, scope),
                "id": "q1",
                "period": whole_minutes(seconds),
            }
            metrics.append([{**fleet, "label": "mean of the fleet"}])
        limits = [{"label": title, "value": value} for title, value in chart.limits]
        left = {"label": chart.label, "showUnits": False, "min": chart.bottom, "max": chart.top}
        return {
            "title": chart.title,
            "view": "singleValue" if chart.fold and not chart.by else "timeSeries",
            "stacked": False,
            "region": "",
            "period": seconds,
            "metrics": metrics,
            "yAxis": {"left": {key: value for key, value in left.items() if value is not None}},
            **({"annotations": {"horizontal": limits}} if limits else {}),
        }

    def _groups(self, chart: advice.Chart, scope: advice.Scope, seconds: int) -> Iterator[dict[str, Any]]:
        """Yield a search for all series as one, or a query for groups, and what makes a rate of its result."""
        sent, fold = chart.series[0], FUNCTIONS[chart.fold]
        name, namespace = _quoted(sent.name), _quoted(self._config.namespace)
        is_rate = sent.drawn == "rate" and chart.fold != "count"
        line: dict[str, Any] = {"id": "q1", "period": whole_minutes(seconds)}
        if chart.by:
            machine = _keys(sent._replace(dims=()), scope)
            groups = ", ".join(
                key for word in chart.by for key in (machine if word == advice.MACHINE else [_quoted(word)])
            )
            order = f"ORDER BY {fold}() {'ASC' if chart.fold == 'min' else 'DESC'} LIMIT {advice.MAX_GROUPS}"
            line["expression"] = f"SELECT {fold}({name}) FROM {namespace} GROUP BY {groups} {order}"  # noqa: S608  # of our own names
        else:
            statistic = STATISTICS[sent.drawn][0]
            search = f"SEARCH('Namespace={namespace} MetricName={name}', '{statistic}', {line['period']})"
            line |= {"expression": f"{fold}({search})", "label": chart.title}
        yield {**line, "visible": False} if is_rate else line
        if is_rate:
            yield {"id": "e1", "period": line["period"], "expression": f"q1 / {line['period']}"}

    def _period(self, scope: advice.Scope) -> int:
        """Return the seconds of one dot; raise Refused for a period that CloudWatch does not have."""
        if scope.period is not None:
            if scope.period not in SHORT and scope.period % 60:
                raise Refused(f"--period: CloudWatch has 1, 5, 10, 20, 30 and whole minutes, not {scope.period} s")
            return scope.period
        short = [short for short in SHORT if scope.window <= short] if self._config.high_resolution else []
        return short[0] if short else whole_minutes(scope.window)

    def _alarm(self, alarm: advice.Alarm, scope: advice.Scope) -> dict[str, Any]:
        """
        Return an alarm on a query of Metrics Insights, which finds new machines too.

        Absence is watched over all series together, because a series that has ended leaves the query's result with its
        state. Otherwise each host has a state, with all its devices in one value, since a query returns 500
        series at most. This needs both GROUP BY and ORDER BY:
        https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Create_Metrics_Insights_Alarm.html
        """
        rule, counts = alarm.rule, alarm.rule.per == "host"
        longer = 300 if rule.minutes >= 15 and rule.minutes % 5 == 0 else 60
        seconds = math.lcm(60, math.ceil(scope.window)) if counts else max(longer, whole_minutes(scope.window))
        periods = needed = max(1, math.ceil(rule.minutes * 60 / seconds))
        if rule.statistic == "sum":  # of the events within these minutes; once is enough
            seconds, needed = max(whole_minutes(scope.window), whole_minutes(60 * rule.minutes)), 1
            periods = math.ceil(FIRST_SEEN * 60 / seconds)
        if periods * seconds > MAX_LOOK_BACK * 60:
            raise Refused(f"--minutes: {rule.key}: an alarm of CloudWatch looks back {MAX_LOOK_BACK} minutes at most")
        threshold = alarm.threshold * (scope.window if rule.statistic == "rate" else 1)  # of the series that rose most
        metrics = [{"Id": "q1", "Expression": self._query(alarm, scope), "Period": seconds, "ReturnData": True}]
        if counts:
            each = seconds / scope.window
            threshold = each * (scope.hosts - 0.5)  # half a machine less: windows and periods differ by seconds
            metrics = _minus_groups(metrics, each, scope.groups)
        return {
            "AlarmName": alarm.name,
            "AlarmDescription": f"{rule.title}. {rule.text} Runbook: {scope.runbook(rule)}",
            "ActionsEnabled": True,
            "AlarmActions": list(scope.notify),
            "OKActions": list(scope.notify),
            "ComparisonOperator": "LessThanThreshold" if rule.below else "GreaterThanThreshold",
            "Threshold": threshold,
            "EvaluationPeriods": periods,
            "DatapointsToAlarm": needed,
            "TreatMissingData": "breaching" if rule.statistic == "absent" else "notBreaching",
            "Metrics": metrics,
        }

    def _query(self, alarm: advice.Alarm, scope: advice.Scope) -> str:
        sent, function = alarm.sent, FUNCTIONS[alarm.rule.statistic]
        where = " AND ".join(f"{_quoted(key)} != '{value}'" for key, value in alarm.rule.but)
        groups = _keys(sent._replace(dims=()), scope)
        query = f"{self._select(function, sent, scope)}{where and f' WHERE {where}'}"
        if not groups or alarm.rule.statistic == "absent":
            return query
        order = "ASC" if alarm.rule.below else "DESC"
        return f"{query} GROUP BY {', '.join(groups)} ORDER BY {function}() {order}"

    def _select(self, function: str, sent: advice.SentMetric, scope: advice.Scope) -> str:
        """Return a query of Metrics Insights over all series of a metric."""
        schema = ", ".join([_quoted(self._config.namespace), *_keys(sent, scope)])
        return f"SELECT {function}({_quoted(sent.name)}) FROM SCHEMA({schema})"  # noqa: S608  # of our own names


def _minus_groups(metrics: list[dict[str, Any]], each: float, groups: Sequence[str]) -> list[dict[str, Any]]:
    """Subtract from the points that arrived those that the groups should send: `each` per instance in service."""
    if not groups:
        return metrics
    if len(groups) > MAX_SCALING_GROUPS:
        raise Refused(f"--autoscaling-group: an alarm can have {MAX_SCALING_GROUPS} groups, not {len(groups)}")
    (query,) = metrics
    in_service = []
    for number, group in enumerate(groups, 1):
        dims = [{"Name": "AutoScalingGroupName", "Value": group}]
        metric = {"Namespace": "AWS/AutoScaling", "MetricName": "GroupInServiceInstances", "Dimensions": dims}
        stat = {"Metric": metric, "Period": query["Period"], "Stat": "Minimum"}
        in_service.append({"Id": f"m{number}", "MetricStat": stat, "ReturnData": False})
    expected = " + ".join(f"m{number}" for number in range(1, len(groups) + 1))
    watched = {"Id": "e1", "Expression": f"q1 - {each:g} * ({expected})", "ReturnData": True}
    return [{**query, "ReturnData": False}, *in_service, watched]


def _keys(sent: advice.SentMetric, scope: advice.Scope) -> list[str]:
    """Return the dimensions, quoted: the metric's own, then the machine's or their placeholder."""
    return [*map(_quoted, sent.dims), *([scope.dims_as] if scope.dims_as else map(_quoted, scope.machine))]


def _quoted(name: str) -> str:
    """Return a name in double quotes, for searches and queries; raise Refused if these cannot contain it."""
    if not {"'", '"', "\\"}.isdisjoint(name):
        raise Refused(f"CloudWatch's searches and queries cannot contain the name {name!r}: no quotes, no backslashes")
    return f'"{name}"'
