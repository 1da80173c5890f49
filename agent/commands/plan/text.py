"""A plan as text for people, each number beside those that it follows from, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from agent.advice import MONTH, Cost, Quota
from agent.commands.plan.estimate import Plan, SinkPlan
from agent.identity.names import PASSING
from agent.logs.text import one_line, without_secrets

WIDTH: Final = 100
MANY: Final = 3
"""Metrics that are named as those that cost most."""


def as_json(plan: Plan) -> str:
    """Return all numbers of the plan as one JSON object."""
    return json.dumps(_rounded(dataclasses.asdict(plan)), indent=1)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(of) for of in value]
    if isinstance(value, str):
        return without_secrets(value)
    return round(value, 6) if isinstance(value, float) else value


def as_text(plan: Plan) -> str:
    """Return the plan as lines of at most 100 columns."""
    lines = [*_machine(plan)]
    for sink in plan.sinks:
        lines += ["", *_sink(sink, plan.hosts)]
    return "\n".join(f"{' ' * (len(line) - len(line.lstrip()))}{one_line(line)}".rstrip() for line in lines)


def _machine(plan: Plan) -> Iterator[str]:
    hosts = "this host" if plan.hosts == 1 else f"{plan.hosts:,} hosts like this one"
    yield from _wrap(f"Plan for {hosts}, after two readings; a month is {MONTH // 3600} hours. No network was asked.")
    read = ", ".join(f"{name} {series}" for name, series in plan.collectors.items())
    yield from _wrap(f"Read here, series of any level: {read}.")
    for name, why in plan.failed.items():
        yield from _wrap(f"FAILED, so its series are missing below: {name}: {why}.")
    if plan.absent:
        yield from _wrap("Not on this machine, so not in these numbers; plan on one of the fleet's that has it:")
        for name, why in plan.absent.items():
            yield from _wrap(f"{name}: {why}", 2)


def _sink(sink: SinkPlan, hosts: int) -> Iterator[str]:
    yield f"== {sink.sink}" + (f": {sink.service}" if sink.kind == "priced" else "")
    each = f"a point of each series every {sink.window:g} s" if sink.window else "each reading is a point"
    sent = f"sent every {sink.period:g} s"
    for fault in sink.rejected:
        yield from _wrap(f"FAILED: {fault}.")
    yield from _wrap(f"Level {sink.level}; read every {sink.interval:g} s, {each}, {sent}.")
    yield ""
    yield from _table(
        ("metric", "series"),
        [(name, f"{n:,}") for name, n in sink.metrics.items()],
        (_times(len(sink.metrics), "metric"), f"{sum(sink.metrics.values()):,}"),
    )
    yield ""
    if sink.kind == "free":
        yield from _wrap(f"{sink.now.points:,.0f} points a month. Nothing is charged for this sink.")
        yield from _volume(sink, hosts)
        return
    yield from _fleet(sink, hosts)
    if sink.kind == "unknown":
        yield "What this sink charges is not known here."
    else:
        yield from _bill(sink, hosts)
    yield ""
    yield from _choices(sink)
    yield ""
    yield from _point_hints(sink) if sink.charges_for == "points" else _series_hints()
    if sink.max_series:
        yield from _wrap(f"No host sends more than {sink.max_series:,} series here: max_series of [sinks.{sink.sink}].")


def _volume(sink: SinkPlan, hosts: int) -> Iterator[str]:
    """Say how much a free sink has of one host, where its bytes are known."""
    if sink.now.bytes and sink.now.points:
        rate, size = sink.now.points / hosts / MONTH, sink.now.bytes / sink.now.points * sink.series
        yield from _wrap(f"One host: {sink.series:,} series, {rate:,.1f} samples a second, {size:,.0f} bytes a tick.")
    for note in sink.notes:
        yield from _wrap(note)


def _fleet(sink: SinkPlan, hosts: int) -> Iterator[str]:
    wanted, now = sum(sink.metrics.values()), sink.now
    if wanted > sink.series:
        yield from _wrap(
            f"max_series lets {sink.series:,} of {wanted:,} series through; the others are counted, not sent."
        )
    if now.bytes is None:
        load = f"{_times(sink.requests_per_period, 'request')} (of at most {sink.max_points:,} points) every"
        load += f" {sink.period:g} s = {now.requests / hosts:,.0f} requests"
    else:
        load = f"about {now.bytes / hosts / 1e9:,.3f} GB"
    yield from _wrap(f"One host: {sink.series:,} series, {load} and {now.points / hosts:,.0f} points a month.")
    yield from _words(sink, hosts)
    for quota in now.quotas:
        yield from _quota(quota, hosts)


def _quota(quota: Quota, hosts: int) -> Iterator[str]:
    used = f"{quota.used:,.3g}" if quota.used != int(quota.used) else f"{quota.used:,.0f}"
    enough = ""
    if quota.shared and quota.used:
        enough = f": enough for {int(round(quota.limit * hosts / quota.used, 6)):,} such hosts"
    yield from _wrap(f"{used} {quota.what} of the {quota.limit:,.10g} that {quota.whose}{enough}.")


def _words(sink: SinkPlan, hosts: int) -> Iterator[str]:
    """Say what the dimensions of the machine do to the number of series."""
    own = [word for word, kind in sink.words.items() if kind == "host"]
    shared = [word for word, kind in sink.words.items() if kind == "shared"]
    why = sink.apart or f"{' and '.join(own)} differs from host to host" * bool(own)
    if why and hosts > 1:
        yield from _wrap(f"{hosts:,} hosts: {sink.series:,} x {hosts:,} = {sink.now.series:,} series, since {why}.")
    elif hosts > 1:
        yield from _wrap(
            f"{hosts:,} hosts: {sink.now.series:,} series, since no dimension tells hosts apart: the far side merges"
            " their values."
        )
    if shared and not why:
        yield from _wrap(f"{', '.join(shared)}: one value is assumed; each further one adds {sink.series:,} series.")
    if passing := [word for word in sink.words if word in PASSING]:
        yield from _wrap(f"{', '.join(passing)}: each new value makes new series; the old ones {sink.ended}.")


def _bill(sink: SinkPlan, hosts: int) -> Iterator[str]:
    now = sink.now
    yield ""
    yield from _table(
        ("a month", "count", "dollars each", "dollars"),
        [(cost.what, _count(cost), _price(cost.unit_price), _dollars(cost.dollars)) for cost in now.bill],
        ("total", "", "", _dollars(now.dollars)),
    )
    yield ""
    if hosts > 1 and sink.charges_for == "points" and now.dollars is not None:
        yield from _wrap(f"That is {_per_host(now.dollars / hosts)} a host.")
    for read in dict.fromkeys(cost.as_of for cost in now.bill if cost.as_of):
        yield from _wrap(f"Prices of {read}.")
    for note in sink.notes:
        yield from _wrap(note)


def _per_host(dollars: float) -> str:
    return f"{dollars:,.2f} dollars" if dollars >= 0.1 or not dollars else f"{dollars:.2g} dollars"


def _count(cost: Cost) -> str:
    if cost.per == 1:
        return f"{cost.amount:,.0f}" if cost.amount == int(cost.amount) else f"{cost.amount:,.3f}"
    return f"{cost.amount / cost.per:,.3f}"


def _price(dollars: float | None) -> str:
    return "?" if dollars is None else f"{dollars:.2f}" if round(dollars, 2) == dollars else f"{dollars:g}"


def _dollars(dollars: float | None) -> str:
    return "?" if dollars is None else f"{dollars:,.2f}"


def _choices(sink: SinkPlan) -> Iterator[str]:
    heads = ["what if", "series", "requests/month", "requests/s", "dollars/month"]
    now = sink.now
    if now.unit:
        heads[2 : 3 if now.bytes is None else 4] = [f"{now.unit}/month"]
    rows = []
    for choice in (now, *sink.choices):
        flags = f"{choice.flags} (now)" if choice.now and choice is not now else choice.flags
        load = [f"{choice.requests:,.0f}" if choice.volume is None else f"{choice.volume:,.3f}"]
        load += [f"{choice.requests_per_second:,.3g}"] * (choice.bytes is None)
        rows.append((flags, f"{choice.series:,}", *load, _dollars(choice.dollars)))
    yield from _table(heads, rows)


def _point_hints(sink: SinkPlan) -> Iterator[str]:
    """Say what would halve the bill."""
    step = max(sink.window, sink.interval)
    yield from _wrap(
        "Points are what is charged: words and labels cost nothing, half the points are half the bill. A window twice"
        f" as long does that (--window {2 * step:g}), and so does half the series: a lower level, include and exclude"
        f" of [sinks.{sink.sink}]."
    )
    total = sum(sink.metrics.values())
    most = sorted(((n, name) for name, n in sink.metrics.items() if n > 1), key=lambda of: (-of[0], of[1]))[:MANY]
    if most and len(sink.metrics) > 1:
        yield from _wrap(f"Most of the series: {', '.join(f'{name} {100 * n / total:.0f} %' for n, name in most)}.")
    if sink.spacing:
        yield from _wrap(f"Two points of a series must be {sink.spacing:g} s apart, so no window is shorter.")


def _series_hints() -> Iterator[str]:
    yield from _wrap(
        "A word such as instance_type adds no series by itself: hosts of one kind share it. A word such as instance_id"
        " gives each host series of its own."
    )


def _times(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def _wrap(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(
        one_line(text), WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_on_hyphens=False
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] | None = None) -> Iterator[str]:
    """Yield aligned lines, numbers to the right; a first column that is too wide is cut in its middle."""
    every = [heads, *rows, *([total] if total else [])]
    widths = [max(len(row[n]) for row in every) for n in range(len(heads))]
    widths[0] = min(widths[0], WIDTH - sum(width + 2 for width in widths[1:]))
    lines = [
        "".join(
            (
                _cut(row[0], widths[0]).ljust(widths[0]),
                *(f"  {c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True)),
            )
        )
        for row in every
    ]
    rule = "-" * len(lines[0])
    yield from (lines[0], rule, *(lines[1:-1] if total else lines[1:]))
    if total:
        yield from (rule, lines[-1])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width // 2]}…{text[len(text) - (width - 1) // 2 :]}"
