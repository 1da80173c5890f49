"""The wall clock as far as it can be trusted: a point is dropped for its age by no other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

STEP: Final = 60 * 10**9
"""Nanoseconds by which the wall clock may leave the monotonic one, or a service's, before it counts as wrong."""
LASTING: Final = 600 * 10**9
"""Nanoseconds for which it must then keep pace before it is trusted again."""


class TrustedClock:
    """
    The wall clock, or None after its start and after a step, until it has kept pace with the monotonic clock for long.

    So a clock that jumps for a moment costs nothing: while it is not trusted, the service judges what is too old.
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Take the clocks (ns)."""
        self._wall, self._monotonic = wall, monotonic
        self._lead, self._due = wall() - monotonic(), monotonic() + float(LASTING)

    def __call__(self) -> int | None:
        """Return the time (ns since the epoch), or None while it is not trusted."""
        now, wall = self._monotonic(), self._wall()
        if abs(wall - now - self._lead) > STEP:
            self._lead, self._due = wall - now, now + float(LASTING)
        if now < self._due:
            return None
        self._lead = wall - now
        return wall

    def hear(self, told: int) -> None:
        """Take a service's time (ns): a clock that agrees is trusted at once, another not before it is set right."""
        now, wall = self._monotonic(), self._wall()
        self._lead, self._due = wall - now, now if abs(wall - told) <= STEP else math.inf


TRUSTED_CLOCK: Final = TrustedClock()
"""The clock of this machine: what one sink hears of it serves all."""
