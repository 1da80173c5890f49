"""Counters: since when they count, their sum over a set that changes, and those whose beginning nobody tells."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from agent.host.procfs import boot_time


class ChangingSum:
    """
    The sum of counters over a set whose members come, go and start anew; never falls, never leaps.

    It begins with the total of the first readings and then adds what each member gained between two readings in
    a row. A member that went back, or that was not there the time before, is only a base for its next reading.
    """

    __slots__ = ("_last", "total")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._last: Mapping[str, int] | None = None
        self.total = 0
        """The sum as of the last readings."""

    def add(self, readings: Mapping[str, int]) -> int:
        """Take the present readings by name; return the sum."""
        last, self._last = self._last, readings
        if last is None:
            self.total = sum(readings.values())
            return self.total
        for name, value in readings.items():
            before = last.get(name, value)
            if value > before:
                self.total += value - before
        return self.total


class Life:
    """
    A counter of the driver: it began at a time unknown, and begins anew with the driver or the device.

    A value that fell is held back once: a device that is about to fail may say 0 for a moment, and its return from
    there would pass for a leap.
    """

    __slots__ = ("_fell", "_last", "start_time")

    def __init__(self) -> None:
        """Begin with no reading."""
        self._last: float | None = None
        self._fell = False
        self.start_time: int | None = None
        """When this life was first read (ns since the epoch)."""

    def take(self, value: float, at: int) -> bool:
        """Take a reading; tell whether to trust it."""
        falls = self._last is not None and value < self._last
        if falls and not self._fell:
            self._fell = True
            return False
        if falls or self._last is None:
            self.start_time = at
        self._last, self._fell = value, False
        return True


def counting_since(proc: Path) -> int | None:
    """Return when the counters of this host were zero (ns since the epoch): when it booted; None: not known."""
    if sys.platform == "linux":
        return boot_time(proc)
    import psutil  # noqa: PLC0415  costs 4 MB where /proc answers already

    return int(psutil.boot_time() * 1e9)
