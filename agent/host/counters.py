"""Counters: their start time, and their sum over a changing set."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Metric
from agent.host.procfs import boot_time


class ChangingSum:
    """
    The sum of counters over a set whose members come, go and restart; it never falls or jumps.

    It begins with the total of the first readings, and adds each member's increase between two consecutive readings.
    A member that fell, or that is new, adds nothing until its next reading.
    """

    def __init__(self) -> None:
        self._last: Mapping[str, int] | None = None
        self.total = 0
        """The sum as of the last readings."""

    def add(self, readings: Mapping[str, int]) -> int:
        """Take the readings by name; return the sum."""
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
    Finds the start time of a driver's counter, which restarts at an unknown moment with the driver or the device.

    Ignores one drop: a failing device may report 0, and the recovery would look like a jump.
    """

    def __init__(self, start_time: int | None = None) -> None:
        """Take when the counter was zero (ns since the epoch); None: not known, it counts from its first reading."""
        self._fell = False
        self.start_time = start_time
        self.value: float = 0
        """The last reading to trust."""

    def take(self, value: float, at: int, most: float = math.inf) -> bool:
        """
        Take a reading at `at` (ns since the epoch); return whether to trust it.

        A rise by more than `most` is impossible, and is handled like a drop.
        """
        falls = not 0 <= value - self.value <= most
        if falls and not self._fell:
            self._fell = True
            return False
        if falls or self.start_time is None:
            self.start_time = at
        self.value, self._fell = value, False
        return True


class Counters:
    """Makes points of counters that a driver restarts: each series has a `Life`."""

    def __init__(self, start_time: int | None = None) -> None:
        """Take when the counters were zero (ns since the epoch); None: not known."""
        self._start_time = start_time
        self._lives: dict[tuple[str, Dimensions], Life] = {}

    def point(self, metric: Metric, at: int, value: float, dims: Dimensions = NO_DIMENSIONS) -> Datapoint:
        """Return the point of a reading, with the last value to trust."""
        key = metric.name, dims
        life = self._lives.get(key) or self._lives.setdefault(key, Life(self._start_time))
        life.take(value, at)
        return metric.point(at, life.value, dims, start_time=life.start_time)


def counting_since(proc: Path) -> int | None:
    """Return when this host booted and its counters were zero (ns since the epoch), or None."""
    if sys.platform == "linux":
        return boot_time(proc)
    import psutil  # noqa: PLC0415  # takes 4 MB that Linux does not need

    return int(psutil.boot_time() * 1e9)
