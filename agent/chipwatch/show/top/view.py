"""The user's choices on the screen; keys and the mouse change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

STEPS: Final = (1, 2, 5, 10, 30, 60, 300)
"""Zoom steps: seconds of one dot in the graphs."""
FAR: Final = 1_000_000
"""More rows than any table has."""
SWITCHES: Final = {
    "?": "help", "h": "help", "p": "processes", "g": "graphs", "1": "cores", "r": "reverse", " ": "paused",
}  # fmt: skip
ZOOMS: Final = {"+": -1, "=": -1, "-": 1}
WHEEL: Final = 3
"""Rows that one turn of the mouse wheel moves."""
Row = tuple[Any, ...]
"""Identity of a row: the key of a device; the PID, start and device of a process."""


@dataclass
class Drawn:
    """The content of the last drawing, so that keys and clicks find their row or title."""

    rows: list[list[Row]] = field(default_factory=lambda: [[], []])
    """All rows of the two tables: devices, processes."""
    columns: list[Sequence[str]] = field(default_factory=lambda: [(), ()])
    """Titles of the columns of each table."""
    lines: dict[int, Row] = field(default_factory=dict)
    """Line of the screen -> the row on it."""
    titles: dict[int, tuple[int, Callable[[int], str]]] = field(default_factory=dict)
    """Line of the screen with titles -> number of its table, and a function from a cell to the title there."""
    hidden: int = 0
    """Number of rows that do not fit on the screen."""


@dataclass
class View:
    """The user's choices; `press` changes them."""

    sorts: list[str] = field(default_factory=lambda: ["", ""])
    """Title of the column by which each table is sorted; "" for none."""
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    paused: bool = False
    processes: bool = True
    graphs: bool = True
    cores: bool = False
    help: bool = False
    details: bool = False
    selected: Row | None = None
    firsts: list[int] = field(default_factory=lambda: [0, 0])
    """Index of the first visible row of each table."""
    page: int = 1
    """Rows that Page Up and Page Down move, from the last drawing."""
    drawn: Drawn = field(default_factory=Drawn)
    zoom: int | None = None
    """Index in STEPS; None shows all that is known, up to two seconds per dot."""
    back: float = 0
    """Seconds that the graphs end before now."""
    message: str = ""
    """Message about the last key."""
    orders: list[str] = field(default_factory=list)
    """Orders to the program: quit, or a key of the program or of a player."""

    @property
    def step(self) -> int:
        """Most seconds of one dot in the graphs."""
        return STEPS[1 if self.zoom is None else self.zoom]

    @property
    def table(self) -> int:
        """The table of the selected row: 0 for devices, 1 for processes."""
        rows = self.drawn.rows
        return int(self.selected in rows[1] or not rows[0])

    def press(self, key: str) -> None:
        """Act on a key, named as in `terminal.keys`."""
        self.message = ""
        moves = {"up": -1, "down": 1, "pageup": -self.page, "pagedown": self.page, "home": -FAR, "end": FAR}
        moves |= {"wheel up": -WHEEL, "wheel down": WHEEL}
        if self.typing:
            self._type(key)
        elif key in moves:
            self._move(moves[key])
        elif key.startswith("click "):
            _, x, y = key.split()
            self._click(int(x), int(y))
        else:
            self._choose(key)

    def _choose(self, key: str) -> None:
        times = {"left": 30 * self.step, "right": -30 * self.step}
        if key in SWITCHES:
            setattr(self, SWITCHES[key], not getattr(self, SWITCHES[key]))
        elif key in ZOOMS:
            self.zoom = min(max((1 if self.zoom is None else self.zoom) + ZOOMS[key], 0), len(STEPS) - 1)
        elif key in ("s", "S"):
            titles = ["", *self.drawn.columns[self.table][1:]]
            at = titles.index(now) if (now := self.sorts[self.table]) in titles else 0
            self.sorts[self.table] = titles[(at + (1 if key == "s" else -1)) % len(titles)]
        elif key == "/":
            self.typing, self.filter = True, ""
        elif key == "escape":
            self.filter, self.help, self.details, self.back, self.selected = "", False, False, 0, None
        elif key == "tab":
            other = self.drawn.rows[1 - self.table]
            self.selected = other[0] if other else self.selected
        elif key == "enter":
            self._enter()
        else:
            self.back = max(0, self.back + times.get(key, 0))
            self.orders.append("quit" if key == "q" else key)

    def _move(self, rows: int) -> None:
        """Move the selection by a number of rows."""
        if every := [row for table in self.drawn.rows for row in table]:
            at = every.index(self.selected) if self.selected in every else -(rows > 0)
            self.selected = every[min(max(at + rows, 0), len(every) - 1)]

    def _click(self, x: int, y: int) -> None:
        """Act on a click: select a row, act on the selected one as Enter does, or sort by a title."""
        row = self.drawn.lines.get(y)
        if self.help or self.details:
            self.help = self.details = False
        elif row and row == self.selected:
            self._enter()
        elif row:
            self.selected = row
        elif y in self.drawn.titles:
            table, title_at = self.drawn.titles[y]
            title = title_at(x)
            self.reverse = not self.reverse if self.sorts[table] == title else False
            self.sorts[table] = title

    def _enter(self) -> None:
        """Show or hide the details of the selected process."""
        if self.selected in self.drawn.rows[1]:
            self.details = not self.details
        else:
            self.message = "choose a process first: arrows, Tab, or a click"

    def _type(self, key: str) -> None:
        """Take a key while the user types the filter."""
        if key in ("enter", "escape"):
            self.typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable() and len(self.filter) < 40:
            self.filter += key
