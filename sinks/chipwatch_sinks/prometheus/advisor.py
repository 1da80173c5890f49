"""Counts the bytes of a scrape, and writes dashboards for Grafana and alarms for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from chipwatch.contract import advice
from chipwatch.contract.datapoint import Datapoint, Kind
from chipwatch.contract.errors import Refused
from chipwatch_sinks.common.advice import document, fold_of, placed, promql
from chipwatch_sinks.prometheus.names import Family, family_of, label_name
from chipwatch_sinks.prometheus.page import Format, Page

WIDTH, HEIGHT = 8, 8
"""Size of a graph in columns and rows of Grafana's grid, which is 24 columns wide."""
MAX_PANELS: Final = 500
MODEL: Final = Path(__file__).with_name("grafana.json").read_text(encoding="utf-8")
"""
Templates of a dashboard and a graph, and Grafana's units for Prometheus' or UCUM units and for a counter's rates.

The dashboard has the classic form of Grafana 10.4, which later versions convert:
https://grafana.com/docs/grafana/latest/visualizations/dashboards/build-dashboards/view-dashboard-json-model/. Names of
units: packages/grafana-data/src/valueFormats.
"""
OVER: Final[Mapping[advice.Statistic, str]] = {
    "mean": "avg_over_time({}[5m])", "min": "min_over_time({}[2m])", "max": "max_over_time({}[2m])",
    "rate": "rate({}[5m])", "sum": "increase({}[5m])",
}  # fmt: skip
"""Statistic -> PromQL over five minutes, which hold enough samples at Prometheus' default of one a minute."""
DRAWN: Final[Mapping[advice.Drawn, str]] = {
    "rate": "rate({}[$__rate_interval])", "increase": "increase({}[$__interval])",
}  # fmt: skip
OF_ALL: Final[Mapping[advice.Shown, str]] = {"mean": "mean of all", "p95": "95th percentile of all"}
JOINED: Final = "joined:"
"""Start of a recorded series that has the values of both names of a metric."""
FORGOTTEN: Final = "6h"
"""Time for which a machine counts as missing after it has stopped being a target."""


def grafana_dashboard(charts: Sequence[advice.Chart], scope: advice.Scope) -> tuple[str]:
    """Return a dashboard in Grafana's classic form; its variables choose the data source and the machines."""
    asides = {chart.section for chart in charts if chart.aside}
    panels: list[dict[str, Any]] = []
    row = panels
    for number, (what, x, y) in enumerate(placed(charts, WIDTH, HEIGHT, service="this dashboard", limit=MAX_PANELS), 1):
        place = {"id": number, "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT}}
        if isinstance(what, str):
            place["gridPos"] = {"x": 0, "y": y, "w": 24, "h": 1}
            panels.append({**place, "type": "row", "title": what, "collapsed": what in asides, "panels": []})
            row = panels[-1]["panels"] if what in asides else panels
        else:
            row.append({**place, **_panel(what, scope)})
    model = json.loads(MODEL.replace("{every}", _family(charts[0].series[0]).name if charts else "up"))
    if any(sent.former for chart in charts for sent in chart.series):
        model["dashboard"]["templating"]["list"].append(model["names"])
    return document({**model["dashboard"], "title": scope.prefix, "panels": panels})


def _panel(chart: advice.Chart, scope: advice.Scope) -> dict[str, Any]:
    first = chart.series[0]
    family, drawn = _family(first), first.drawn
    model = json.loads(MODEL)
    unit = "" if chart.fold == "count" else model["units"].get(family.unit or first.unit, "")
    unit = model["rates"].get(unit, "") if drawn == "rate" else unit
    axis: dict[str, Any] = {} if chart.top is None else {"max": _scaled(chart.top, family)}
    axis |= {} if chart.bottom is None else {"min": chart.bottom}
    axis["custom"] = {"drawStyle": "bars" if drawn == "increase" else "line", "axisLabel": "" if unit else chart.label}
    if chart.limits:
        axis["custom"]["thresholdsStyle"] = {"mode": "dashed"}
        steps = sorted(_scaled(value, family) for _, value in chart.limits)
        axis["thresholds"] = {"mode": "absolute", "steps": [
            {"color": "transparent", "value": None}, *({"color": "red", "value": step} for step in steps),
        ]}  # fmt: skip
    if drawn == "rate" and unit == "s":  # device-seconds in each second
        unit = ""
    return {
        **model["stat" if chart.fold and not chart.by else "panel"],
        "title": chart.title,
        "interval": f"{scope.period or 60}s",
        "targets": [{"refId": f"Q{n}", **_line(chart, *line)} for n, line in enumerate(chart.lines, 1)],
        "fieldConfig": {"defaults": {**({"unit": unit} if unit else {}), **axis}, "overrides": []},
    }


def _line(chart: advice.Chart, shown: advice.Shown, sent: advice.SentMetric) -> dict[str, Any]:
    """Return the query of a line of a graph, and the line's legend."""
    keys, selected = _keys(chart), 'instance=~"$instance"'
    series = f"{_family(sent).name}{{{selected}}}"
    if sent.former:  # "()" for names as they are, or JOINED
        series = f'{{__name__=~"${{names}}{_family(sent).name}",{selected}}}'
    if shown == "groups":
        legend = " ".join(f"{{{{{key}}}}}" for key in keys) or chart.title
    else:
        who = OF_ALL.get(shown) or _who(sent, "{{{{{}}}}}")
        legend = f"{sent.name} {who}" if len(chart.series) > 1 else who
    return {"expr": promql(chart, shown, sent, series, keys, drawn=DRAWN), "legendFormat": legend}


def _keys(chart: advice.Chart) -> list[str]:
    return ["instance" if key == advice.MACHINE else _label(key) for key in chart.by]


def recording_rules(charts: Sequence[advice.Chart], scope: advice.Scope) -> tuple[str]:
    """Return a file of recording rules, each of which makes a series for each group: level:metric:operations."""
    rules: dict[str, str] = {}
    for chart in charts:
        rules |= {f"{JOINED}{_family(sent).name}": _join(sent, sent.former) for sent in chart.series if sent.former}
    for chart in (chart for chart in charts if chart.fold):
        family, keys, fold = _family(chart.series[0]), _keys(chart), fold_of(chart)
        name = f"{JOINED if chart.series[0].former else ''}{family.name}"
        grouped = f"{fold} by ({', '.join(keys)})" if keys else fold
        what = f"{'_'.join(keys) or 'fleet'}:{family.base}:{fold}"
        if family.kind is Kind.COUNTER and fold != "count":
            rules[f"{what}_rate5m"] = f"{grouped} (rate({name}[5m]))"
        else:
            rules[what] = f"{grouped} ({name})"
    group = [{"record": name, "expr": expression} for name, expression in rules.items()]
    return document({"groups": [{"name": f"{scope.prefix}-records", "rules": group}]})


def _join(sent: advice.SentMetric, former: advice.Former) -> str:
    """Return PromQL for the series under either name, in the unit of the later one, without the labels that moved."""
    old = _family(sent._replace(name=former.name, unit=former.unit))
    new = _family(sent)
    factor = sent.factor * new.times / new.over / (former.factor * old.times / old.over)
    scale = f" * {_number(factor)}" if factor > 1 else f" / {_number(1 / factor)}" if factor < 1 else ""
    without = f"max without ({', '.join(map(_label, former.moved))}) "
    return f"{without}({new.name}) or {without}({old.name}){scale}"


def alarm_rules(alarms: Sequence[advice.Alarm], scope: advice.Scope) -> tuple[str]:
    """Return a file of alerting rules as JSON, which is YAML too; raise Refused for options that only clouds have."""
    flags = {"--autoscaling-group": scope.groups, "--notify": scope.notify, "--resource-type": scope.resources}
    for flag in (flag for flag, given in flags.items() if given):
        raise Refused(f"{flag}: Prometheus' rules have no such thing; Alertmanager decides by labels who is notified")
    return document({"groups": [{"name": scope.prefix, "rules": [_rule(alarm, scope) for alarm in alarms]}]})


def _rule(alarm: advice.Alarm, scope: advice.Scope) -> dict[str, Any]:
    rule, sent = alarm.rule, alarm.sent
    is_of_all = rule.per == "fleet" or (rule.per == "host" and scope.hosts)
    who = "" if is_of_all else f": {_who(sent, '{{{{ $labels.{} }}}}')}"
    return {
        "alert": alarm.name,
        "expr": _condition(alarm, scope),
        "for": f"{0 if rule.statistic == 'sum' else round(60 * rule.minutes)}s",
        "labels": {"severity": rule.severity, "chipwatch_alarm": rule.key},
        "annotations": {"summary": f"{rule.title}{who}", "description": rule.text, "runbook_url": scope.runbook(rule)},
    }


def _condition(alarm: advice.Alarm, scope: advice.Scope) -> str:
    """Return the PromQL expression that holds while something is wrong."""
    rule, family = alarm.rule, _family(alarm.sent)
    matchers = ",".join([f'{label_name(key)}!="{value}"' for key, value in rule.but])
    series = f"{family.name}{matchers and f'{{{matchers}}}'}"
    if rule.statistic != "absent":
        limit = f"{'<' if rule.below else '>'} {_number(_scaled(alarm.threshold, family))}"
        condition = f"{OVER[rule.statistic].format(series)} {limit}"
        # Prometheus sees no increase in a counter whose first value already counts an error, as none came before.
        return f"{condition} or ({series} {limit} unless {series} offset 5m)" if rule.statistic == "sum" else condition
    if rule.per == "fleet":
        return f"absent({series})"
    if scope.hosts:
        return f"(count(count by (job, instance) ({series})) or vector(0)) < {scope.hosts}"
    each = "count by (job, instance) ({})"
    silent = f"{each.format(f'last_over_time({series}[{FORGOTTEN}])')} unless {each.format(series)}"
    # The alert lasts while Prometheus has the machine as a target, but cannot reach it.
    told = each.format(f"ALERTS{{alertname={json.dumps(alarm.name)}}}")
    return f"({silent}) or ({told} and on (job, instance) up == 0)"


def _family(sent: advice.SentMetric) -> Family:
    return family_of(replace(sent.metric, name=sent.name, unit=sent.unit))


def _scaled(value: float, family: Family) -> float:
    """Return a value, converted to the page's unit."""
    return round(value * family.times / family.over, 12)


def _number(value: float) -> str:
    return repr(int(value) if value == int(value) else value)


def _who(sent: advice.SentMetric, label: str) -> str:
    """Return a text that names a series by its labels; `label` is the form of one."""
    return " ".join([label.format("instance"), *(f"{key} {label.format(_label(key))}" for key in sent.dims)])


def _label(key: str) -> str:
    """Return the label for a key; Prometheus renames our label `job`, since each target has one."""
    return "exported_job" if key == "job" else label_name(key)


class PrometheusAdvisor(advice.Advisor):
    """Advises on the page: bytes of a scrape, dashboards and alarms; a query finds all series of a name."""

    board = advice.Board(50, program="grafana", by_name=True)  # more lines in a graph cannot be read

    def __init__(self, config: Any, terms: advice.Terms) -> None:
        self._config = config

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        page = Page(machine_labels=self._config.machine_labels, timestamps=self._config.timestamps)
        page.take(window)
        return len(page.body(Format.TEXT, zipped=False))

    def costs(self, load: advice.Load) -> Iterable[advice.Cost]:
        return ()  # the scraper's owner pays for the samples that it stores

    def notes(self, load: advice.Load) -> Iterable[str]:
        yield (
            "A scrape has the bytes of one tick, about a tenth of them with gzip. Prometheus stores a sample of each"
            " series for each scrape: its scrape_interval decides, not the interval of the agent."
        )

    dashboard = staticmethod(grafana_dashboard)
    alarms = staticmethod(alarm_rules)
    records = staticmethod(recording_rules)
