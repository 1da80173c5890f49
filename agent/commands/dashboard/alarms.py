"""Which alarms there are: the rules of alarms.toml, about the metrics that are sent."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.advice import Alarm, Rule, Sent
from agent.commands.dashboard.charts import LISTS
from agent.commands.dashboard.options import Options
from agent.config.convert import nearest
from agent.datapoint import Kind
from agent.errors import ConfigError


def _rule(key: str, row: Mapping[str, Any]) -> Rule:
    """Return a row of the table; its condition reads `mean below 5 for 60 min`."""
    statistic, side, threshold, _, minutes, _ = row["condition"].split()
    given = {"metric": "", "per": "series", "but": (), **row}
    condition = {"statistic": statistic, "below": side == "below", "threshold": float(threshold)}
    fields = {"key": key, "minutes": float(minutes), **condition, **given}
    return msgspec.convert([fields[name] for name in Rule._fields], Rule)


TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
RULES: Final = tuple(_rule(key, row) for key, row in TABLE.items())
KEYS: Final = tuple(sorted(TABLE))


def alarms(sent: Sequence[Sent], options: Options, *, count: bool) -> tuple[list[Alarm], list[str]]:
    """
    Return the alarms, sorted by name, and which ones are left out; raise ConfigError for an unknown name.

    With `count`, silent hosts are found by counting the others.
    """
    for flag, keys in (("--threshold", options.thresholds), ("--minutes", options.minutes)):
        for key in keys:
            if key not in KEYS:
                raise ConfigError(f"{flag} {key}: no such alarm{nearest(key, KEYS)}")
    made: list[Alarm] = []
    notes: list[str] = []
    for rule in RULES:
        if rule.per != "series":
            sign = _tally(sent, options, notes) if count and rule.per == "host" else _sign(sent)
            made += _about(rule, [sign] if sign else [], options)
            continue
        about = [one for one in sent if one.metric.name == rule.metric]
        fit = [one for one in about if _can_tell(rule, one)]
        made += _about(rule, fit, options)
        family = rule.metric.partition(".")[0]
        if not fit and any(one.metric.name.startswith(f"{family}.") for one in sent):
            notes.append(f"no alarm {rule.key}: {rule.metric} is not sent{' so that it can be told' if about else ''}")
    return sorted(made, key=lambda alarm: alarm.name), notes


def _about(rule: Rule, sent: Sequence[Sent], options: Options) -> Iterator[Alarm]:
    """Yield an alarm for each way in which the metric is sent, under a name that says what is its own."""
    threshold = options.thresholds.get(rule.key, rule.threshold)
    minutes = options.minutes.get(rule.key, rule.minutes)
    shared = frozenset[tuple[str, str]].intersection(*(_marks(one) for one in sent)) if sent else frozenset()
    for one in sent:
        own = [part for mark in sorted(_marks(one) - shared) for part in mark if part]
        name = "-".join((options.prefix, rule.key, *own))
        factor = 1.0 if rule.statistic == "absent" else one.factor
        yield Alarm(name, rule, one, round(threshold * factor, 12), minutes)


def _marks(sent: Sent) -> frozenset[tuple[str, str]]:
    """Return what may tell one way of sending a metric from another: what the name holds, and the dimensions."""
    return frozenset({*sent.held, *((key, "") for key in sent.dims)})


def _can_tell(rule: Rule, sent: Sent) -> bool:
    """Tell whether series that are of no interest can be told from the others, and this name holds none of them."""
    return all(
        key in sent.dims or (key in dict(sent.held) and (key, value) not in sent.held) for key, value in rule.but
    )


def _sign(sent: Iterable[Sent]) -> Sent | None:
    gauges = [one for one in sent if one.metric.kind is Kind.GAUGE]
    best = {name: place for place, name in enumerate(LISTS["signs"])}
    return min(
        gauges,
        key=lambda one: (
            best.get(one.metric.name, len(best)),
            one.metric.level,
            len(one.dims),
            one.metric.name,
            one.name,
        ),
        default=None,
    )


def _tally(sent: Iterable[Sent], options: Options, notes: list[str]) -> Sent | None:
    each, tallies = {one.metric.name: one for one in sent if not one.dims}, LISTS["tallies"]
    if not (options.hosts or options.groups):
        notes.append("no alarm agent-silent: --hosts or --autoscaling-group says how many machines should send")
        return None
    if not each.keys() & set(tallies):
        notes.append(f"no alarm agent-silent: {tallies[0]}, which counts machines, is not sent; add host to --for")
    return next((each[name] for name in tallies if name in each), None)
