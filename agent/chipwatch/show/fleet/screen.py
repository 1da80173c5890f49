"""The fleet as text: a summary, a table with a row for each node, and a screen with both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from types import SimpleNamespace
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.show.fleet.node import EITHER, FREE, NOT_KNOWN, FleetNode, totals
from chipwatch.show.top.draw import Line, figure
from chipwatch.show.top.machine import mean_of
from chipwatch.show.top.screen import GUIDES, Look, add_table, framed
from chipwatch.show.top.table import Column, figures, fitting, has
from chipwatch.show.top.view import Drawn

ROLES: Final = {"silent": "bad", "not believed": "bad", "not fit": "bad", "degraded": "warn", "fit": "good"}
MOST: Final = 4
"""Most causes in the summary."""

REST: Final = (FREE, EITHER, NOT_KNOWN)
"""Keys of `FleetNode.idle` that are not causes."""
PERCENT: Final = "{:.0f} %".format


def _gpus(node: FleetNode) -> tuple[str, str]:
    return "-" if node.busy is None else f"{node.busy:g}/{node.gpus}", "bad" if node.lost else ""


def _idle(node: FleetNode) -> tuple[str, str]:
    cause, share = node.idle_most
    lost = f"{node.lost:g} lost" if node.lost else ""
    return ", ".join(filter(None, (lost, f"{cause} {share:.0f} %" if cause else ""))) or "-", "bad" if lost else ""


def _names(words: Sequence[str]) -> tuple[str, str]:
    return " ".join(words) or "-", ""


def note(node: FleetNode) -> tuple[str, str]:
    """Return the undelivered points and the fault; for a silent node, since when it is silent and why."""
    if node.error:
        last = datetime.fromtimestamp(node.seen).astimezone() if node.seen else None
        return f"last seen {last:%H:%M}: {node.error}" if last else node.error, "bad"
    role = "" if node.delivery in (None, "ok") and not node.reason else "warn"
    return "; ".join(filter(None, (node.delivery, node.reason))) or "-", role


COLUMNS: Final = (
    Column("node", 24, lambda node: (node.node, "label"), left=True, snug=True),
    Column("verdict", 12, lambda node: (node.word or "-", ROLES.get(node.word, "")), left=True, snug=True),
    Column("GPUs", 5, _gpus, lambda node: node.busy),
    figures("util", 5, attrgetter("utilization"), PERCENT),
    Column("idle, most by", 17, _idle, lambda node: node.idle_most[1], left=True, snug=True),
    figures("power", 7, attrgetter("power"), lambda watts: f"{watts / 1000:.1f} kW", columns=100),
    figures("CPU", 5, attrgetter("cpu"), PERCENT, columns=100),
    Column("job", 16, lambda node: _names(node.jobs), left=True, snug=True, optional=True),
    Column("user", 10, lambda node: _names(node.users), columns=100, left=True, snug=True, optional=True),
    Column("delivery, and what is wrong", 0, note, left=True, rest=True),
)  # fmt: skip


def chosen(node: FleetNode, given: SimpleNamespace) -> bool:
    """Return True if the node matches the options --job, --user and --verdict."""
    asked = {"job": node.jobs, "user": node.users, "verdict": [node.word.replace(" ", "-")]}
    return all(getattr(given, option, None) in (None, *words) for option, words in asked.items())


def summary(nodes: Sequence[FleetNode]) -> list[str]:
    """Return one or two lines: the nodes by verdict, and the accelerators by use."""
    sums = totals(nodes)
    order = [*ROLES, "unknown", "waiting", "answer"]
    words = sorted(sums["nodes"].items(), key=lambda item: order.index(item[0]) if item[0] in order else 0)
    what = ", ".join(f"{count} {word}" for word, count in words) or "none has what was asked for"
    lines = [f"{len(nodes)} node{'s' * (len(nodes) != 1)}: {what}"]
    if gpus := sums["gpus"]:
        causes = sorted(sums["idle"].items(), key=lambda item: -item[1])
        texts = [f"{cause} {_round(count)}" for cause, count in causes if cause not in REST][:MOST]
        idle = sum(count for cause, count in causes if cause not in REST)
        why = f" ({', '.join(texts)})" if texts else ""
        parts = [f"busy {_round(sums['busy'])}", *([f"idle {_round(idle)}{why}"] if idle else [])]
        rest = {"lost": sums["lost"], **{word: sums["idle"].get(word, 0) for word in REST}}
        parts += [f"{word} {_round(count)}" for word, count in rest.items() if count]
        lines.append(f"GPUs {gpus:g}: {', '.join(parts)}")
    return lines


def _round(number: float) -> str:
    return f"{round(number, 1):g}"


def by_job(nodes: Sequence[FleetNode]) -> str:
    """Return a line with the jobs on several nodes, the largest one first; "" if there is none."""
    on = Counter(job for node in nodes for job in node.jobs)
    rows = [(job, count) for job, count in on.most_common() if count > 1]
    loads = {job: mean_of(node.utilization for node in nodes if job in node.jobs) for job, _ in rows[:MOST]}
    texts = [f"{job} on {count} nodes, util {figure(loads[job], PERCENT)}" for job, count in rows[:MOST]]
    return f"jobs: {'; '.join(texts)}{f'; {len(rows) - MOST} more' * (len(rows) > MOST)}" if texts else ""


def compose(
    nodes: Sequence[FleetNode], look: Look, mode: str, troubles: Sequence[str] = (), clock: float | None = None
) -> list[Line]:
    """Return the lines of the screen, sorted as the user chose; `clock`: its time (s since the epoch), None for now."""
    view, width, height = look

    def body() -> list[Line]:
        view.drawn = Drawn()
        head = [[("chipwatch top", "title"), (f"  {time.strftime('%H:%M:%S', time.localtime(clock))}  {mode}", "dim")]]
        head[0] += [("  paused", "warn")] if view.paused else []
        parts = summary(nodes)
        if len(parts) == 2 and sum(map(len, parts)) + 3 <= width:
            parts = ["   ".join(parts)]
        lines: list[Line] = [*head, *([(text, "label")] for text in (*parts, by_job(nodes)) if text)]
        lines += [[(f"! {one_line(text)}", "warn")] for text in troubles]
        texts = ((node.node, node.word, *node.jobs, *node.users, note(node)[0]) for node in nodes)
        shown = [node for node, words in zip(nodes, texts, strict=True) if has(view.filter, words)]
        view.page = max(1, height - 7)
        add_table(lines, 0, shown, fitting(COLUMNS, shown, width), look._replace(height=height + 1))
        return lines if shown else [*lines, [(f"no node has {view.filter!r}; Esc clears the filter", "warn")]]

    return framed(look, GUIDES["fleet"], body)
