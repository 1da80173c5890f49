"""Renders tables as aligned columns of text, and as lines of CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from chipwatch.base.redaction import printable

GAP: Final = "  "
LAST: Final = 40
"""Fewest characters of the last column, if it has as many, while other columns can be left out."""
FORMULA: Final = re.compile(r"[=@\t\r]|[+-](?!\d+(\.\d+)?$)")
"""The start of a text that a spreadsheet would evaluate as a formula; numbers are not meant."""


class TableColumn(NamedTuple):
    """A column; its first cell is usually its title."""

    cells: Sequence[str]
    right: bool = False
    """True to align its cells at the right."""
    empty: Collection[str] = ()
    """Texts that count as empty: the column is left out if it has nothing else below its title."""

    @property
    def width(self) -> int:
        """Width of its widest cell, in characters of a terminal."""
        return max(map(cell_len, self.cells))


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return `text` with spaces up to `width` characters of a terminal; with `right`, the spaces come first."""
    spaces = " " * (width - cell_len(text))
    return spaces + text if right else text + spaces


def table(
    columns: Iterable[TableColumn], gap: str = GAP, width: int = 10**6, spare: Iterable[str] = ()
) -> Iterator[str]:
    """
    Yield the lines of a table.

    To fit into `width`, columns with the titles `spare` are left out, the first one first, until the last column has
    its width or LAST characters. Then lines are cut.
    """
    shown = [column for column in columns if not (column.empty and {*column.cells[1:]} <= {*column.empty})]
    for title in spare:
        if sum(column.width + len(gap) for column in shown[:-1]) + min(shown[-1].width, LAST) > width:
            shown = [column for column in shown if column.cells[0] != title]
    widths = [column.width for column in shown]
    for cells in zip(*(column.cells for column in shown), strict=True):
        placed = zip(cells, shown, widths, strict=True)
        line = gap.join(padded(cell, size, right=column.right) for cell, column, size in placed).rstrip()
        yield line if cell_len(line) <= width else f"{set_cell_size(line, width - 1)}…"


def fitting(columns: Iterable[TableColumn], width: int) -> int:
    """Return how many of the first `columns`, each with a gap before it, fit into `width`; at least one."""
    ends = accumulate(len(GAP) + column.width for column in columns)
    return max(1, sum(end <= width for end in ends))


def cut_middle(text: str, width: int) -> str:
    """Return `text`; if it is longer than `width`, with an ellipsis in place of its middle."""
    return text if len(text) <= width else f"{text[: width // 2]}…{text[len(text) - (width - 1) // 2 :]}"


def csv_line(cells: Iterable[object]) -> str:
    """Return a line of CSV without its end. Texts that a spreadsheet or a terminal would execute are escaped."""
    text = io.StringIO()
    plain = (
        printable(f"'{cell}" if FORMULA.match(cell) else cell) if isinstance(cell, str) else cell for cell in cells
    )
    csv.writer(text, lineterminator="").writerow(plain)
    return text.getvalue()
