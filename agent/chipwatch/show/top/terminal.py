"""The terminal: draws on its alternate screen, reads keys without echo, and restores everything at the end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Final, Self

MOUSE: Final = "\x1b[?1000{0}\x1b[?1006{0}"
"""Code that turns reports of mouse buttons and wheel on (h) or off (l), with SGR coordinates."""
ENTER: Final = f"\x1b[?1049h\x1b[?25l\x1b[?7l{MOUSE.format('h')}\x1b[2J"
"""Code to take the screen. Line wrap is off: a terminal may show a character wider than we count."""
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Codes around a frame: terminals with synchronized output show it at once, others ignore them."""
LEAVE: Final = f"{END}{MOUSE.format('l')}\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
NAMED: Final = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "OA": "up", "OB": "down", "OC": "right", "OD": "left",
    "[5~": "pageup", "[6~": "pagedown", "[H": "home", "[F": "end", "OH": "home", "OF": "end",
    "[1~": "home", "[4~": "end",
}  # fmt: skip
WHEEL: Final = {"[<64;": "wheel up", "[<65;": "wheel down"}
CLICK: Final = re.compile(r"\[<0;(\d{1,5});(\d{1,5})M")
PLAIN: Final = {"\t": "tab", "\x7f": "backspace", "\x08": "backspace", "\r": "enter", "\n": "enter", "\x1b": "escape"}
SEQUENCE: Final = re.compile(r"\x1b(\[[0-9;]*[~A-Za-z]|\[<[0-9;]*[Mm]|O[A-Za-z])|(.)", re.DOTALL)
UNFINISHED: Final = re.compile(rb"\x1b(\[<?[0-9;]*|O)?$")
REST: Final = 0.05
"""Seconds to wait for the rest of a key's escape sequence."""
PATIENCE: Final = 1.0
"""Seconds to wait for a terminal whose output is stopped (Ctrl-S) before leaving it unrestored."""
ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Ended(Exception):
    """The terminal is gone, or a signal ends the program; `number` is the signal's, or 0."""

    def __init__(self, number: int = 0) -> None:
        self.number = number


def keys(text: str) -> Iterator[str]:
    """
    Yield the keys in a terminal's input: characters, and names such as `up`; unknown sequences are left out.

    `click X Y` is a press of the left mouse button on a cell (from 0).
    """
    for match in SEQUENCE.finditer(text):
        if click := CLICK.match(match[1] or ""):
            yield f"click {int(click[1]) - 1} {int(click[2]) - 1}"
        elif name := NAMED.get(match[1]) or WHEEL.get(match[1][:5]) if match[1] else PLAIN.get(match[2], match[2]):
            yield name


def refused(env: Mapping[str, str]) -> str | None:
    """Return why no screen can be drawn on this terminal; None if it can."""
    if not (os.isatty(0) and os.isatty(1)):
        return "standard input and output are not a terminal"
    if env.get("TERM", "") in ("", "dumb", "unknown"):
        return f"the terminal (TERM={env.get('TERM', '')}) cannot move its cursor"
    return None


class Terminal:
    """Draws changed lines and waits for keys. A with-block takes the terminal and restores it."""

    def __init__(self) -> None:
        """Use the encoding of standard output; characters that it lacks become question marks."""
        self._encoding = sys.stdout.encoding or "utf-8"
        self._drawn: list[str] = []
        self._stale = True
        """True if the terminal may no longer show the last drawing; signal handlers set it."""
        self._before: Any = None
        self._handlers: dict[int, Any] = {}
        self._was_blocking = True
        self._cause: BaseException | None = None
        self._is_ending = False
        """True after the first signal that ends the program, and during restoration: no further signal raises."""
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)

    def __enter__(self) -> Self:
        """Take the terminal and the signals that end, stop and resize. It can be taken again after it was restored."""
        self._is_ending, self._cause = False, None
        self._before = termios.tcgetattr(0)
        interrupting = () if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else (signal.SIGINT,)
        handlers: dict[signal.Signals, Any] = {signal.SIGTSTP: self._suspend, signal.SIGWINCH: self._resized}
        for number, handler in (dict.fromkeys((*interrupting, *ENDING), self._end) | handlers).items():
            self._handlers[number] = signal.signal(number, handler)
        try:
            self._take()
        except BaseException:
            self.restore()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the terminal."""
        self.restore()

    def restore(self) -> None:
        """Restore the terminal and the signal handlers; it is safe to call it twice."""
        by_signal, self._is_ending = self._is_ending, True  # from here on no signal interrupts
        if self._handlers:
            self._release()
        while self._handlers:
            number, handler = self._handlers.popitem()
            if by_signal and number == signal.SIGINT:
                handler = signal.SIG_DFL  # a second Ctrl-C ends the program without a traceback
            signal.signal(number, handler)

    def wake(self) -> None:
        """End the wait for keys; any thread may call it."""
        with contextlib.suppress(BlockingIOError):  # a full pipe will wake it anyway
            os.write(self._wake_write, b"\0")

    def wait(self, timeout: float) -> list[str]:
        """Wait for a key, for `wake`, or for `timeout` seconds; return the pressed keys. Raise Ended."""
        ready, _, _ = select.select([0, self._wake_read], [], [], max(0.0, timeout))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if 0 not in ready:
            return []
        try:
            text = os.read(0, 1024)
            while UNFINISHED.search(text) and select.select([0], [], [], REST)[0]:
                text += os.read(0, 1024)
        except OSError:
            text = b""
        if not text:
            raise Ended
        return [*keys(text.decode("utf-8", "ignore"))]

    def size(self) -> tuple[int, int]:
        """Return the number of columns and lines."""
        try:
            columns, lines = os.get_terminal_size(1)
        except OSError:
            return 80, 24
        return columns or 80, lines or 24

    def draw(self, lines: list[str]) -> None:
        """Draw the lines that differ from the last drawing; each must be as wide as the screen. Raise Ended."""
        if self._cause:  # the loader of a plugin has swallowed the signal's exception
            raise self._cause
        if self._stale or len(lines) != len(self._drawn):
            self._stale, self._drawn = False, [""] * len(lines)
        new = enumerate(zip(lines, self._drawn, strict=True), 1)
        text = "".join(f"\x1b[{row};1H{line}" for row, (line, before) in new if line != before)
        self._drawn = lines
        if text:
            self._write(f"{BEGIN}{text}{END}")

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError as problem:
            raise Ended from problem

    def _take(self) -> None:
        tty.setcbreak(0, termios.TCSADRAIN)
        self._was_blocking, self._stale = os.get_blocking(1), True
        os.set_blocking(1, True)  # an earlier program may have changed it, and half a frame could be written
        self._write(ENTER)

    def _release(self) -> None:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, self._before)
        with contextlib.suppress(Ended):
            if select.select([], [1], [], PATIENCE)[1]:
                self._write(LEAVE)
        with contextlib.suppress(OSError):
            os.set_blocking(1, self._was_blocking)

    def _resized(self, *_: object) -> None:
        self._stale = True
        self.wake()

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Leave the screen, stop (Ctrl-Z), and take the screen again when continued."""
        del frame
        if self._is_ending:
            return
        self._release()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._suspend)
        self._take()
        self.wake()

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Raise Ended, or KeyboardInterrupt for SIGINT. Only the first signal raises: restoration must not stop."""
        del frame
        if not self._is_ending:
            self._is_ending, self._cause = True, KeyboardInterrupt() if number == signal.SIGINT else Ended(number)
            raise self._cause
