"""Decides when to make an expensive reading, and when to try again after a failure."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

SLACK: Final = 0.5
"""Seconds by which a tick may be early for a reading that is due."""
CALM: Final = 5.0
"""Seconds between two readings of what changes slowly, where ticks are more frequent."""
SLOW: Final = 10.0
"""Seconds between two expensive readings of an accelerator."""
ZEROS: Final = 11.0
"""
Seconds, at least, between two readings that also have counters that are still 0. With readings 4.5 to 6 s apart these
are at most 15 s apart: for so long a new series stays on a page of metrics.
"""
FIRST: Final = 2
SECOND: Final = 10**9
IS_LAST: Final = ContextVar("IS_LAST", default=False)
"""True while a collector is read for the last time: then everything is due, since no later reading has it."""
MINUTE, HOUR = 60.0, 3600.0


class Pace:
    """Decides at each tick whether a reading that should happen every `interval` seconds is due."""

    def __init__(self, interval: float, *, shift: float = 0) -> None:
        """
        Take the interval in seconds.

        The first two ticks are due, since an increase needs two readings. The third reading is `shift` seconds earlier
        than the interval, so that several devices are not read in the same tick.
        """
        self._interval, self._shift = interval, shift
        self._read, self._due, self._readings = 0, 0, 0

    def is_due(self, at: int) -> bool:
        """
        Return whether to read in the tick `at` (ns), in any case in the last one; then, the next is not due.

        If the clock was set back, it is due.
        """
        if self._read <= at < self._due and self._readings >= FIRST and not IS_LAST.get():
            return False
        self._readings += 1
        seconds = self._interval - SLACK - (self._shift if self._readings == FIRST else 0)
        self._read, self._due = at, at + int(seconds * SECOND)
        return True


class Backoff:
    """Delays the next attempt after a failure: a minute, then twice as long each time, at most an hour."""

    __slots__ = ("_failures", "_until")

    def __init__(self) -> None:
        self._failures, self._until = 0, float("-inf")

    def allows(self, now: float) -> bool:
        """Return whether to try at `now` (monotonic seconds)."""
        return now >= self._until

    def fail(self, now: float) -> float:
        """Note a failure at `now`; return the delay in seconds."""
        delay = min(HOUR, MINUTE * 2.0 ** min(self._failures, 10))
        self._failures, self._until = self._failures + 1, now + delay
        return delay

    def succeed(self) -> None:
        """Forget the failures."""
        self._failures = 0
