"""The alarms: the rules of alarms.toml, for the metrics that are sent."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from chipwatch.advice import Alarm, Chart, Rule, Sent
from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.charts import LISTS
from chipwatch.advisor.dashboard.options import Options
from chipwatch.config.convert import nearest
from chipwatch.datapoint import Kind
from chipwatch.errors import ConfigError


def _rule(key: str, row: Mapping[str, Any]) -> Rule:
    """Return the rule of a table of alarms.toml; its condition is such as `mean below 5 for 60 min`."""
    statistic, side, threshold, _, minutes, _ = row["condition"].split()
    fields = {"key": key, "metric": "", "per": "series", "but": (), **row, "statistic": statistic}
    fields |= {"below": side == "below", "threshold": float(threshold), "minutes": float(minutes)}
    return msgspec.convert([fields[name] for name in Rule._fields], Rule)


TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
RULES: Final = tuple(_rule(key, row) for key, row in TABLE.items())
KEYS: Final = tuple(sorted(TABLE))


def alarms(sent: Sequence[Sent], options: Options, *, count: bool) -> tuple[list[Alarm], list[str]]:
    """
    Return the alarms, sorted by name, and notes on those left out; raise ConfigError for an unknown name.

    With `count`, silent hosts are found by counting those that send.
    """
    for flag, keys in (("--threshold", options.thresholds), ("--minutes", options.minutes)):
        for key in keys:
            if key not in KEYS:
                raise ConfigError(f"{flag} {key}: no such alarm{nearest(key, KEYS)}")
    of_collectors = [{metric.name for metric in metrics} for metrics in catalogue().values()]
    made: list[Alarm] = []
    notes: list[str] = []
    for rule in RULES:
        if rule.per != "series":
            sign = _counted(sent, options, notes) if count and rule.per == "host" else _sign(sent)
            made += _about(rule, [sign] if sign else [], options)
            continue
        about = [one for one in sent if one.metric.name == rule.metric]
        fit = [one for one in about if _can_exclude(rule, one)]
        made += _about(rule, fit, options)
        beside = set().union(*(names for names in of_collectors if rule.metric in names))
        if not fit and any(one.metric.name in beside for one in sent):
            missing = f" with the dimension {' and '.join(dict(rule.but))}" if about else ""
            notes.append(f"no alarm {rule.key}: {rule.metric} is not sent{missing}")
    return sorted(made, key=lambda alarm: alarm.name), notes


def with_limits(chart: Chart, options: Options) -> Chart:
    """Return a graph of one gauge with the thresholds of its alarms."""
    if (one := chart.gauge) is None:
        return chart
    rules = (rule for rule in RULES if rule.metric == one.metric.name and not rule.but)
    limits = ((rule.title, _threshold(rule, one, options)) for rule in rules)
    return chart._replace(limits=tuple(limits))


def _threshold(rule: Rule, sent: Sent, options: Options) -> float:
    """Return the threshold in the unit that is sent; an absence is counted, and has no unit."""
    factor = 1.0 if rule.statistic == "absent" else sent.factor
    return round(options.thresholds.get(rule.key, rule.threshold) * factor, 12)


def _about(rule: Rule, sent: Sequence[Sent], options: Options) -> Iterator[Alarm]:
    """Yield an alarm for each way in which the metric is sent; the name contains what differs from the others."""
    minutes = options.minutes.get(rule.key, rule.minutes)
    shared = frozenset[tuple[str, str]].intersection(*(_marks(one) for one in sent)) if sent else frozenset()
    for one in sent:
        own = [part for mark in sorted(_marks(one) - shared) for part in mark if part]
        name = "-".join((options.prefix, rule.key, *own))
        yield Alarm(name, rule, one, _threshold(rule, one, options), minutes)


def _marks(sent: Sent) -> frozenset[tuple[str, str]]:
    """Return what may differ between two ways of sending a metric: dimensions in the name, and dimensions."""
    return frozenset({*sent.held, *((key, "") for key in sent.dims)})


def _can_exclude(rule: Rule, sent: Sent) -> bool:
    """Return whether the series in `rule.but` can be excluded, or are not sent under this name."""
    held = dict(sent.held)
    return all(key in sent.dims or held.get(key, value) != value for key, value in rule.but)


def _sign(sent: Iterable[Sent]) -> Sent | None:
    """Return the gauge whose absence shows best that nothing is sent."""
    best = {name: place for place, name in enumerate(LISTS["signs"])}

    def rank(one: Sent) -> tuple[int, int, int, str, str]:
        return best.get(one.metric.name, len(best)), one.metric.level, len(one.dims), one.metric.name, one.name

    return min((one for one in sent if one.metric.kind is Kind.GAUGE), key=rank, default=None)


def _counted(sent: Iterable[Sent], options: Options, notes: list[str]) -> Sent | None:
    """Return the counter whose points are counted to count machines."""
    counters, best = {one.metric.name: one for one in sent if not one.dims}, LISTS["tallies"]
    if not (options.hosts or options.groups):
        notes.append("no alarm agent-silent: set how many machines should send: --hosts or --autoscaling-group")
        return None
    found = next((counters[name] for name in best if name in counters), None)
    if found is None:
        notes.append(f"no alarm agent-silent: {best[0]}, which counts machines, is not sent; add host to --for")
    return found
