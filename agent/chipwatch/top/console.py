"""The console of Windows 10 and later: keys by msvcrt, and the same codes as other terminals, without a mouse."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from typing import Final, Self

from chipwatch.top.canvas import ENTER, LEAVE, PLAIN, Canvas

OUTPUT: Final = -11
"""STD_OUTPUT_HANDLE of GetStdHandle."""
CODES: Final = 0x0004
"""ENABLE_VIRTUAL_TERMINAL_PROCESSING of SetConsoleMode."""
LOOK: Final = 0.05
"""Seconds between two looks for a key."""
FIRST: Final = ("\x00", "\xe0")
"""Either comes before the second character of a key that is not a character."""
NAMED: Final = {
    "H": "up", "P": "down", "K": "left", "M": "right", "I": "pageup", "Q": "pagedown", "G": "home", "O": "end",
}  # fmt: skip

if sys.platform == "win32":
    import msvcrt

    class Console(Canvas):
        """Looks for keys while it waits, since Windows cannot select on a console."""

        def __init__(self, encoding: str = "utf-8") -> None:
            self._encoding, self._drawn, self._stale = encoding, [""], True
            self._before: tuple[int, int] | None = None
            self._woken = threading.Event()
            self._shown = (0, 0)

        def __enter__(self) -> Self:
            output, mode = ctypes.windll.kernel32.GetStdHandle(OUTPUT), ctypes.c_uint32()
            ctypes.windll.kernel32.GetConsoleMode(output, ctypes.byref(mode))
            ctypes.windll.kernel32.SetConsoleMode(output, mode.value | CODES)
            self._before = output, mode.value
            self._write(ENTER)
            return self

        def restore(self) -> None:
            if self._before:
                self._write(LEAVE)
                ctypes.windll.kernel32.SetConsoleMode(*self._before)
                self._before = None

        def wake(self) -> None:
            self._woken.set()

        def wait(self, timeout: float) -> list[str]:
            end = time.monotonic() + timeout
            while not msvcrt.kbhit() and (left := end - time.monotonic()) > 0 and not self._woken.wait(min(left, LOOK)):
                if self._shown != self.size():
                    break
            self._woken.clear()
            self._stale |= self._shown != self.size()
            self._shown = self.size()
            pressed = []
            while msvcrt.kbhit():
                pressed.append(self._key())
            return pressed

        def _key(self) -> str:
            first = msvcrt.getwch()
            if first == "\x03":
                raise KeyboardInterrupt
            return NAMED.get(msvcrt.getwch(), "") if first in FIRST else PLAIN.get(first, first)

        def _write(self, text: str) -> None:
            sys.stdout.write(text.encode(self._encoding, "cells").decode(self._encoding))
            sys.stdout.flush()
