"""Renders the tables of all screens: columns of texts, figures, bars and graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from chipwatch.show.top.draw import WHOLE, Line, bar, figure, fit, load, padded, width_of
from chipwatch.show.top.graphs import PER_CELL, sparkline

LEAST: Final = 6
"""Fewest cells of a bar or a graph; with less room, columns are dropped."""
GAP: Final = 2


class Column(NamedTuple):
    """A column of a table; its functions get a row."""

    title: str
    width: int
    """Most cells of its text."""
    cell: Callable[[Any], tuple[str, str]]
    """Returns the text of a cell and its role."""
    value: Callable[[Any], float | str | None] | None = None
    """Returns the value to sort by; without it, the text is used."""
    columns: int = 0
    """Width of the screen from which the column is shown."""
    left: bool = False
    percent: Callable[[Any], float | None] | None = None
    """Returns the share (%) for a bar before the text."""
    history: Callable[[Any, int], Sequence[float | None]] | None = None
    """Returns so many values (%) for a graph before the text."""
    optional: bool = False
    """True to leave the column out if no row has a value."""
    snug: bool = False
    """True to make it only as wide as its rows need."""
    rest: bool = False
    """True if its text takes the rest of the line."""

    @property
    def is_drawn(self) -> bool:
        """Return True if a bar or a graph is before the text."""
        return bool(self.percent or self.history)

    def key(self, row: Any) -> tuple[bool, Any]:
        """Return a sort key for `row`: figures descend, texts ascend, unknown values come last."""
        value = self.value(row) if self.value else self.cell(row)[0].lower()
        if isinstance(value, str):
            return not value or value == "-", value
        return value is None, -(value or 0)


def figures(
    title: str, width: int, value: Callable[[Any], float | None], form: Callable[[float], str] = WHOLE, **more: Any
) -> Column:
    """Return a column of figures, formatted by `form` and sorted by value."""
    return Column(title, width, lambda row: (figure(value(row), form), ""), value, **more)


def ordered(rows: Sequence[Any], columns: Sequence[Column], title: str, *, reverse: bool) -> list[Any]:
    """Return `rows` sorted by the column with this title; unsorted if there is none."""
    column = next((column for column in columns if column.title == title), None)
    rows = sorted(rows, key=column.key) if column else [*rows]
    return rows[::-1] if reverse else rows


def fitting(columns: Sequence[Column], rows: Sequence[Any], width: int) -> list[Column]:
    """Return the columns that a screen of `width` shows, snug ones narrowed to their rows."""
    shown = []
    for column in columns:
        texts = [column.cell(row)[0] for row in rows] if column.optional or column.snug else []
        if width < column.columns or (column.optional and not {*texts} - {"", "-"}):
            continue
        if column.snug:
            needed = max([len(column.title), *(width_of([(text, "")]) for text in texts)])
            column = column._replace(width=min(column.width, needed))  # noqa: PLW2901
        shown.append(column)
    return shown


def cells_of(columns: Collection[Column], width: int) -> int:
    """Return the number of cells of each bar and graph in a table of `width`."""
    drawn = sum(column.is_drawn for column in columns)
    return (width - sum(column.width + GAP + column.is_drawn for column in columns)) // max(1, drawn)


def table(
    columns: Sequence[Column], rows: Sequence[Any], width: int, *, chosen: str, mark: int | None
) -> Iterator[Line]:
    """Yield the line of titles, with the `chosen` one marked, and a line for each row, with number `mark` marked."""
    cells = max(1, cells_of(columns, width))
    titles: Line = []
    for column in columns:
        room = column.width + (cells + 1) * column.is_drawn
        left = column.left or column.is_drawn
        text = column.title if column.rest else padded(column.title, room + left, left=left)  # with a cell of the gap
        titles += [(text, "key" if column.title == chosen else "head"), (" " * (GAP - left), "head")]
    yield titles
    for place, row in enumerate(rows):
        line: Line = []
        for column in columns:
            text, role = column.cell(row)
            if column.percent:
                percent = column.percent(row)
                line += [*bar(percent, cells, role or load(percent)), (" ", "")]
            elif column.history:
                line += [*sparkline(column.history(row, cells * PER_CELL)), (" ", "")]
            line.append((text if column.rest else padded(text, column.width, left=column.left), role))
            line.append((" " * GAP, ""))
        yield [(text, "cursor") for text, _ in fit(line, width)] if place == mark else line


def has(words: str, texts: Iterable[str]) -> bool:
    """Return True if a row has each word of a filter, and none that has ! before it; case does not count."""
    text = "\n".join(texts).lower()
    return all((word.strip("!") in text) is not word.startswith("!") for word in words.lower().split() if word != "!")


def title_at(columns: Sequence[Column], width: int, x: int) -> str:
    """Return the title of the column at the cell `x` (from 0); "" beside the table."""
    end = 0
    for column in columns:
        end += width - end if column.rest else column.width + GAP + (cells_of(columns, width) + 1) * column.is_drawn
        if x < end:
            return column.title
    return ""
