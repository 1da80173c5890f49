"""A plan as text, with each number beside those that it is computed from, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from chipwatch.advisor.plan.result import Plan, SinkPlan
from chipwatch.contract.advice import MONTH, Cost
from chipwatch.contract.redaction import one_line, without_secrets
from chipwatch.contract.text import line_width
from chipwatch.identity.names import PASSING
from chipwatch.report.table import TableColumn, table

WIDTH: Final = 100


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
    """Return the plan as lines of at most 100 columns, on a terminal of at most its own."""
    lines = [*_machine(plan)]
    for sink in plan.sinks:
        lines += ["", *_sink(sink, plan.hosts)]
    return "\n".join(f"{' ' * (len(line) - len(line.lstrip()))}{one_line(line)}".rstrip() for line in lines)


def _machine(plan: Plan) -> Iterator[str]:
    if plan.families:
        yield from _wrap(
            f"Plan for {_times(plan.hosts, 'host')} with {', '.join(plan.families)}; a month is {MONTH // 3600} hours."
            f" Nothing was read: {plan.devices} devices of each kind are assumed, {plan.devices} CPUs, and one disk,"
            " interface and file system. A family has all metrics of its collectors; name one for less. Every counter"
            " is taken to have moved: where series cost, one that has not is not sent."
        )
        return
    hosts = "this host" if plan.hosts == 1 else f"{plan.hosts:,} hosts like this one"
    yield from _wrap(f"Plan for {hosts}, after two readings; a month is {MONTH // 3600} hours. No network was used.")
    read = ", ".join(f"{name} {series}" for name, series in plan.collectors.items())
    yield from _wrap(f"Series of this machine at any level: {read}.")
    for name, why in plan.failed.items():
        yield from _wrap(f"FAILED, so its series are missing below: {name}: {why}.")
    if plan.absent:
        yield from _wrap("Not on this machine, so not in these numbers; --for NAME plans for a machine that has it:")
        for name, why in plan.absent.items():
            yield from _wrap(f"{name}: {why}", 2)


def _sink(sink: SinkPlan, hosts: int) -> Iterator[str]:
    yield f"== {sink.sink}" + (f": {sink.service}" if sink.kind == "priced" else "")
    each = f"a point of each series every {sink.window:g} s" if sink.window else "each reading is a point"
    for fault in sink.rejected:
        yield from _wrap(f"FAILED: {fault}.")
    yield from _wrap(f"Level {sink.level}; read every {sink.interval:g} s, {each}, sent every {sink.period:g} s.")
    yield ""
    total = (_times(len(sink.metrics), "metric"), f"{sum(sink.metrics.values()):,}")
    yield from _table(("metric", "series"), [(name, f"{n:,}") for name, n in sink.metrics.items()], total)
    yield ""
    yield from _held(sink)
    if sink.kind == "free":
        yield from _wrap(f"{sink.now.points:,.0f} points a month. This sink is free.")
        yield from _volume(sink, hosts)
        return
    yield from _fleet(sink, hosts)
    if sink.kind == "unknown":
        yield "The prices of this sink are not known."
    else:
        yield from _bill(sink, hosts)
    yield ""
    yield from _choices(sink)
    yield ""
    if sink.charges_for != "series":
        yield from _point_hints(sink)
    else:
        yield from _wrap(
            "A dimension such as instance_type adds no series: hosts of one type share them. A dimension such as"
            " instance_id gives each host its own series."
        )
    if sink.max_series:
        yield from _wrap(f"A host sends at most {sink.max_series:,} series: max_series of [sinks.{sink.sink}].")


def _held(sink: SinkPlan) -> Iterator[str]:
    """Say which counters are not sent, and whether there is room for them."""
    if not sink.held:
        return
    names = ", ".join(f"{name} {n:,}" for name, n in sink.held.items())
    yield from _wrap(f"Not sent while they are 0, each counter from its first event on: {names}.")
    total = sum(sink.metrics.values()) + sum(sink.held.values())
    if sink.max_series and total > sink.max_series:
        yield from _wrap(
            f"With these there are {total:,} series, and max_series allows {sink.max_series:,}: some events would not"
            " be sent. Exclude metrics, or raise max_series."
        )
    yield ""


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
        yield from _wrap(f"max_series allows {sink.series:,} of {wanted:,} series; the others are counted, not sent.")
    if now.bytes is None:
        load = f"{_times(sink.requests_per_period, 'request')} (of at most {sink.max_points:,} points) every"
        load += f" {sink.period:g} s = {now.requests / hosts:,.0f} requests"
    else:
        load = f"about {now.bytes / hosts / 1e9:,.3f} GB"
    yield from _wrap(f"One host: {sink.series:,} series, {load} and {now.points / hosts:,.0f} points a month.")
    yield from _words(sink, hosts)
    for quota in now.quotas:
        used = f"{quota.used:,.3g}" if quota.used != int(quota.used) else f"{quota.used:,.0f}"
        enough = ""
        if quota.shared and quota.used:
            enough = f": enough for {int(round(quota.limit * hosts / quota.used, 6)):,} such hosts"
        yield from _wrap(f"{used} {quota.what} of the {quota.limit:,.10g} that {quota.whose}{enough}.")


def _words(sink: SinkPlan, hosts: int) -> Iterator[str]:
    """Yield how the dimensions of the machine change the number of series."""
    own = [word for word, kind in sink.words.items() if kind == "host"]
    shared = [word for word, kind in sink.words.items() if kind == "shared"]
    why = sink.apart or f"{' and '.join(own)} differs from host to host" * bool(own)
    if why and hosts > 1:
        yield from _wrap(f"{hosts:,} hosts: {sink.series:,} x {hosts:,} = {sink.now.series:,} series, since {why}.")
    elif hosts > 1:
        merged = "no dimension differs from host to host: the service merges their values"
        yield from _wrap(f"{hosts:,} hosts: {sink.now.series:,} series, since {merged}.")
    if shared and not why:
        yield from _wrap(f"{', '.join(shared)}: one value is assumed; each further one adds {sink.series:,} series.")
    if passing := [word for word in sink.words if word in PASSING]:
        yield from _wrap(f"{', '.join(passing)}: each new value makes new series; the old ones {sink.ended}.")


def _bill(sink: SinkPlan, hosts: int) -> Iterator[str]:
    now = sink.now
    rows = [(cost.what, _count(cost), _price(cost.unit_price), _dollars(cost.dollars)) for cost in now.bill]
    yield ""
    yield from _table(("a month", "count", "dollars each", "dollars"), rows, ("total", "", "", _dollars(now.dollars)))
    yield ""
    if hosts > 1 and sink.charges_for != "series" and now.dollars is not None:
        each = now.dollars / hosts
        yield f"That is {f'{each:.2g}' if 0 < each < 0.1 else _dollars(each)} dollars a host."
    for as_of in dict.fromkeys(cost.as_of for cost in now.bill if cost.as_of):
        yield from _wrap(f"Prices of {as_of}.")
    for note in sink.notes:
        yield from _wrap(note)


def _count(cost: Cost) -> str:
    is_whole = cost.per == 1 and cost.amount == int(cost.amount)
    return f"{cost.amount:,.0f}" if is_whole else f"{cost.amount / cost.per:,.3f}"


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
    """Yield what would halve the bill."""
    step = max(sink.window, sink.interval)
    is_points = sink.charges_for == "points"
    charged = "Points are charged, dimensions are not" if is_points else "Bytes are charged, also of dimensions"
    yield from _wrap(
        f"{charged}: half the points cost half as much. A window twice as long halves them"
        f" (--window {2 * step:g}); so does half the series: a lower level, include and exclude of [sinks.{sink.sink}]."
    )
    total = sum(sink.metrics.values())
    most = sorted((-n, name) for name, n in sink.metrics.items() if n > 1)[:3]
    if most and len(sink.metrics) > 1:
        yield from _wrap(f"Most series: {', '.join(f'{name} {100 * -n / total:.0f} %' for n, name in most)}.")
    if sink.spacing:
        yield from _wrap(f"Two points of a series must be {sink.spacing:g} s apart, so no window is shorter.")


def _times(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def _wrap(text: str, indent: int = 0) -> list[str]:
    first, others = " " * indent, " " * (indent + 2)
    return textwrap.wrap(
        one_line(text), line_width(WIDTH), initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], total: Sequence[str] = ()) -> Iterator[str]:
    """Yield aligned lines, numbers to the right; a first column that is too wide is cut in its middle."""
    every = [heads, *rows, *([total] if total else [])]
    names, *others = zip(*every, strict=True)
    room = line_width(WIDTH) - sum(max(map(len, cells)) + 2 for cells in others)
    columns = [TableColumn([_cut(name, room) for name in names]), *(TableColumn(cells, right=True) for cells in others)]
    lines = [*table(columns)]
    rule = "-" * max(map(len, lines))
    lines.insert(1, rule)
    if total:
        lines.insert(-1, rule)
    yield from lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width // 2]}…{text[len(text) - (width - 1) // 2 :]}"
