"""The tests of promtool for the shipped alarms: each breaks once, fires, and is over when the fault is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from chipwatch.advisor.dashboard.alarms import alarms
from chipwatch.advisor.dashboard.options import BoardOptions
from chipwatch.advisor.dashboard.sent import SentMetrics
from chipwatch.contract.advice import Alarm
from chipwatch_sinks.prometheus.names import Family, family_of, label_name

FINE: Final = 10
"""Minutes before the fault."""
MORE: Final = 8
"""Minutes of the fault beyond those that the alarm waits, and of the end after it."""
VALUES: Final = {"action": "restart_machine", "xid": "79", "state": "held", "kind": "uncorrected"}
"""Values of dimensions with which a fault is one that the alarm is about."""
WORKFLOW: Final = {"action": "see_workflow", "xid": "74"}


def alarm_tests(sending: SentMetrics) -> dict[str, Any]:
    """Return the file for `promtool test rules` beside alerts.json."""
    wanted, _ = alarms(sending.metrics, BoardOptions(cloud="prometheus"), count=False)
    return {"rule_files": ["alerts.json"], "evaluation_interval": "1m", "tests": [_test(alarm) for alarm in wanted]}


def _test(alarm: Alarm) -> dict[str, Any]:
    bad = round(alarm.rule.minutes) + MORE
    begin, end = FINE, FINE + bad
    checks = ((begin, 0), (end - 1, 1), (end + MORE, 0))
    return {
        "name": alarm.name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in _series(alarm, bad)],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alarm.name}",alertstate="firing"}})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": count}] if count else [],
            }
            for minute, count in checks
        ],
    }


def _series(alarm: Alarm, bad: int) -> Iterator[tuple[str, str]]:
    """Yield series and their values: fine, broken for `bad` minutes, fine."""
    rule, sent = alarm.rule, alarm.sent
    family = family_of(replace(sent.metric, name=sent.name, unit=sent.unit))
    values = VALUES | WORKFLOW if rule.key == "gpu-xid-workflow" else VALUES
    dims = {"instance": "node-7", **{key: values.get(key, "0") for key in sent.dims}}
    labels = ",".join([f'{label_name(key)}="{value}"' for key, value in dims.items()])
    name, after = f"{family.name}{{{labels}}}", 2 * MORE
    if rule.statistic == "absent":
        yield name, f"1x{FINE - 1} stale _x{bad - 1} 1x{after}"
        if rule.per == "host":
            yield name.replace("node-7", "node-8"), f"1x{FINE + bad + after}"
    elif rule.statistic == "sum":
        once = rule.threshold + 1
        yield name, f"0x{FINE} {once:g}+{once:g}x{bad - 1} {once * bad:g}x{after}"
    elif rule.statistic == "rate":
        step = 60 * rule.threshold * 1.5 * sent.factor
        yield name, f"0x{FINE} {step:g}+{step:g}x{bad} {(bad + 1) * step:g}x{after}"
    else:
        fine, broken = _levels(alarm, family)
        yield name, f"{fine:g}x{FINE - 1} {broken:g}x{bad - 1} {fine:g}x{after}"


def _levels(alarm: Alarm, family: Family) -> tuple[float, float]:
    """Return a value of a healthy and of a broken machine."""
    limit = alarm.threshold * family.times / family.over
    above, below = limit * 1.02 if limit not in (0, 1) else limit + 1, limit / 2
    return (max(limit, above) if limit != 1 else 1.0, below) if alarm.rule.below else (below, above)
