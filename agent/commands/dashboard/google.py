"""Google Cloud Monitoring: a Dashboard of the Dashboards API, and AlertPolicies of the Monitoring API, as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from agent.commands.dashboard.alarms import Alarm, Statistic, but
from agent.commands.dashboard.charts import TAILS, Chart, is_rare
from agent.commands.dashboard.options import Wishes
from agent.commands.dashboard.sent import Found, Sent
from agent.config.convert import ConfigError
from agent.datapoint import Kind

WIDE, HIGH, PAGE = 4, 4, 12
"""Of a graph and of the page, in columns and rows."""
MOST_WIDGETS: Final = 100
"""Of a dashboard: https://cloud.google.com/monitoring/quotas."""
MOST_LINES: Final = 50
"""Data sets of a graph that are still of use."""
LONGEST: Final = 2048
"""Characters of a filter: google.monitoring.v3.AlertPolicy."""
PREFIX: Final = "custom.googleapis.com/chipwatch/"
"""What the sink puts before a metric's name unless told otherwise."""
ABSENT: Final = (2, 23.5 * 60)
"""Minutes for which a metric may be absent before an alarm: google.monitoring.v3.AlertPolicy.Condition."""
ALIGNERS: Final[Mapping[Statistic, str]] = {
    "mean": "ALIGN_MEAN", "min": "ALIGN_MIN", "max": "ALIGN_MAX", "sum": "ALIGN_DELTA", "rate": "ALIGN_RATE",
    "absent": "ALIGN_MEAN",
}  # fmt: skip
OPEN: Final = 3600
"""Seconds without data after which an incident is closed."""
LONGEST_OPEN: Final = 7 * 86400
"""The same of silence, which is over when data come; Google allows no more."""


def by_name(found: Found) -> Found:
    """Return each name once, with the dimensions of all ways to send it: a filter finds every series of a name."""
    once: dict[tuple[str, str], Sent] = {}
    for one in found.sent:
        first = once.setdefault((one.metric.name, one.name), one)
        dims = tuple(sorted({*first.dims, *one.dims}))
        held = tuple(pair for pair in first.held if pair in one.held)
        once[one.metric.name, one.name] = first._replace(dims=dims, held=held)
    return found._replace(sent=tuple(once.values()))


def dashboard(graphs: Iterable[Chart], found: Found, wishes: Wishes) -> dict[str, Any]:
    """Return a Dashboard; raise ConfigError where Google would not take it."""
    tiles: list[dict[str, Any]] = []
    section, x, y = "", 0, 0
    for chart in graphs:
        if chart.section != section:
            y += HIGH if x else 0
            section, x = chart.section, 0
            text = {"content": f"## {section}", "format": "MARKDOWN"}
            tiles.append({"xPos": 0, "yPos": y, "width": PAGE, "height": 1, "widget": {"text": text}})
            y += 1
        widget = {"title": chart.title, "xyChart": _graph(chart, found, wishes)}
        tiles.append({"xPos": x, "yPos": y, "width": WIDE, "height": HIGH, "widget": widget})
        x = (x + WIDE) % PAGE
        y += 0 if x else HIGH
    if len(tiles) > MOST_WIDGETS:
        raise ConfigError(f"{len(tiles)} widgets, and Google takes {MOST_WIDGETS}: choose less with --for or --level")
    return {"displayName": wishes.prefix, "mosaicLayout": {"columns": PAGE, "tiles": tiles}}


def _graph(chart: Chart, found: Found, wishes: Wishes) -> dict[str, Any]:
    lines = [line for one in chart.series for line in _lines(one, found, wishes)]
    axis = {"label": chart.label, "scale": "LINEAR"}
    return {"dataSets": lines, "yAxis": axis, "chartOptions": {"mode": "COLOR"}}


def _lines(sent: Sent, found: Found, wishes: Wishes) -> Iterable[dict[str, Any]]:
    """Yield every series of the metric, and for some the 95th percentile of the fleet."""
    aligner = "ALIGN_RATE" if sent.metric.kind is Kind.COUNTER else "ALIGN_MEAN"
    aligner = "ALIGN_DELTA" if is_rare(sent) else aligner
    seconds = _period(found, wishes)
    each = {"alignmentPeriod": f"{seconds}s", "perSeriesAligner": aligner}
    reducers: tuple[dict[str, Any], ...] = ({},)
    if sent.metric.name in TAILS:
        reducers = ({}, {"crossSeriesReducer": "REDUCE_PERCENTILE_95"})
    for reducer in reducers:
        query = {"filter": f'metric.type = "{metric_type(found, sent.name)}"', "aggregation": {**each, **reducer}}
        line = {"timeSeriesQuery": {"timeSeriesFilter": query}, "plotType": "LINE", "targetAxis": "Y1"}
        if reducer:
            line["legendTemplate"] = f"fleet, 95th percentile: {sent.name}"
        yield {**line, "minAlignmentPeriod": f"{seconds}s"}


def _period(found: Found, wishes: Wishes) -> int:
    return wishes.period if wishes.period is not None else 60 * max(1, math.ceil(found.window / 60))


# -- alarms -------------------------------------------------------------------------------------------------------


def alert_policies(alarms: Iterable[Alarm], found: Found, wishes: Wishes) -> list[dict[str, Any]]:
    """Return an AlertPolicy for each alarm; raise ConfigError where Google would not take it."""
    if wishes.groups:
        raise ConfigError("--autoscaling-group: CloudWatch alone knows these; give --hosts")
    return [_policy(alarm, found, wishes) for alarm in alarms]


def _policy(alarm: Alarm, found: Found, wishes: Wishes) -> dict[str, Any]:
    rule, resources = alarm.rule, wishes.resources or (_resource(found),)
    hosts = wishes.hosts if rule.key == "agent-silent" else 0
    if hosts and len(resources) > 1:
        raise ConfigError("--hosts: machines of several --resource-type are not counted together; make a set for each")
    conditions = [
        {"displayName": f"{rule.title} ({resource})", **_condition(alarm, found, resource, hosts)}
        for resource in resources
    ]
    policy: dict[str, Any] = {
        "displayName": alarm.name,
        "documentation": {"content": f"{rule.title}. {rule.text}", "mimeType": "text/markdown"},
        "userLabels": {"chipwatch-alarm": rule.key},
        "severity": "CRITICAL" if rule.severe else "WARNING",
        "combiner": "OR",
        "conditions": conditions,
        "enabled": True,
        "alertStrategy": {"autoClose": f"{LONGEST_OPEN if rule.statistic == 'absent' else OPEN}s"},
    }
    return {**policy, "notificationChannels": list(wishes.notify)} if wishes.notify else policy


def _resource(found: Found) -> str:
    """Return the monitored resource that is configured; `auto` is most often a machine of Compute Engine."""
    wanted = str(found.options.get("resource") or "auto")
    return "gce_instance" if wanted == "auto" else wanted


def _condition(alarm: Alarm, found: Found, resource: str, hosts: int) -> dict[str, Any]:
    """Return what is watched: every series by itself, also those that come later; or how many there are of `hosts`."""
    rule, seconds = alarm.rule, 60 * max(1, math.ceil(found.window / 60))
    kind = metric_type(found, alarm.sent.name)
    parts = [f'metric.type = "{kind}"', f'resource.type = "{resource}"']
    parts += [f'metric.labels.{label_key(key)} != "{value}"' for key, value in but(alarm)]
    aggregation = {"alignmentPeriod": f"{seconds}s", "perSeriesAligner": ALIGNERS[rule.statistic]}
    what: dict[str, Any] = {"filter": " AND ".join(parts), "trigger": {"count": 1}}
    if len(what["filter"]) > LONGEST:
        raise ConfigError(f"the filter for {alarm.name} is longer than {LONGEST} characters")
    if rule.statistic == "absent":
        least, most = ABSENT
        if not least <= alarm.minutes <= most:
            raise ConfigError(f"--minutes: {rule.key}: Google waits {least} to {most:g} minutes for a metric")
        if hosts or rule.key == "fleet-silent":
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


def _wait(minutes: float) -> str:
    """Return whole minutes, which is what Google takes."""
    return f"{60 * math.ceil(minutes)}s"


# -- names, as the sink makes them --------------------------------------------------------------------------------


def metric_type(found: Found, name: str) -> str:
    """Return the metric's type: dots become slashes, what is not allowed an underscore."""
    prefix = str(found.options.get("prefix") or PREFIX)
    return prefix + "/".join(label_key(part) for part in re.split(r"[./]+", name.strip("./")))


def label_key(key: str) -> str:
    """Return a dimension's key as a label's."""
    return re.sub(r"^(?![A-Za-z])", "key_", re.sub(r"[^A-Za-z0-9_]", "_", key))
