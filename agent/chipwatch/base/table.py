"""The one renderer of tables: aligned columns, as wide as a terminal shows them, and lines of CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from rich.cells import cell_len

from chipwatch.base.redaction import printable

GAP: Final = "  "
FORMULA: Final = re.compile(r"[=@\t\r]|[+-](?!\d+(\.\d+)?$)")
"""The start of a text that spreadsheets evaluate, unless it is a number."""


class TableColumn(NamedTuple):
    """A column: its cells, of which the first is usually its title."""

    cells: Sequence[str]
    right: bool = False
    """Align at the right."""
    empty: Collection[str] = ()
    """Leave the column out if all cells below its title are among these."""

    @property
    def width(self) -> int:
        """Cells of a terminal that its widest cell takes."""
        return max(map(cell_len, self.cells))


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return `text` filled with spaces to `width` cells, at the left or the right of them."""
    spaces = " " * (width - cell_len(text))
    return spaces + text if right else text + spaces


def row(cells: Iterable[str], widths: Iterable[int], gap: str = GAP) -> str:
    """Return cells at the left of columns of these widths; the last cell, without a width, is not filled."""
    *first, last = cells
    return gap.join([*(padded(cell, width) for cell, width in zip(first, widths, strict=True)), last])


def table(columns: Iterable[TableColumn], gap: str = GAP) -> Iterator[str]:
    """Yield the lines of a table."""
    shown = [column for column in columns if not (column.empty and {*column.cells[1:]} <= {*column.empty})]
    widths = [column.width for column in shown]
    for cells in zip(*(column.cells for column in shown), strict=True):
        placed = zip(cells, shown, widths, strict=True)
        yield gap.join(padded(cell, width, right=column.right) for cell, column, width in placed).rstrip()


def fitting(columns: Iterable[TableColumn], width: int) -> int:
    """Return how many of `columns`, each with a gap before it, fit side by side into `width`: at least one."""
    ends = accumulate(len(GAP) + column.width for column in columns)
    return max(1, sum(end <= width for end in ends))


def cut_middle(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, with an ellipsis in the middle if it is cut."""
    if len(text) <= width:
        return text
    return f"{text[: width // 2]}…{text[len(text) - (width - 1) // 2 :]}"


def csv_line(cells: Iterable[object]) -> str:
    """Return a line of CSV without its end; no spreadsheet takes a text of it for a formula, no terminal for more."""
    text = io.StringIO()
    plain = (
        printable(f"'{cell}" if FORMULA.match(cell) else cell) if isinstance(cell, str) else cell for cell in cells
    )
    csv.writer(text, lineterminator="").writerow(plain)
    return text.getvalue()
