"""Google Cloud Monitoring's prices, and dashboards and alarms as the JSON of its Dashboard and AlertPolicy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chipwatch.contract import advice
from chipwatch.contract.errors import Refused
from chipwatch_sinks.common.advice import dated, document, placed, read_prices, tiers, whole_minutes
from chipwatch_sinks.google.rules import label_key, metric_type

WIDTH, HEIGHT = 4, 4
"""Size of a graph in columns and rows of Google's grid."""
MAX_WIDGETS: Final = 100
"""Most widgets of a dashboard: https://cloud.google.com/monitoring/quotas."""
MAX_FILTER: Final = 2048
"""Most characters of a filter: google.monitoring.v3.AlertPolicy."""
ABSENT: Final = (2, 23.5 * 60)
"""Least and most minutes of an alarm about absent data: google.monitoring.v3.AlertPolicy.Condition."""
WORDS: Final[Mapping[str, Mapping[str, str]]] = json.loads(Path(__file__).with_name("boards.json").read_bytes())
"""
Google's words: aligners of alarms and graphs, reducers of groups, and the resource label that names the machine.

A monitored resource that is not listed names the machine by instance_id.
"""
OF_FLEET: Final[Mapping[advice.Shown, tuple[str, str]]] = {
    "mean": ("mean", "REDUCE_MEAN"), "p95": ("95th percentile", "REDUCE_PERCENTILE_95"),
}  # fmt: skip
"""Statistic of a line over all series -> its word in the legend, and Google's reducer."""
AUTO_CLOSE: Final = 3600
"""Seconds without data after which Google closes an incident."""
AUTO_CLOSE_ABSENT: Final = 7 * 86400
"""The same for an alarm about absent data, which ends when data arrives: the longest that Google allows."""


class GoogleAdvisor(advice.Advisor):
    """Writes Google's prices, dashboards and alarms; a filter finds all series of a name, also later ones."""

    board = advice.Board(50, by_name=True)  # more lines in a graph cannot be read

    def __init__(self, config: Any, terms: advice.Terms) -> None:
        self._config, self._terms = config, terms
        self.book = read_prices(Path(__file__).with_name("prices.toml"))
        self.tariff = advice.Tariff(
            service=self.book["service"],
            charges_for="points",
            apart="each host writes to a separate monitored resource, whatever the dimensions are",
            ended="cost nothing, and count as active for a day",
        )

    def costs(self, load: advice.Load) -> Iterator[advice.Cost]:
        book, (first, *more) = self.book, zip((*self.book["tiers"], None), self.book["mebibytes"], strict=True)
        free = book["free_mebibytes"]
        cut = ((free, 0.0), (first[0] - free, first[1])) if self._terms.free_tier else (first,)
        mebibytes = load.points * book["bytes_per_point"] / 2**20
        yield from tiers("MiB of points", mebibytes, (*cut, *more), unit="MiB", as_of=dated(book))

    def quotas(self, load: advice.Load) -> Iterable[advice.Quota]:
        limits = self.book
        rate, requests = limits["requests_per_minute"] / 60, load.requests / advice.MONTH
        series = load.series / load.hosts
        return (
            advice.Quota("active series", limits["active_series"], series, "a monitored resource may have"),
            advice.Quota("metrics", limits["descriptors"], load.metrics, "a project may have"),
            advice.Quota("requests/s", rate, requests, "a project has by default", shared=True),
        )

    def notes(self, load: advice.Load) -> Iterable[str]:
        if (self._terms.price_per_metric, self._terms.price_per_1000_requests) != (None, None):
            yield "Google charges for bytes: --price-per-metric and --price-per-1000-requests change nothing here."
        yield (
            f"A point counts as {self.book['bytes_per_point']} bytes. A billing account's first"
            f" {self.book['free_mebibytes']} MiB a month are free; only --free-tier subtracts them. Reading the points"
            " in dashboards and alerts may cost more; that is not counted."
        )

    def dashboard(self, charts: Sequence[advice.Chart], scope: advice.Scope) -> Iterable[str]:
        tiles: list[dict[str, Any]] = []
        for what, x, y in placed(charts, WIDTH, HEIGHT, service="Google", limit=MAX_WIDGETS):
            if isinstance(what, str):
                size = {"width": 3 * WIDTH, "height": 1}
                widget: dict[str, Any] = {"text": {"content": f"## {what}", "format": "MARKDOWN"}}
            else:
                size = {"width": WIDTH, "height": HEIGHT}
                widget = {"title": what.title, "xyChart": self._graph(what, scope)}
            tiles.append({"xPos": x, "yPos": y, **size, "widget": widget})
        return document({"displayName": scope.prefix, "mosaicLayout": {"columns": 3 * WIDTH, "tiles": tiles}})

    def omissions(self, charts: Sequence[advice.Chart]) -> Iterable[str]:
        widgets = len(placed(charts, WIDTH, HEIGHT, service="Google", limit=MAX_WIDGETS))
        yield f"The dashboard has {widgets} widgets; Google allows {MAX_WIDGETS}."

    def alarms(self, alarms: Sequence[advice.Alarm], scope: advice.Scope) -> Iterable[str]:
        if scope.groups:
            raise Refused("--autoscaling-group: only CloudWatch has these groups; use --hosts")
        return document([self._policy(alarm, scope) for alarm in alarms])

    def _graph(self, chart: advice.Chart, scope: advice.Scope) -> dict[str, Any]:
        lines = [self._line(chart, shown, sent, scope) for shown, sent in chart.lines]
        axis = {"label": chart.label, "scale": "LINEAR"}
        graph = {"dataSets": lines, "yAxis": axis, "chartOptions": {"mode": "COLOR"}}
        limits = [{"label": title, "value": value} for title, value in chart.limits]
        return {**graph, "thresholds": limits} if limits else graph

    def _line(
        self, chart: advice.Chart, shown: advice.Shown, sent: advice.SentMetric, scope: advice.Scope
    ) -> dict[str, Any]:
        """Return the query for a line of a graph: its groups with the largest values, or for minima the smallest."""
        seconds = f"{whole_minutes(scope.window) if scope.period is None else scope.period}s"
        aggregation: dict[str, Any] = {"alignmentPeriod": seconds, "perSeriesAligner": WORDS["drawn"][sent.drawn]}
        query = {"filter": f'metric.type = "{metric_type(self._config.prefix, sent.name)}"', "aggregation": aggregation}
        line: dict[str, Any] = {
            "timeSeriesQuery": {"timeSeriesFilter": query}, "plotType": "LINE", "targetAxis": "Y1",
        }  # fmt: skip
        if shown in OF_FLEET:
            what, aggregation["crossSeriesReducer"] = OF_FLEET[shown]
            line["legendTemplate"] = f"fleet, {what}: {sent.name}"
        elif shown == "groups":
            aggregation["crossSeriesReducer"] = WORDS["reducers"][chart.fold]
            if chart.by:
                aggregation["groupByFields"] = [self._label(key) for key in chart.by]
                way = "BOTTOM" if chart.fold == "min" else "TOP"
                pick = {"rankingMethod": "METHOD_MEAN", "numTimeSeries": advice.MAX_GROUPS, "direction": way}
                query["pickTimeSeriesFilter"] = pick
        return {**line, "minAlignmentPeriod": seconds}

    def _label(self, key: str) -> str:
        if key == advice.MACHINE:
            return f"resource.label.{WORDS['machines'].get(self._config.resource, 'instance_id')}"
        return f"metric.label.{label_key(key)}"

    def _policy(self, alarm: advice.Alarm, scope: advice.Scope) -> dict[str, Any]:
        configured = "gce_instance" if self._config.resource == "auto" else self._config.resource
        rule, resources = alarm.rule, scope.resources or (configured,)
        hosts = scope.hosts if rule.per == "host" else 0
        if hosts and len(resources) > 1:
            raise Refused("--hosts: Google counts machines of one --resource-type only; write alarms for each type")
        conditions = [
            {"displayName": f"{rule.title} ({resource})", **self._condition(alarm, scope, resource, hosts)}
            for resource in resources
        ]
        text = f"{rule.title}. {rule.text} [Runbook]({scope.runbook(rule)})"
        policy: dict[str, Any] = {
            "displayName": alarm.name,
            "documentation": {"content": text, "mimeType": "text/markdown"},
            "userLabels": {"chipwatch-alarm": rule.key},
            "severity": rule.severity.upper(),
            "combiner": "OR",
            "conditions": conditions,
            "enabled": True,
            "alertStrategy": {"autoClose": f"{AUTO_CLOSE_ABSENT if rule.statistic == 'absent' else AUTO_CLOSE}s"},
        }
        return {**policy, "notificationChannels": list(scope.notify)} if scope.notify else policy

    def _condition(self, alarm: advice.Alarm, scope: advice.Scope, resource: str, hosts: int) -> dict[str, Any]:
        """Return a condition on each series, also later ones; with `hosts`, on the number of machines that report."""
        rule, kind = alarm.rule, metric_type(self._config.prefix, alarm.sent.name)
        parts = [f'metric.type = "{kind}"', f'resource.type = "{resource}"']
        parts += [f'metric.labels.{label_key(key)} != "{value}"' for key, value in rule.but]
        aggregation = {
            "alignmentPeriod": f"{whole_minutes(scope.window)}s",
            "perSeriesAligner": WORDS["aligners"][rule.statistic],
        }
        what = {"filter": " AND ".join(parts), "trigger": {"count": 1}, "aggregations": [aggregation]}
        duration = {"duration": f"{60 * math.ceil(0 if rule.statistic == 'sum' else rule.minutes)}s"}  # whole minutes
        if len(" AND ".join(parts)) > MAX_FILTER:
            raise Refused(f"the filter for {alarm.name} is longer than {MAX_FILTER} characters")
        if rule.statistic != "absent":
            limit = {"comparison": f"COMPARISON_{'LT' if rule.below else 'GT'}", "thresholdValue": alarm.threshold}
            return {"conditionThreshold": {**what, **limit, **duration}}
        least, most = ABSENT
        if not least <= rule.minutes <= most:
            raise Refused(f"--minutes: {rule.key}: Google waits {least} to {most:g} minutes for a metric")
        if hosts or rule.per == "fleet":
            aggregation["crossSeriesReducer"] = "REDUCE_COUNT"
        if not hosts:
            return {"conditionAbsent": {**what, **duration}}
        limit = {"comparison": "COMPARISON_LT", "thresholdValue": float(hosts)}
        missing = {"evaluationMissingData": "EVALUATION_MISSING_DATA_ACTIVE"}
        return {"conditionThreshold": {**what, **limit, **duration, **missing}}
