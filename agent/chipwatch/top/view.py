"""The user's choices of what the screen shows, changed by keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SORTS: Final = ("number", "utilization", "memory", "power", "temperature")
STEPS: Final = (1, 2, 5, 10, 30, 60, 300)
"""Seconds of one dot of the graphs."""
HELP: Final = (
    ("q", "quit"), ("? h", "this help"), ("↑ ↓", "scroll"), ("PgUp PgDn", "scroll by pages"),
    ("Home End", "first and last row"),
    ("/", "filter by number, model, state, job, user, command; Esc clears it"),
    ("s", "sort by number, utilization, memory, power or temperature"), ("r", "reverse the order"),
    ("space", "pause, and go on"), ("p", "processes"), ("g", "graphs"), ("1", "each logical CPU"),
    ("+ -", "zoom the time axis"), ("← →", "earlier and later times; in a recording ten seconds back and forth"),
    ("[ ] < >", "in a recording a minute back and forth, slower and faster"),
    ("w", "write a snapshot as JSON into the current folder"),
)  # fmt: skip
SWITCHES: Final = {
    "?": "help", "h": "help", "p": "processes", "g": "graphs", "1": "cores", "r": "reverse", " ": "paused",
}  # fmt: skip
ZOOMS: Final = {"+": -1, "=": -1, "-": 1}
ORDERS: Final = {"q": "quit", "w": "snapshot"}
LETTERS: Final = (
    "Flags: what holds the clocks down: P power, T temperature, H hardware, S sync boost, B board limit, R reliability"
)


@dataclass
class View:
    """The choices; `press` changes them."""

    sort: int = 0
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    paused: bool = False
    processes: bool = True
    graphs: bool = True
    cores: bool = False
    help: bool = False
    offset: int = 0
    """First row that is shown."""
    page: int = 1
    """Rows of a page, as of the last drawing."""
    last: int = 0
    """Largest useful offset, as of the last drawing."""
    zoom: int = 1
    back: float = 0
    """Seconds from the end of the graphs to now."""
    message: str = ""
    """Result of the last key."""
    orders: list[str] = field(default_factory=list)
    """Orders to the program: quit, snapshot, or a key of a player."""

    @property
    def step(self) -> int:
        """Seconds of one dot of the graphs."""
        return STEPS[self.zoom]

    def press(self, key: str) -> None:
        """Take a key, named as in `terminal.keys`."""
        self.message = ""
        if self.typing:
            self._type(key)
            return
        moves = {"up": -1, "down": 1, "pageup": -self.page, "pagedown": self.page, "home": -self.last, "end": self.last}
        times = {"left": 30 * self.step, "right": -30 * self.step}
        if key in moves:
            self.offset = min(max(self.offset + moves[key], 0), self.last)
        elif key in SWITCHES:
            setattr(self, SWITCHES[key], not getattr(self, SWITCHES[key]))
        elif key in ZOOMS:
            self.zoom = min(max(self.zoom + ZOOMS[key], 0), len(STEPS) - 1)
        elif key == "s":
            self.sort = (self.sort + 1) % len(SORTS)
        elif key == "/":
            self.typing, self.filter = True, ""
        elif key == "escape":
            self.filter, self.help, self.back = "", False, 0
        else:
            self.back = max(0, self.back + times.get(key, 0))
            self.orders.append(ORDERS.get(key, key))

    def _type(self, key: str) -> None:
        """Take a key of the filter's text."""
        if key in ("enter", "escape"):
            self.typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable() and len(self.filter) < 40:
            self.filter += key
