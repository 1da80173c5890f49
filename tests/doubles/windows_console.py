"""msvcrt and kernel32 as far as a full screen needs them, over a terminal of Linux whose line discipline does nothing."""

import os
import select
from pathlib import Path
from types import ModuleType, SimpleNamespace

OUTPUT, HANDLE, MODE = -11, 7, 3
"""STD_OUTPUT_HANDLE, the handle behind it, and a console's mode before a program changes it."""
SELECT = select.select


class Kernel32:
    """Keeps the mode of the console, and notes each change in a file."""

    def __init__(self, notes: Path) -> None:
        self._notes, self._mode = notes, MODE

    def GetStdHandle(self, number: int) -> int:  # noqa: N802
        assert number == OUTPUT
        return HANDLE

    def GetConsoleMode(self, handle: int, mode: object) -> int:  # noqa: N802
        assert handle == HANDLE
        mode._obj.value = self._mode  # type: ignore[attr-defined]
        return 1

    def SetConsoleMode(self, handle: int, mode: int) -> int:  # noqa: N802
        assert handle == HANDLE
        self._mode = mode
        with self._notes.open("a") as notes:
            notes.write(f"{mode}\n")
        return 1


def consoles(notes: Path) -> tuple[ModuleType, SimpleNamespace]:
    """Return msvcrt, and what ctypes has as `windll`."""
    msvcrt = ModuleType("msvcrt")
    msvcrt.kbhit = lambda: bool(SELECT([0], [], [], 0)[0])  # type: ignore[attr-defined]
    msvcrt.getwch = lambda: os.read(0, 1).decode("latin-1")  # type: ignore[attr-defined]
    return msvcrt, SimpleNamespace(kernel32=Kernel32(notes))
