"""The lines of the fleet: a summary, a table with a row a node, and the screen with both."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Final

from chipwatch.contract.redaction import one_line
from chipwatch.fleet.node import FleetNode, totals
from chipwatch.top.draw import Line
from chipwatch.top.screen import SMALLEST, Look, add_table, filled, footer, help_lines
from chipwatch.top.table import Column, fitting
from chipwatch.top.view import HELP, Drawn

ROLES: Final = {"silent": "bad", "not believed": "bad", "not fit": "bad", "degraded": "warn", "fit": "good"}
MOST: Final = 4
"""Causes in the summary."""
KEYS: Final = (
    ("q", "quit"), ("?", "help"), ("enter", "open the node"), ("/", "filter"), ("s", "sort"), ("r", "reverse"),
    ("space", "pause"),
)  # fmt: skip
TASKS: Final = (
    ("Find", (("↑ ↓ click", "choose a node; also PgUp, PgDn, Home, End"),
              ("/", "filter by node, verdict, job, user, or what is wrong (Esc: all)"),
              ("s S r", "sort by the next column, the one before; reverse; without: worst first"))),
    ("Look", (("enter", "open the node as `chipwatch top` shows it; q there leads back"),
              ("space", "pause, and go on"))),
    HELP[-1],
)  # fmt: skip
LAST: Final = (
    "A dash is a figure that is not known. GPUs: those that worked in the last moments, of all. A page and a store"
    " do not show that a node is fit: their verdict says what is wrong, or nothing."
)


def _gpus(node: FleetNode) -> tuple[str, str]:
    return f"{node.busy}/{node.gpus}" if node.gpus else "-", "bad" if node.lost else ""


def _idle(node: FleetNode) -> tuple[str, str]:
    cause, share = node.idle_most
    lost = f"{node.lost} lost" if node.lost else ""
    return ", ".join(filter(None, (lost, f"{cause} {share:.0f} %" if cause else ""))) or "-", "bad" if lost else ""


def _names(words: Sequence[str]) -> tuple[str, str]:
    return " ".join(words) or "-", ""


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def note(node: FleetNode) -> tuple[str, str]:
    """Return what is not delivered and what is wrong; of a silent node since when and why."""
    if node.error:
        last = datetime.fromtimestamp(node.seen).astimezone() if node.seen else None
        return f"last seen {last:%H:%M}: {node.error}" if last else node.error, "bad"
    role = "" if node.delivery in (None, "ok") and not node.reason else "warn"
    return "; ".join(filter(None, (node.delivery, node.reason))) or "-", role


COLUMNS: Final = (
    Column("node", 24, lambda node: (node.node, "label"), left=True, snug=True),
    Column("verdict", 12, lambda node: (node.word or "-", ROLES.get(node.word, "")), left=True, snug=True),
    Column("GPUs", 5, _gpus, lambda node: node.busy),
    Column("util", 5, lambda node: (_percent(node.utilization), ""), lambda node: node.utilization),
    Column("idle, most by", 17, _idle, lambda node: node.idle_most[1], left=True, snug=True),
    Column("power", 7, lambda node: ("-" if node.power is None else f"{node.power / 1000:.1f} kW", ""),
           lambda node: node.power, columns=100),
    Column("CPU", 5, lambda node: (_percent(node.cpu), ""), lambda node: node.cpu, columns=100),
    Column("job", 16, lambda node: _names(node.jobs), left=True, snug=True, optional=True),
    Column("user", 10, lambda node: _names(node.users), columns=100, left=True, snug=True, optional=True),
    Column("delivery, and what is wrong", 0, note, left=True, rest=True),
)  # fmt: skip


def chosen(node: FleetNode, given: SimpleNamespace) -> bool:
    """Return whether the options --job, --user and --verdict take the node."""
    word = getattr(given, "verdict", None)
    return (
        getattr(given, "job", None) in (None, *node.jobs)
        and getattr(given, "user", None) in (None, *node.users)
        and word in (None, node.word.replace(" ", "-"))
    )


def summary(nodes: Sequence[FleetNode]) -> list[str]:
    """Return how many nodes and accelerators there are, and what they do, in a line or two."""
    sums = totals(nodes)
    order = [*ROLES, "unknown", "waiting", "answer"]
    words = sorted(sums["nodes"].items(), key=lambda item: order.index(item[0]) if item[0] in order else 0)
    lines = [f"{len(nodes)} node{'s' * (len(nodes) != 1)}: {', '.join(f'{count} {word}' for word, count in words)}"]
    if gpus := sums["gpus"]:
        causes = sorted(sums["idle"].items(), key=lambda item: -item[1])
        free = round(sums["idle"].get("free", 0))
        texts = [f"{cause} {count:.0f}" for cause, count in causes if cause != "free" and count >= 0.5][:MOST]
        idle = max(0, gpus - sums["busy"] - sums["lost"] - free)
        why = f" ({', '.join(texts)})" if texts else ""
        parts = [f"busy {sums['busy']}", f"idle {idle}{why}"]
        parts += [f"{word} {count}" for word, count in (("free", free), ("lost", sums["lost"])) if count]
        lines.append(f"GPUs {gpus}: {', '.join(parts)}")
    return lines


def matches(word: str, node: FleetNode) -> bool:
    """Return whether `word` is in a text of the node's row."""
    return not word or word.lower() in " ".join((node.node, node.word, *node.jobs, *node.users, note(node)[0])).lower()


def compose(
    nodes: Sequence[FleetNode], look: Look, mode: str, troubles: Sequence[str] = (), clock: float | None = None
) -> list[Line]:
    """Return the lines of a screen, the nodes in their order unless sorted; `clock`: s since the epoch, None: now."""
    view, width, height, _ = look
    size = width, height
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return filled([[(f"at least {SMALLEST[0]}x{SMALLEST[1]}", "bad")]], size)
    if view.help:
        return filled(help_lines(TASKS, (LAST,), width), size)
    head = [[("chipwatch top", "title"), (f"  {time.strftime('%H:%M:%S', time.localtime(clock))}  {mode}", "dim")]]
    head[0] += [("  paused", "warn")] if view.paused else []
    parts = summary(nodes)
    lines: list[Line] = [*head, *([(text, "label")] for text in parts)]
    if len(parts) == 2 and sum(map(len, parts)) + 3 <= width:
        lines = [*head, [("   ".join(parts), "label")]]
    lines += [[(f"! {one_line(text)}", "warn")] for text in troubles]
    shown = [node for node in nodes if matches(view.filter, node)]
    view.drawn, view.page = Drawn(), max(1, height - 6)
    add_table(lines, 0, shown, fitting(COLUMNS, shown, width), look._replace(height=height + 1))
    lines += [] if shown else [[(f"no node has {view.filter!r}; Esc clears the filter", "warn")]]
    return [*filled(lines, (width, height - 1)), *filled([footer(view, width, KEYS)], (width, 1))]
