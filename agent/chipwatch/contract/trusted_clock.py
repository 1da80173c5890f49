"""A wall clock that is checked before it is used to judge the age of points."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

MAX_DRIFT: Final = 60 * 10**9
"""Nanoseconds by which the wall clock may differ from the monotonic clock, or from a service's clock."""
PROBATION: Final = 600 * 10**9
"""Nanoseconds for which the wall clock must not step before it is trusted."""


class TrustedClock:
    """
    Returns the time of the wall clock, or None while that cannot be trusted.

    It is trusted once it has run like the monotonic clock for PROBATION. While it is not, nobody drops points for their
    age, and the service decides which are too old. So a short step of the clock loses no points.
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Take both clocks (ns)."""
        self._wall, self._monotonic = wall, monotonic
        self._offset, self._trusted_from = wall() - monotonic(), monotonic() + float(PROBATION)

    def __call__(self) -> int | None:
        """Return the time (ns since the epoch), or None while it is not trusted."""
        now, wall = self._monotonic(), self._wall()
        if abs(wall - now - self._offset) > MAX_DRIFT:
            self._offset, self._trusted_from = wall - now, now + float(PROBATION)
        if now < self._trusted_from:
            return None
        self._offset = wall - now
        return wall

    def compare(self, service_time: int) -> None:
        """Trust the clock at once if it agrees with a service's time (ns), else no more until it is set again."""
        now, wall = self._monotonic(), self._wall()
        agrees = abs(wall - service_time) <= MAX_DRIFT
        self._offset, self._trusted_from = wall - now, now if agrees else math.inf


TRUSTED_CLOCK: Final = TrustedClock()
"""The clock of this machine, shared by all sinks."""
