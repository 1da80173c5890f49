"""Lines of styled text, bars, graphs and short numbers."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

Line = list[tuple[str, str]]
"""Texts, each with its role: a key of a palette."""
BLOCKS: Final = " ▏▎▍▌▋▊▉█"
DOTS: Final = ((0x40, 0x44, 0x46, 0x47), (0x80, 0xA0, 0xB0, 0xB8))
"""Bits of a braille pattern for 1 to 4 dots from below, in its left and its right half."""
PER_CELL: Final = 2
"""Values in a cell of a graph."""
WHOLE: Final = "{:.0f}".format
LOADS: Final = (10, 40, 80)
"""Shares (%) from which another colour is drawn."""


def bar(percent: float | None, width: int, role: str = "") -> Line:
    """Return a bar of `width` cells, coloured by load unless `role` is given."""
    eighths = round(min(max(percent or 0, 0), 100) / 100 * width * 8)
    whole, part = divmod(eighths, 8)
    full = BLOCKS[8] * whole + BLOCKS[part].strip()
    return [(full, role or load(percent)), ("·" * (width - len(full)), "dim")]


def sparkline(values: Sequence[float | None], width: int) -> Line:
    """Return a graph of the last of `values` (%) in a row, in colours by load; few values fill the row too."""
    count = width * PER_CELL
    latest = [*values][-count:] or [None]
    if len(latest) < count:
        latest = [latest[at * len(latest) // count] for at in range(count)]
    line: Line = []
    for at, cell in enumerate(graph(latest, 1, 100)[0]):
        known = [value for value in latest[at * PER_CELL : (at + 1) * PER_CELL] if value is not None]
        role = load(max(known, default=0))
        line[-1:] = [(line[-1][0] + cell, role)] if line and line[-1][1] == role else [*line[-1:], (cell, role)]
    return line


def graph(values: Sequence[float | None], rows: int, most: float) -> list[str]:
    """Return `rows` lines with a graph of `values`, of which PER_CELL share a cell, from 0 to `most`."""
    levels = [0 if v is None else max(1, round(min(max(v / most, 0), 1) * rows * 4) if most else 0) for v in values]
    lines = []
    for row in reversed(range(rows)):
        halves = [min(max(n - 4 * row, 0), 4) for n in levels]
        lines.append("".join(_dots(left, right) for left, right in zip(halves[::2], halves[1::2], strict=True)))
    return lines


def rule(width: int) -> Line:
    """Return a line across the screen."""
    return [("─" * width, "dim")]


def _dots(left: int, right: int) -> str:
    bits = (DOTS[0][left - 1] if left else 0) | (DOTS[1][right - 1] if right else 0)
    return chr(0x2800 | bits) if bits else " "


def fit(line: Line, width: int) -> Line:
    """Return `line` without control characters, cut, or filled with spaces, to `width` cells."""
    fitted: Line = []
    for raw, role in line:
        text = shown(raw)
        cells = len(text) if text.isascii() else cell_len(text)
        if cells > width:
            text, cells = set_cell_size(text, width), width
        if text:
            fitted.append((text, role))
        width -= cells
    return [*fitted, (" " * width, "")] if width else fitted


def padded(text: str, width: int, *, left: bool = True) -> str:
    """Return `text` at the left or the right of `width` cells, cut if it needs more."""
    text = shown(text)
    if left or (spare := width - cell_len(text)) < 0:
        return set_cell_size(text, width)
    return " " * spare + text


def width_of(line: Line) -> int:
    """Return how many cells `line` takes."""
    return sum(cell_len(text) for text, _ in line)


def sides(left: Line, right: Line, width: int) -> Line:
    """Return a line with `left` at its beginning and `right` at its end."""
    return [*fit(left, max(0, width - width_of(right))), *right]


def flow(items: Iterable[Line], width: int) -> list[Line]:
    """Return `items` side by side in as many lines of `width` cells as they need."""
    lines: list[Line] = []
    room = 0
    for item in items:
        needed = width_of(item)
        if lines and needed + 3 <= room:
            lines[-1] += [("   ", ""), *item]
            room -= needed + 3
        else:
            lines.append([*item])
            room = width - needed
    return lines


def scaled(value: float, step: int = 1000) -> str:
    """Return a number in at most four characters, such as 1.2G; with 1024 as `step` for memory."""
    units = " KMGTPE"
    for unit in units:
        if abs(value) < 999.5 or unit == units[-1]:
            break
        value /= step
    return f"{value:.{1 if abs(value) < 9.95 and unit != ' ' else 0}f}{unit.strip()}"


def figure(value: float | None, form: Callable[[float], str] = WHOLE) -> str:
    """Return a number in this form, without decimals by default, or a dash where there is none."""
    return "-" if value is None else form(value)


def clock(seconds: float) -> str:
    """Return an age: 9:05, 2:14:09, 3 d 4 h."""
    if seconds >= 100 * 3600:
        return f"{seconds // 86_400:.0f} d {seconds % 86_400 // 3600:.0f} h"
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"


def level(value: float | None, warn: float, bad: float) -> str:
    """Return the role of a value: a warning from `warn` on, bad from `bad` on."""
    return "" if value is None or value < warn else "warn" if value < bad else "bad"


def load(percent: float | None) -> str:
    """Return the role of a share of something in use: `load0` to `load3`."""
    return f"load{bisect(LOADS, percent or 0)}"


def shown(text: str) -> str:
    """Return `text` without control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def axis(width: int, seconds: float, behind: float) -> str:
    """Return the labels of a time axis of `seconds` that ends `behind` seconds ago."""
    marks = [
        (at, f"{_ago(behind + seconds * (width - at) / width)}") for at in range(0, width - 12, max(16, width // 4))
    ]
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
