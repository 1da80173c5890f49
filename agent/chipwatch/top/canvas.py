"""The codes and keys of every terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

MOUSE: Final = "\x1b[?1000{0}\x1b[?1006{0}"
"""Reports of buttons and of the wheel, with SGR's coordinates."""
ENTER: Final = f"\x1b[?1049h\x1b[?25l\x1b[?7l{MOUSE.format('h')}\x1b[2J"
"""Without line wrap: a terminal may give a character more cells than we count."""
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Around a frame: terminals that know synchronized output show it at once, others ignore the codes."""
LEAVE: Final = f"{END}{MOUSE.format('l')}\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
NAMED: Final = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "OA": "up", "OB": "down", "OC": "right", "OD": "left",
    "[5~": "pageup", "[6~": "pagedown", "[H": "home", "[F": "end", "OH": "home", "OF": "end",
    "[1~": "home", "[4~": "end",
}  # fmt: skip
WHEEL: Final = {"[<64;": "wheel up", "[<65;": "wheel down"}
PLAIN: Final = {"\t": "tab", "\x7f": "backspace", "\x08": "backspace", "\r": "enter", "\n": "enter", "\x1b": "escape"}
SEQUENCE: Final = re.compile(r"\x1b(\[[0-9;]*[~A-Za-z]|\[<[0-9;]*[Mm]|O[A-Za-z])|(.)", re.DOTALL)
CLICK: Final = re.compile(r"\[<0;(\d{1,5});(\d{1,5})M")


class Ended(Exception):
    """The terminal is gone, or a signal ended the program."""

    def __init__(self, number: int = 0) -> None:
        self.number = number


def keys(text: str) -> Iterator[str]:
    """
    Yield the keys in a terminal's input: characters, and names of other keys; unknown sequences are left out.

    `click X Y` has the cell (from 0) on which the left button was pressed.
    """
    for match in SEQUENCE.finditer(text):
        if match[1]:
            if name := NAMED.get(match[1]) or WHEEL.get(match[1][:5]):
                yield name
            elif click := CLICK.match(match[1]):
                yield f"click {int(click[1]) - 1} {int(click[2]) - 1}"
        else:
            yield PLAIN.get(match[2], match[2])


def refused(env: Mapping[str, str]) -> str | None:
    """Return why no screen can be drawn here; None if it can."""
    if not (os.isatty(0) and os.isatty(1)):
        return "standard input and output are not a terminal"
    if env.get("TERM", "") in ("", "dumb", "unknown"):
        return f"the terminal (TERM={env.get('TERM', '')}) cannot move its cursor"
    return None
