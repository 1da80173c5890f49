"""Google Cloud Monitoring's prices, and its dashboards and alarms: Dashboards and AlertPolicies, as JSON."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.advice import MONTH, Advisor, Alarm, Chart, Cost, Drawn, Load, Quota, Scope, Sent, Statistic, Terms
from agent.errors import Refused
from sinks.common.advice import placed, tiers
from sinks.google.rules import label_key, metric_type

WIDE, HIGH = 4, 4
"""Of a graph, in columns and rows."""
MOST_WIDGETS: Final = 100
"""Of a dashboard: https://cloud.google.com/monitoring/quotas."""
MOST_LINES: Final = 50
"""Data sets of a graph that are still of use."""
LONGEST: Final = 2048
"""Characters of a filter: google.monitoring.v3.AlertPolicy."""
ABSENT: Final = (2, 23.5 * 60)
"""Minutes for which a metric may be absent before an alarm: google.monitoring.v3.AlertPolicy.Condition."""
ALIGNERS: Final[Mapping[Statistic, str]] = {
    "mean": "ALIGN_MEAN", "min": "ALIGN_MIN", "max": "ALIGN_MAX", "sum": "ALIGN_DELTA", "rate": "ALIGN_RATE",
    "absent": "ALIGN_MEAN",
}  # fmt: skip
DRAWN: Final[Mapping[Drawn, str]] = {
    "mean": "ALIGN_MEAN", "peaks": "ALIGN_MEAN", "rate": "ALIGN_RATE", "increase": "ALIGN_DELTA",
}  # fmt: skip
OPEN: Final = 3600
"""Seconds without data after which an incident is closed."""
LONGEST_OPEN: Final = 7 * 86400
"""The same of silence, which is over when data come; Google allows no more."""
MEBIBYTE: Final = 1 << 20


class GoogleAdvisor(Advisor):
    """A filter finds every series of a name, and an absent series can be watched by itself."""

    charges_for = "points"
    apart = "each host writes to a monitored resource of its own, whatever the words"
    ended = "cost nothing, and count as active for a day"
    max_lines = MOST_LINES
    by_name = True

    def __init__(self, config: Any, terms: Terms) -> None:
        """Take the Config of GoogleSink; read the prices."""
        self._config, self._terms = config, terms
        self.book = tomllib.loads(Path(__file__).with_name("prices.toml").read_text(encoding="utf-8"))
        self.service = self.book["service"]

    def costs(self, load: Load) -> Iterator[Cost]:
        """Yield the MiB that the points count as, tier by tier; what is free is part of the first tier."""
        book, (first, *more) = self.book, zip((*self.book["tiers"], None), self.book["mebibytes"], strict=True)
        free = book["free_mebibytes"]
        cut = ((free, 0.0), (first[0] - free, first[1])) if self._terms.free_tier else (first,)
        as_of = f"{book['date']}, {book['source']}; {book['page']} has today's"
        mebibytes = load.points * book["bytes_per_point"] / MEBIBYTE
        yield from tiers("MiB of points", mebibytes, (*cut, *more), unit="MiB", as_of=as_of)

    def quotas(self, load: Load) -> Iterable[Quota]:
        """Return series of a resource, names of a project, and requests."""
        book = self.book
        return (
            Quota("active series", book["active_series"], load.series / load.hosts, "a monitored resource may have"),
            Quota("metrics", book["descriptors"], load.metrics, "a project may have"),
            Quota(
                "requests/s",
                book["requests_per_minute"] / 60,
                load.requests / MONTH,
                "a project has by default",
                shared=True,
            ),
        )

    def notes(self) -> Iterable[str]:
        """Return what a point counts as, and what is not in the bill."""
        if (self._terms.price_per_metric, self._terms.price_per_1000_requests) != (None, None):
            yield "Prices of metrics and of requests say nothing here: bytes are what is charged."
        yield (
            f"A point counts as {self.book['bytes_per_point']} bytes. A billing account's first"
            f" {self.book['free_mebibytes']} MiB a month are free, and taken off only with --free-tier. To read the"
            " points again, in dashboards and alerts, may cost too; that is not counted."
        )

    def dashboard(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        """Return a Dashboard; raise Refused where Google would not take it."""
        tiles: list[dict[str, Any]] = []
        for what, x, y in placed(charts, WIDE, HIGH):
            if isinstance(what, str):
                size = {"width": 3 * WIDE, "height": 1}
                widget: dict[str, Any] = {"text": {"content": f"## {what}", "format": "MARKDOWN"}}
            else:
                size = {"width": WIDE, "height": HIGH}
                widget = {"title": what.title, "xyChart": self._graph(what, scope)}
            tiles.append({"xPos": x, "yPos": y, **size, "widget": widget})
        if len(tiles) > MOST_WIDGETS:
            raise Refused(f"{len(tiles)} widgets, and Google takes {MOST_WIDGETS}: choose less with --for or --level")
        board = {"displayName": scope.prefix, "mosaicLayout": {"columns": 3 * WIDE, "tiles": tiles}}
        return (json.dumps(board, indent=2, ensure_ascii=False),)

    def alarms(self, alarms: Sequence[Alarm], scope: Scope) -> Iterable[str]:
        """Return an AlertPolicy for each alarm; raise Refused where Google would not take it."""
        if scope.groups:
            raise Refused("--autoscaling-group: CloudWatch alone knows these; give --hosts")
        made = [self._policy(alarm, scope) for alarm in alarms]
        return (json.dumps(made, indent=2, ensure_ascii=False),)

    def _graph(self, chart: Chart, scope: Scope) -> dict[str, Any]:
        lines = [line for one in chart.series for line in self._lines(one, scope)]
        axis = {"label": chart.label, "scale": "LINEAR"}
        return {"dataSets": lines, "yAxis": axis, "chartOptions": {"mode": "COLOR"}}

    def _lines(self, sent: Sent, scope: Scope) -> Iterable[dict[str, Any]]:
        """Yield every series of the metric, and for some the 95th percentile of the fleet."""
        seconds = _period(scope) if scope.period is None else scope.period
        each = {"alignmentPeriod": f"{seconds}s", "perSeriesAligner": DRAWN[sent.drawn]}
        reducers: tuple[dict[str, Any], ...] = ({},)
        if sent.drawn == "peaks":
            reducers = ({}, {"crossSeriesReducer": "REDUCE_PERCENTILE_95"})
        for reducer in reducers:
            query = {
                "filter": f'metric.type = "{metric_type(self._config.prefix, sent.name)}"',
                "aggregation": {**each, **reducer},
            }
            line = {"timeSeriesQuery": {"timeSeriesFilter": query}, "plotType": "LINE", "targetAxis": "Y1"}
            if reducer:
                line["legendTemplate"] = f"fleet, 95th percentile: {sent.name}"
            yield {**line, "minAlignmentPeriod": f"{seconds}s"}

    def _policy(self, alarm: Alarm, scope: Scope) -> dict[str, Any]:
        configured = "gce_instance" if self._config.resource == "auto" else self._config.resource
        rule, resources = alarm.rule, scope.resources or (configured,)
        hosts = scope.hosts if rule.per == "host" else 0
        if hosts and len(resources) > 1:
            raise Refused("--hosts: machines of several --resource-type are not counted together; make a set for each")
        conditions = [
            {"displayName": f"{rule.title} ({resource})", **self._condition(alarm, scope, resource, hosts)}
            for resource in resources
        ]
        policy: dict[str, Any] = {
            "displayName": alarm.name,
            "documentation": {"content": f"{rule.title}. {rule.text}", "mimeType": "text/markdown"},
            "userLabels": {"chipwatch-alarm": rule.key},
            "severity": rule.severity.upper(),
            "combiner": "OR",
            "conditions": conditions,
            "enabled": True,
            "alertStrategy": {"autoClose": f"{LONGEST_OPEN if rule.statistic == 'absent' else OPEN}s"},
        }
        return {**policy, "notificationChannels": list(scope.notify)} if scope.notify else policy

    def _condition(self, alarm: Alarm, scope: Scope, resource: str, hosts: int) -> dict[str, Any]:
        """Return what is watched: every series by itself, also later ones; or how many there are of `hosts`."""
        rule, kind = alarm.rule, metric_type(self._config.prefix, alarm.sent.name)
        parts = [f'metric.type = "{kind}"', f'resource.type = "{resource}"']
        parts += [f'metric.labels.{label_key(key)} != "{value}"' for key, value in alarm.but]
        aggregation = {"alignmentPeriod": f"{_period(scope)}s", "perSeriesAligner": ALIGNERS[rule.statistic]}
        what: dict[str, Any] = {"filter": " AND ".join(parts), "trigger": {"count": 1}}
        if len(what["filter"]) > LONGEST:
            raise Refused(f"the filter for {alarm.name} is longer than {LONGEST} characters")
        if rule.statistic == "absent":
            least, most = ABSENT
            if not least <= alarm.minutes <= most:
                raise Refused(f"--minutes: {rule.key}: Google waits {least} to {most:g} minutes for a metric")
            if hosts or rule.per == "fleet":
                aggregation["crossSeriesReducer"] = "REDUCE_COUNT"
            if hosts:
                return {
                    "conditionThreshold": {
                        **what,
                        "aggregations": [aggregation],
                        "comparison": "COMPARISON_LT",
                        "thresholdValue": float(hosts),
                        "duration": _wait(alarm.minutes),
                        "evaluationMissingData": "EVALUATION_MISSING_DATA_ACTIVE",
                    }
                }
            return {"conditionAbsent": {**what, "aggregations": [aggregation], "duration": _wait(alarm.minutes)}}
        wait = 0 if rule.statistic == "sum" else alarm.minutes
        return {
            "conditionThreshold": {
                **what,
                "aggregations": [aggregation],
                "comparison": "COMPARISON_LT" if rule.below else "COMPARISON_GT",
                "thresholdValue": alarm.threshold,
                "duration": _wait(wait),
            }
        }


def _period(scope: Scope) -> int:
    """Return the seconds of a window, in whole minutes."""
    return 60 * max(1, math.ceil(scope.window / 60))


def _wait(minutes: float) -> str:
    """Return whole minutes, which is what Google takes."""
    return f"{60 * math.ceil(minutes)}s"
