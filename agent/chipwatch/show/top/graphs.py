"""Graphs of the last hour in braille characters, with a time axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from chipwatch.show.top.draw import Line, figure, load, rule, scaled
from chipwatch.show.top.machine import TRENDS, MachineState
from chipwatch.show.top.view import View

DOTS: Final = ((0, 0x40, 0x44, 0x46, 0x47), (0, 0x80, 0xA0, 0xB0, 0xB8))
"""Bits of a braille character for 0 to 4 dots from below: in its left half, in its right half."""
CELLS: Final = [[chr(0x2800 | left | right) if left | right else " " for right in DOTS[1]] for left in DOTS[0]]
"""Dots in the left half, dots in the right half -> the character."""
PER_CELL: Final = 2
"""Values in one cell of a graph."""
TITLE: Final = 20
"""Cells of a graph's title."""
TALLEST: Final = 8
"""Most lines of a graph."""


def graphs(machine: MachineState, view: View, width: int, room: int) -> list[Line]:
    """Return the graphs and their time axis in at most `room` lines."""
    shown = [row for row in TRENDS if machine.trends.get(row[0])][: min(5, max(1, (room - 2) // 2))]
    if not shown or room < 3 or not view.graphs:
        return []
    rows = min((room - 2) // len(shown), TALLEST)
    cells = width - TITLE
    count = cells * PER_CELL
    end, step = machine.now - int(view.back * 1e9), float(view.step)
    if view.zoom is None and not view.back:
        first = machine.trends[shown[0][0]].first
        step = min(step, max((end - first) / 1e9, machine.gap) / (count - 1))
    lines: list[Line] = [rule(width)]
    for name, title, most, unit in shown:
        values = machine.trends[name].means(end, step, count, longest=2 * machine.gap)
        peak = most or max([*(value for value in values if value is not None), 1e-9])
        curve = graph(values, rows, peak)
        now = figure(values[-1]) if most or unit == " W" else figure(values[-1], scaled)
        texts = [f"{title:13}{now:>4}{unit}", "" if most else f"{'':8}max {scaled(peak):>5}", *[""] * rows]
        roles = [load(100 * (rows - row - 0.5) / rows) if most else "graph" for row in range(rows)]
        drawn = [sparkline(values)] if most and rows == 1 else [[pair] for pair in zip(curve, roles, strict=True)]
        lines += [[(f"{text:{TITLE}.{TITLE}}", "label"), *part] for text, part in zip(texts, drawn, strict=False)]
    return [*lines, [(" " * TITLE, ""), (axis(cells, count * step, view.back), "dim")]]


def sparkline(values: Sequence[float | None]) -> Line:
    """Return a graph (%) of one line, coloured by load, with PER_CELL values in each cell."""
    pairs = zip(values[::PER_CELL], values[1::PER_CELL], strict=True)
    roles = [load(max(left or 0, right or 0)) for left, right in pairs]
    groups = groupby(zip(graph(values, 1, 100)[0], roles, strict=True), key=itemgetter(1))
    return [("".join(cell for cell, _ in cells), role) for role, cells in groups]


def graph(values: Sequence[float | None], rows: int, most: float) -> list[str]:
    """Return `rows` lines with a graph of `values` from 0 to `most`, PER_CELL values in each cell."""
    levels = [0 if v is None else max(1, round(min(max(v / most, 0), 1) * rows * 4) if most else 0) for v in values]
    lines = []
    for row in reversed(range(rows)):
        halves = [min(max(n - 4 * row, 0), 4) for n in levels]
        lines.append("".join(CELLS[left][right] for left, right in zip(halves[::2], halves[1::2], strict=True)))
    return lines


def axis(width: int, seconds: float, behind: float) -> str:
    """Return the labels of a time axis that covers `seconds` and ends `behind` seconds ago."""
    marks = [(at, _ago(behind + seconds * (width - at) / width)) for at in range(0, width - 12, max(16, width // 4))]
    marks.append((width - len(end := "now" if behind < 1 else _ago(behind)), end))
    text = ""
    for at, label in marks:
        text = f"{text:<{at}}{label}"
    return text


def _ago(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"-{seconds / size:.{0 if (seconds / size).is_integer() else 1}f} {unit}"
    return f"-{seconds:.0f} s"
