"""Decides when to make an expensive reading, and when to try again after a failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SLACK: Final = 0.5
"""Seconds by which a tick may be early for a reading that is due."""
CALM: Final = 5.0
"""Seconds between two readings of what changes slowly, where ticks are more frequent."""
SLOW: Final = 10.0
"""Seconds between two expensive readings of an accelerator."""
FIRST: Final = 2
HOUR: Final = 3600.0

Clock = Callable[[], float]


class Pace:
    """Decides at each tick whether a reading that should happen every `interval` seconds is due."""

    def __init__(self, interval: float, clock: Clock = time.monotonic, *, shift: float = 0) -> None:
        """
        Take the interval, and a clock (monotonic seconds).

        The first two ticks are due, since an increase needs two readings. The third reading is `shift` seconds earlier
        than the interval, so that several devices are not read in the same tick.
        """
        self._interval, self._clock, self._shift = interval, clock, shift
        self._due, self._readings = 0.0, 0

    def is_due(self, now: float | None = None) -> bool:
        """Return whether to read at `now` (by default, the clock's time); then the next is due after the interval."""
        now = self._clock() if now is None else now
        if self._readings >= FIRST and now < self._due - SLACK:
            return False
        self._readings += 1
        self._due = now + self._interval - (self._shift if self._readings == FIRST else 0)
        return True


class Backoff:
    """Delays the next attempt after a failure: `first` seconds, then twice as long each time, at most an hour."""

    __slots__ = ("_failures", "_first", "_until")

    def __init__(self, first: float = 60.0) -> None:
        """Take the first delay in seconds."""
        self._first, self._failures, self._until = first, 0, float("-inf")

    def allows(self, now: float) -> bool:
        """Return whether to try at `now` (monotonic seconds)."""
        return now >= self._until

    def fail(self, now: float) -> float:
        """Note a failure at `now`; return the delay in seconds."""
        delay = min(HOUR, self._first * 2.0 ** min(self._failures, 10))
        self._failures, self._until = self._failures + 1, now + delay
        return delay

    def succeed(self) -> None:
        """Forget the failures."""
        self._failures = 0
