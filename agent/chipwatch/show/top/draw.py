"""Builds lines of the screen: styled texts, bars, numbers."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from typing import Final

from rich.cells import cell_len, set_cell_size

Line = list[tuple[str, str]]
"""A line: texts, each with its role, which a palette maps to a colour."""
BLOCKS: Final = " ▏▎▍▌▋▊▉█"
WHOLE: Final = "{:.0f}".format
LOADS: Final = (10, 40, 80)
"""Shares (%) at which the colour changes."""


def bar(percent: float | None, width: int, role: str = "") -> Line:
    """Return a bar of `width` cells, coloured by load unless `role` is given."""
    eighths = round(min(max(percent or 0, 0), 100) / 100 * width * 8)
    whole, part = divmod(eighths, 8)
    full = BLOCKS[8] * whole + BLOCKS[part].strip()
    return [(full, role or load(percent)), ("·" * (width - len(full)), "dim")]


def rule(width: int) -> Line:
    """Return a horizontal line."""
    return [("─" * width, "dim")]


def fit(line: Line, width: int) -> Line:
    """Return `line` with exactly `width` cells, cut or filled with spaces, without control characters."""
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
    """Return `text` with exactly `width` cells, aligned left or right, cut if it is longer."""
    text = shown(text)
    if left or (spare := width - cell_len(text)) < 0:
        return set_cell_size(text, width)
    return " " * spare + text


def width_of(line: Line) -> int:
    """Return the number of cells that `line` takes."""
    return sum(cell_len(text) for text, _ in line)


def sides(left: Line, right: Line, width: int) -> Line:
    """Return a line of `width` cells with `left` at its start and `right` at its end."""
    return [*fit(left, max(0, width - width_of(right))), *right]


def flow(items: Iterable[Line], width: int) -> list[Line]:
    """Arrange `items` side by side, in as many lines of `width` cells as they need."""
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
    """Format a number in at most four characters, such as 1.2G; `step` is 1024 for memory."""
    units = " KMGTPE"
    for unit in units:
        if abs(value) < 999.5 or unit == units[-1]:
            break
        value /= step
    return f"{value:.{1 if abs(value) < 9.95 and unit != ' ' else 0}f}{unit.strip()}"


def figure(value: float | None, form: Callable[[float], str] = WHOLE) -> str:
    """Format a number, by default without decimals; None becomes a dash."""
    return "-" if value is None else form(value)


def level(value: float | None, warn: float, bad: float) -> str:
    """Return the role of a value: "warn" from `warn` on, "bad" from `bad` on, otherwise ""."""
    return "" if value is None or value < warn else "warn" if value < bad else "bad"


def load(percent: float | None) -> str:
    """Return the role of a share in use (%): `load0` to `load3`."""
    return f"load{bisect(LOADS, percent or 0)}"


def shown(text: str) -> str:
    """Replace characters of `text` that cannot be printed."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
