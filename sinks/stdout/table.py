"""Datapoints as a table, redrawn in place on a terminal."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

from agent.datapoint import Datapoint, Kind
from agent.sink import Rejected
from sinks.stdout.jsonl import SERIES, utc

SI: Final = ("", "k", "M", "G", "T", "P", "E")
READABLE: Final[dict[str, tuple[float, str, Sequence[str]]]] = {
    "By": (1, "B", ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")),
    "GiBy": (2.0**30, "B", ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")),
    "MBy": (1e6, "B", SI),
    "MiBy": (2.0**20, "B", ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")),
    "By/s": (1, "B/s", SI),
    "Cel": (1, "°C", ("",)),
    "J": (1, "J", SI),
    "J/s": (1, "W", SI),
    "MHz": (1e6, "Hz", SI),
    "W": (1, "W", SI),
    "s": (1e9, "s", ("n", "µ", "m", "")),
    "s/s": (100, "%", ("",)),
    "{flop}/s": (1, "flop/s", SI),
}
"""UCUM unit of a gauge or of a counter's rate -> factor, displayed unit and prefixes."""


MIN_ELAPSED: Final = 1_000_000
"""Shortest window (ns) for a rate."""


class Table:
    """Draws one table for each tick as wide as `stream`, over the last one if `in_place`."""

    def __init__(self, stream: Any, *, in_place: bool) -> None:
        self._stream, self._in_place = stream, in_place
        self._up = ""
        self._cut: list[str] = []

    def draw(self, batch: Sequence[Datapoint], rejected: list[Rejected]) -> str:
        """Return the text that shows `batch`."""
        del rejected  # a table can show every point
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError, AttributeError):
            size = shutil.get_terminal_size()
        batch = sorted(batch, key=lambda point: point.at)
        if self._in_place:  # one table with the newest point of each series
            batch = [*{(point.metric.name, point.dims): point for point in batch}.values()]
        ticks = [batch] if self._in_place else [[*tick] for _, tick in groupby(batch, key=lambda point: point.at)]
        return "".join([self._frame(_lines(tick, size.columns or 80), size.lines or 24) for tick in ticks])

    def rest(self) -> str:
        """Return the whole last table if it was cut to the height of the terminal."""
        return self._frame(self._cut, len(self._cut) + 1) if self._cut else ""

    def _frame(self, lines: list[str], height: int) -> str:
        if not self._in_place:
            return "\n".join([*lines, "", ""])
        self._cut = lines if len(lines) >= height else []
        if self._cut and len(lines := [line for line in lines if line]) >= height:
            lines = [*lines[: height - 2], f"… {len(lines) - height + 2} more lines, shown at the end"]
        text = self._up + "".join([f"\x1b[K{line}\n" for line in lines]) + "\x1b[J"
        self._up = f"\x1b[{len(lines)}F"
        return text


def _lines(points: list[Datapoint], width: int) -> list[str]:
    """Return the lines of a table, `width` cells wide; names and dimensions may be cut, numbers never."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  # needed only for tables

    points = sorted(points, key=lambda point: point.metric.name)
    own = {key for point in points for key in point.metric.dims}
    common = {pair for pair in points[0].dims.items_sorted if pair[0] not in own}
    common.intersection_update(*(point.dims.items_sorted for point in points))
    figures = _figures(points)
    pairs = [tuple(pair for pair in point.dims.items_sorted if pair not in common) for point in points]
    names = ["metric", *(_shown(point.metric.name) for point in points)]
    dims = ["dimensions", *(_pairs(pair, 9999) for pair in pairs)]

    room = max(width - len(figures[0]), 24) - 4
    longest = max(map(cell_len, names))
    dims_width = min(max(map(cell_len, dims)), max(room - longest, room // 3))
    name_width = min(longest, room - dims_width)
    dims[1:] = [_pairs(pair, dims_width) for pair in pairs]
    lines = [" ".join((utc(max(point.at for point in points)), _pairs(tuple(sorted(common)), max(width - 25, 12))))]
    area = ""
    for name, dim, figure in zip(names, dims, figures, strict=True):
        if area != (area := name.partition(".")[0]):
            lines.append("")
        cells = set_cell_size(_middle(name, name_width), name_width), set_cell_size(dim, dims_width), figure
        lines.append("  ".join(cells))
    return [line.rstrip() for line in lines]


def _figures(points: list[Datapoint]) -> list[str]:
    """Return a title and a text for each point: a gauge's value, a counter's rate or total."""
    rows, read, largest = [("value", "", "min", "max")], [], dict[tuple[str, str], float]()
    for metric, value, _, at, _, start, total, increase in points:
        figure, unit, note = value, metric.unit, ""
        if metric.kind is Kind.COUNTER and increase is not None and start is not None and start < at - MIN_ELAPSED:
            figure, unit = increase / (at - start) * 1e9, f"{unit}/s"
        elif metric.kind is Kind.COUNTER:
            note = "total"
        read.append((figure, unit, note, total))
        key = metric.name, unit
        largest[key] = max(largest.get(key, 0.0), abs(total.maximum if total else figure))
    for point, (figure, unit, note, total) in zip(points, read, strict=True):
        divisor, word = _scale(largest[point.metric.name, unit], unit)
        low, high = (_digits(total.minimum / divisor), _digits(total.maximum / divisor)) if total else ("", "")
        rows.append((_digits(figure / divisor), f"{word} {note}".strip(), low, high))
    w = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if not any(point.summary for point in points):
        return [f"{row[0]:>{w[0]}} {row[1]:{w[1]}}" for row in rows]
    return [f"{row[0]:>{w[0]}} {row[1]:{w[1]}}  {row[2]:>{w[2]}}  {row[3]:>{w[3]}}" for row in rows]


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Return the divisor and the unit to display: 2**30 and GiB; `{thread}` becomes "", `{kill}/s` becomes /s."""
    factor, word, prefixes = READABLE.get(unit) or (1, re.sub(r"^(\{.*\}|1)(?=$|/)", "", _shown(unit)), ("",))
    divisor, step = 1 / factor, 1024 if "Ki" in prefixes else 1000
    prefix = ""
    for prefix in prefixes if value else ():
        if abs(value / divisor) < 999.5 or prefix == prefixes[-1]:
            break
        divisor *= step
    return divisor, prefix + word


@lru_cache(maxsize=SERIES)
def _pairs(pairs: tuple[tuple[str, str], ...], width: int) -> str:
    """Return pairs as `key=value`; values, longest first, then the whole text are shortened to fit into `width`."""
    text, most = " ".join(f"{_shown(key)}={_shown(value)}" for key, value in pairs), width
    while len(text) > width and most > 6:
        text = " ".join(f"{_shown(key)}={_middle(_shown(value), most)}" for key, value in pairs)
        most -= 1
    return _middle(text, width)


def _middle(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, with an ellipsis in the middle if it is cut."""
    if len(text) <= width:
        return text
    return f"{text[: width // 2]}…{text[len(text) - (width - 1) // 2 :]}"


def _shown(text: str) -> str:
    """Return `text` without control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
