"""Prints a plan: a table of costs as text, or all numbers as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from chipwatch.advisor.plan.result import Plan, SinkPlan
from chipwatch.base.redaction import one_line, without_secrets
from chipwatch.base.table import GAP, TableColumn, cut_middle, table
from chipwatch.base.text import line_width
from chipwatch.contract.advice import MONTH

WIDTH: Final = 100
HEADS: Final = ("sink", "what if", "series", "requests/month", "volume/month", "dollars/month")
UNKNOWN: Final = "?"
"""Text for an unknown price; it is not 0."""


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
    """Return the plan as lines of at most WIDTH columns, or fewer on a narrow terminal."""
    lines = [*_wrapped(_about(plan)), "", *_table(plan), "", *_wrapped(_warnings(plan))]
    return "\n".join(line.rstrip() for line in lines)


def _about(plan: Plan) -> Iterator[str]:
    """Yield sentences on the machines of the table, and on series that it lacks."""
    month = f"a month is {MONTH // 3600} hours"
    if plan.families:
        hosts = f"{plan.hosts:,} host{'s' * (plan.hosts > 1)} with {', '.join(plan.families)}"
        yield (
            f"Plan for {hosts}; {month}. Nothing was read: {plan.devices} devices of each kind are assumed,"
            f" {plan.devices} CPUs, and one disk, interface and file system."
        )
    else:
        hosts = "this host" if plan.hosts == 1 else f"{plan.hosts:,} hosts like this one"
        yield f"Plan for {hosts}, after two readings; {month}. No network was used."
    for name, why in plan.failed.items():
        yield f"FAILED, so its series are missing below: {name}: {why}."
    for sink in plan.sinks:
        yield from (f"FAILED: {fault}." for fault in sink.rejected)
    if plan.absent:
        absent = ", ".join(plan.absent)
        yield f"Not on this machine, so not in these numbers; --for NAME plans for a machine that has it: {absent}."


def _warnings(plan: Plan) -> Iterator[str]:
    """Yield sentences on alarms and another way to send, on series above max_series, and on the JSON of all numbers."""
    for sink in plan.sinks:
        yield from sink.now.beside
        wanted, unmoved = sum(sink.metrics.values()), sum(sink.held.values())
        if sink.max_series and wanted + unmoved > sink.max_series:
            moved = " once every counter has moved" if wanted <= sink.max_series else ""
            yield (
                f"max_series of [sinks.{sink.sink}] allows {sink.max_series:,} series, and a host has"
                f" {wanted + unmoved:,}{moved}: the others are counted, not sent. Exclude metrics, or raise max_series."
            )
        elif cut := ", ".join(choice.flags for choice in sink.choices if choice.is_cut):
            yield f"max_series ({sink.max_series:,} in [sinks.{sink.sink}]) cuts {cut}."
    yield "--format json has each metric's series, a dated bill, quotas and notes."


def _table(plan: Plan) -> Iterator[str]:
    """Yield a row for each sink as configured, and for each other choice; long options are cut in the middle."""
    rows = [_cells(sink, number) for sink in plan.sinks for number in range(1 + len(sink.choices))]
    sinks, flags, *numbers = zip(HEADS, *rows, strict=True)
    first = [TableColumn(sinks)] if len(plan.sinks) > 1 else []
    last = [TableColumn(cells, right=True) for cells in numbers if any(cells[1:])]
    room = line_width(WIDTH) - sum(column.width + len(GAP) for column in (*first, *last))
    lines = [*table([*first, TableColumn([cut_middle(text, max(12, room)) for text in flags]), *last])]
    lines.insert(1, "-" * max(map(len, lines)))
    yield from lines


def _cells(sink: SinkPlan, number: int) -> tuple[str, ...]:
    """Return the row of a sink as configured (`number` 0), or of one of its choices (from 1 on)."""
    choice = (sink.now, *sink.choices)[number]
    missing = dict.fromkeys(line.missing for line in choice.bill if line.dollars is None and line.missing)
    return (
        sink.sink,
        f"{choice.flags} (now)" if choice.now and number else choice.flags,
        f"{choice.series:,}",
        f"{choice.requests:,.0f}",
        "" if choice.volume is None else f"{choice.volume:,.3f} {choice.unit}",
        ", ".join(missing) or UNKNOWN if choice.dollars is None else f"{choice.dollars:,.2f}",
    )


def _wrapped(texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        yield from textwrap.wrap(one_line(text), line_width(WIDTH), subsequent_indent="  ", break_on_hyphens=False)
