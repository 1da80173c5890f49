"""The codes and keys of every terminal, and the drawing of lines that have changed."""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, Self

from rich.cells import cell_len

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

    number: int

    def __init__(self, number: int = 0) -> None:
        self.number = number


def _marks(problem: UnicodeError) -> tuple[str, int]:
    """Return as many question marks as the characters take cells."""
    assert isinstance(problem, UnicodeEncodeError)
    return "?" * cell_len(problem.object[problem.start : problem.end]), problem.end


codecs.register_error("cells", _marks)


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


class Canvas(Protocol):
    """Draws lines that have changed, and waits for keys; use it as a context, which restores the terminal."""

    _drawn: list[str]
    _stale: bool
    """True if the terminal may show something else than the last drawing."""

    def __enter__(self) -> Self:
        """Take the terminal."""

    def __exit__(self, *_: object) -> None:
        """Restore the terminal."""
        self.restore()

    def restore(self) -> None:
        """Restore the terminal; safe to call again."""

    def wake(self) -> None:
        """End the wait for keys; safe from any thread."""

    def wait(self, timeout: float) -> list[str]:
        """Return the keys that were pressed; wait for one, for `wake`, or for `timeout` seconds. Raise Ended."""

    def _write(self, text: str) -> None: ...

    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        try:
            columns, lines = os.get_terminal_size(1)
        except OSError:
            return 80, 24
        return columns or 80, lines or 24

    def draw(self, lines: list[str]) -> None:
        """Draw what differs from the last drawing; each line is as wide as the screen. Raise Ended."""
        if self._stale or len(lines) != len(self._drawn):
            self._stale, self._drawn = False, [""] * len(lines)
        new = enumerate(zip(lines, self._drawn, strict=True), 1)
        text = "".join(f"\x1b[{row};1H{line}" for row, (line, before) in new if line != before)
        self._drawn = lines
        if text:
            self._write(f"{BEGIN}{text}{END}")


def new_terminal(*, is_ascii: bool) -> Canvas:
    """Return what draws on this system; what ASCII lacks becomes question marks if it `is_ascii`, or not of UTF-8."""
    encoding = "ascii" if is_ascii or not is_utf8() else "utf-8"
    from chipwatch.top.terminal import Terminal  # noqa: PLC0415  # of Unix alone

    return Terminal(encoding)


def is_utf8() -> bool:
    """Return whether the terminal can show more than ASCII, by the encoding of standard output."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
