"""The fleet as text: a summary, a table with a row for each node or group, and a screen with both."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Final

import msgspec

from chipwatch.base.redaction import one_line
from chipwatch.base.table import TableColumn, csv_line, table
from chipwatch.show.fleet.groups import FOLDED, OWN, Labels, grouped
from chipwatch.show.fleet.node import EITHER, FREE, NOT_KNOWN, FleetNode, totals
from chipwatch.show.fleet.store import STEP, VALUES
from chipwatch.show.top.draw import Line
from chipwatch.show.top.graphs import PER_CELL, graph
from chipwatch.show.top.machine import mean_of
from chipwatch.show.top.screen import GUIDES, Look, add_table, framed
from chipwatch.show.top.table import Column, figures, fitting, has, ordered
from chipwatch.show.top.view import Drawn, Row, View

ROLES: Final = {"silent": "bad", "not believed": "bad", "not fit": "bad", "degraded": "warn", "fit": "good"}
MOST: Final = 4
"""Most causes in the summary."""
SAMPLE: Final = 60.0
"""Seconds between two samples for the graphs."""
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
        last = time.strftime("last seen %H:%M: ", time.localtime(node.seen)) if node.seen else ""
        return f"{last}{node.error}", "bad"
    role = "" if node.delivery in (None, "ok") and not node.reason else "warn"
    return "; ".join(filter(None, (node.delivery, node.reason))) or "-", role


COLUMNS: Final = (
    Column("verdict", 12, lambda node: (node.word or "-", ROLES.get(node.word, "")), left=True, snug=True),
    Column("GPUs", 11, _gpus, lambda node: node.busy, snug=True),
    figures("util", 5, attrgetter("utilization"), PERCENT),
    Column("idle, most by", 17, _idle, lambda node: node.idle_most[1], left=True, snug=True),
    figures("power", 7, attrgetter("power"), lambda watts: f"{watts / 1000:.{watts < 1e5:d}f} kW", columns=100),
    figures("CPU", 5, attrgetter("cpu"), PERCENT, columns=100),
    Column("job", 16, lambda node: _names(node.jobs), left=True, snug=True, optional=True),
    Column("user", 10, lambda node: _names(node.users), columns=100, left=True, snug=True, optional=True),
    Column("delivery, and what is wrong", 0, note, left=True, rest=True),
)  # fmt: skip


@dataclass
class FleetView(View):
    """The user's choices on the screen of a fleet."""

    label: str = ""
    """The label of --by, or ""."""
    by: str = ""
    """The label, or the word of OWN, by which nodes are grouped now; "" if they are not."""
    labels: Labels = field(default_factory=dict)
    groups: dict[Row, Sequence[FleetNode]] = field(default_factory=dict)
    """Group -> its nodes; from the last drawing."""
    unfolded: dict[Row, bool] = field(default_factory=dict)
    """Group that was drawn -> True if its nodes are below it."""
    past: dict[int, dict[str, list[float | None]]] = field(default_factory=dict)
    """Number of a span of STEP seconds in the last hour -> node -> samples of its utilization (%)."""
    sampled: float = 0.0
    """Time of the newest sample of `past` (s since the epoch)."""
    opened: Row | None = None
    """The node that Enter has opened; None while the fleet is shown."""

    def put(self, at: float, node: str, load: float | None) -> None:
        """Add a sample of a node's utilization (%) at `at` (s since the epoch) to the graphs."""
        self.past.setdefault(int(at // STEP), {}).setdefault(node, []).append(load)

    def _choose(self, key: str) -> None:
        ways = [*dict.fromkeys(("", self.label, *OWN))]
        if key == "b":
            self.by = ways[(ways.index(self.by) + 1) % len(ways)]
        else:
            super()._choose(key)

    def _enter(self) -> None:
        if self.selected in self.groups:
            self.unfolded[self.selected] = not self.unfolded[self.selected]
        elif self.selected:
            self.opened = self.selected
            self.orders.append("quit")
        else:
            self._move(1)
            self.message = "Enter opens the chosen node" if self.selected else "there is no node to open"


def columns_of(view: FleetView) -> Sequence[Column]:
    """Return the columns for nodes, or for groups with their nodes below them."""

    def name(row: FleetNode) -> tuple[str, str]:
        size = len(view.groups.get(row.key, ()))
        return f"{row.node} {size} node{'s' * (size > 1)}" if size else f"{'  ' * bool(view.by)}{row.node}", "label"

    def past(row: FleetNode) -> tuple[str, str]:
        nodes, now = view.groups.get(row.key, [row]), int(view.sampled // STEP)
        spans = (view.past.get(span, {}) for span in range(now - VALUES + 1, now + 1))
        means = [mean_of(load for node in nodes for load in span.get(node.node, ())) for span in spans]
        text = graph(means, 1, 100)[0]
        return (text, "graph") if text.strip() else ("-", "")

    hour = [Column("last hour", VALUES // PER_CELL, past, columns=100, left=True)] if view.past else []
    return Column(view.by or "node", 24, name, left=True, snug=True), *COLUMNS[:-1], *hour, COLUMNS[-1]


def rows_of(nodes: Sequence[FleetNode], view: FleetView) -> list[FleetNode]:
    """Return the rows of a table in the user's order: nodes, or groups with the nodes of unfolded ones, each once."""
    placed = partial(ordered, columns=columns_of(view), title=view.sorts[0], reverse=view.reverse)
    groups = {line.key: (line, each) for line, each in grouped(nodes, view.by, view.labels).values()}
    view.groups = {key: each for key, (_, each) in groups.items()}
    rows: dict[Row, FleetNode] = {}
    for line in placed([line for line, _ in groups.values()]):
        below = placed(groups[line.key][1]) if view.unfolded.setdefault(line.key, len(nodes) <= FOLDED) else []
        rows |= {line.key: line} | {node.key: node for node in below if node.key not in rows}
    return [*rows.values()] if view.by else placed(nodes)


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


def compose(
    nodes: Sequence[FleetNode], view: FleetView, size: tuple[int, int], mode: str, troubles: Sequence[str] = (),
    *, clock: float | None = None,
) -> list[Line]:  # fmt: skip
    """
    Return the lines of the screen of `size` (columns, lines), from nodes with the worst one first.

    `clock`: its time (s since the epoch), None for now.
    """
    (width, height), now = size, time.time_ns() / 1e9 if clock is None else clock

    def body() -> list[Line]:
        view.drawn = Drawn()
        at = f"{time.strftime('%H:%M:%S', time.localtime(now))}  {mode}{', by ' * bool(view.by)}{view.by}"
        head = [("chipwatch top", "title"), (f"  {at}", "dim"), ("  paused" * view.paused, "warn")]
        parts = summary(nodes)
        if len(parts) == 2 and sum(map(len, parts)) + 3 <= width:
            parts = ["   ".join(parts)]
        lines: list[Line] = [head, *([(text, "label")] for text in parts)]
        lines += [[(f"! {one_line(text)}", "warn")] for text in troubles]
        names = ((node.node, *view.labels.get(node.node, ()), *node.jobs, *node.users) for node in nodes)
        texts = ((*words, node.word, note(node)[0]) for node, words in zip(nodes, names, strict=True))
        shown = [node for node, words in zip(nodes, texts, strict=True) if has(view.filter, words)]
        view.page, rows = max(1, height - 7), rows_of(shown, view)
        if now >= view.sampled + SAMPLE and any(node.seen for node in nodes):
            view.sampled = now
            for node in nodes:
                view.put(now, node.node, node.utilization)
            view.past = dict(sorted(view.past.items())[-VALUES:])
        add_table(lines, 0, rows, fitting(columns_of(view), rows, width), Look(view, width, height + 1))
        return lines if shown else [*lines, [(f"no node has {view.filter!r}; Esc clears the filter", "warn")]]

    return framed(Look(view, width, height), GUIDES["fleet"], body)


def as_table(nodes: Sequence[FleetNode], view: FleetView) -> Iterator[str]:
    """Yield the summary, and a table without its empty columns."""
    rows = rows_of(nodes, view)
    yield from summary(nodes)
    yield from table(
        TableColumn([column.title, *(column.cell(row)[0] for row in rows)], not column.left, ("-",))
        for column in columns_of(view)
    )


def as_csv(nodes: Iterable[FleetNode]) -> Iterator[str]:
    """Yield a header, then a line for each node; spaces separate several jobs, users or causes."""
    yield csv_line(FleetNode.__struct_fields__)
    for node in nodes:
        row = msgspec.structs.asdict(node)
        row["idle"] = [f"{cause}={number:g}" for cause, number in node.idle.items()]
        yield csv_line(" ".join(value) if isinstance(value, list) else value for value in row.values())
