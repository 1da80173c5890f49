"""Makes alarms for the metrics that are sent, by the table of rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.charts import LISTS
from chipwatch.advisor.dashboard.options import BoardOptions
from chipwatch.base.text import nearest
from chipwatch.contract.advice import Alarm, AlarmRule, Chart, SentMetric
from chipwatch.contract.datapoint import Kind
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.rules import RULES as TABLE


def _rule(signal: Mapping[str, Any], key: str, row: Mapping[str, Any]) -> AlarmRule:
    """Return the rule of an alarm; its condition reads like `mean below 5 for 60 min`, or has the signal's limit."""
    condition, _, minutes = row["condition"].partition(" for ")
    statistic, *own = condition.split()
    below, threshold = own or (signal.get("below"), signal.get("limit", 0.0))
    but = [(name, value) for name, values in row.get("but", {}).items() for value in values]
    fields = {"per": "series", **row, "key": key, "metric": signal["metric"], "statistic": statistic, "but": but}
    fields |= {"below": below in (True, "below"), "threshold": float(threshold), "minutes": float(minutes.split()[0])}
    return msgspec.convert([{**fields, "text": " ".join(row["text"])}[name] for name in AlarmRule._fields], AlarmRule)


_RULES = (_rule(one, *alarm) for one in TABLE["signals"] for alarm in one.get("alarms", {}).items())
RULES: Final = tuple(sorted(_RULES, key=lambda rule: (rule.per != "series", rule.key)))
KEYS: Final = tuple(sorted(rule.key for rule in RULES))


def alarms(sent: Sequence[SentMetric], options: BoardOptions, *, count: bool) -> tuple[list[Alarm], list[str]]:
    """
    Return the alarms, sorted by name, and notes on those left out; raise ConfigError for an unknown alarm.

    With `count`, the alarm on silent hosts counts the hosts that send.
    """
    for flag, keys in (("--threshold", options.thresholds), ("--minutes", options.minutes)):
        for key in keys:
            if key not in KEYS:
                raise ConfigError(f"{flag} {key}: no such alarm{nearest(key, KEYS)}")
    of_collectors = [{metric.name for metric in metrics} for metrics in catalogue().values()]
    wanted: list[Alarm] = []
    notes: list[str] = []
    for rule in RULES:
        if rule.per != "series":
            sign = _counted(sent, options, notes) if count and rule.per == "host" else _sign(sent)
            wanted += _about(rule, [sign] if sign else [], options)
            continue
        about = [metric for metric in sent if metric.metric.name == rule.metric and not metric.copy]
        fit = [metric for metric in about if _can_exclude(rule, metric)]
        wanted += _about(rule, fit, options)
        beside = set().union(*(names for names in of_collectors if rule.metric in names))
        if not fit and any(metric.metric.name in beside for metric in sent):
            missing = f" with the dimension {' and '.join(dict(rule.but))}" if about else ""
            notes.append(f"no alarm {rule.key}: {rule.metric} is not sent{missing}")
    return sorted(wanted, key=lambda alarm: alarm.name), notes


def with_limits(chart: Chart, options: BoardOptions) -> Chart:
    """Add the thresholds of its alarms to a graph of one gauge."""
    if (gauge := chart.gauge) is None or chart.fold in {"sum", "count"}:
        return chart
    rules = (rule for rule in RULES if rule.metric == gauge.metric.name and not rule.but)
    limits = ((rule.title, _threshold(rule, gauge, options)) for rule in rules)
    return chart._replace(limits=tuple(limits))


def _threshold(rule: AlarmRule, sent: SentMetric, options: BoardOptions) -> float:
    """Return the threshold in the unit that is sent; that of an absence is a count, without a unit."""
    factor = 1.0 if rule.statistic == "absent" else sent.factor
    return round(options.thresholds.get(rule.key, rule.threshold) * factor, 12)


def _about(rule: AlarmRule, sent: Sequence[SentMetric], options: BoardOptions) -> Iterator[Alarm]:
    """Yield an alarm for each form in which the metric is sent; its name has the dimensions that only it has."""
    rule = rule._replace(minutes=options.minutes.get(rule.key, rule.minutes))
    shared = frozenset[tuple[str, str]].intersection(*map(_marks, sent)) if sent else frozenset()
    for metric in sent:
        own = [part for mark in sorted(_marks(metric) - shared) for part in mark if part]
        name = "-".join((options.prefix, rule.key, *own))
        but = tuple(pair for pair in rule.but if pair[0] in metric.dims)
        yield Alarm(name, rule._replace(but=but), metric, _threshold(rule, metric, options))


def _marks(sent: SentMetric) -> frozenset[tuple[str, str]]:
    """Return the dimensions of a metric as it is sent: those in its name with values, others with ""."""
    return frozenset({*sent.in_name, *((key, "") for key in sent.dims)})


def _can_exclude(rule: AlarmRule, sent: SentMetric) -> bool:
    """Return True if the alarm can exclude the series of `rule.but`, or if this form does not have them."""
    in_name = dict(sent.in_name)
    return all(key in sent.dims or in_name.get(key, value) != value for key, value in rule.but)


def _sign(sent: Iterable[SentMetric]) -> SentMetric | None:
    """Return the gauge whose absence best shows that a host sends nothing; None without a gauge."""
    best = {name: place for place, name in enumerate(LISTS["signs"])}

    def rank(gauge: SentMetric) -> tuple[int, int, int, str, str]:
        name = gauge.metric.name
        return best.get(name, len(best)), gauge.metric.level, len(gauge.dims), name, gauge.name

    return min((metric for metric in sent if metric.metric.kind is Kind.GAUGE), key=rank, default=None)


def _counted(sent: Iterable[SentMetric], options: BoardOptions, notes: list[str]) -> SentMetric | None:
    """Return the counter whose points are counted to count hosts; None, with a note, if that cannot be done."""
    counters, best = {metric.metric.name: metric for metric in sent if not metric.dims}, LISTS["tallies"]
    if not (options.hosts or options.groups):
        notes.append("no alarm agent-silent: set how many machines should send: --hosts or --autoscaling-group")
        return None
    if (counter := next((counters[name] for name in best if name in counters), None)) is None:
        notes.append(f"no alarm agent-silent: {best[0]}, which counts machines, is not sent; add host to --for")
    return counter
