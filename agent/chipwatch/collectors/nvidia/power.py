"""Computes the power of a GPU from its energy counter."""

from __future__ import annotations

import math
from typing import Final

from chipwatch.collectors.nvidia.query import SECOND
from chipwatch.host.gpu_metrics import MOST, OVERSHOOT

MIN_ELAPSED: Final = SECOND // 2
"""Shortest time (ns) for a mean: the energy counter increases in steps."""


class Power:
    """The mean power since the last tick, from the energy counter, because the sensor gives momentary values."""

    def __init__(self) -> None:
        self.limit: float | None = None
        """The enforced power limit (W); None if unknown."""
        self.most = MOST["W"]
        """Most power that the GPU can draw for a moment (W)."""
        self._base: tuple[int | None, int, float] | None = None
        """Start of the mean: the counter's start time, the time (monotonic ns), the energy (mJ)."""

    def most_energy(self, now: int) -> float:
        """Return the largest possible increase of the energy (J) until `now`, plus a second for the counter's steps."""
        return MOST["W"] * ((now - self._base[1]) / SECOND + 1) if self._base else math.inf

    def mean(self, energy: float, start_time: int | None, now: int) -> float | None:
        """Return the mean power (W) until `now` (monotonic ns) from the energy (mJ); None if unknown."""
        base = self._base
        if base is None or base[0] != start_time:
            self._base = start_time, now, energy
        elif now - base[1] >= MIN_ELAPSED:
            self._base = start_time, now, energy
            return (energy - base[2]) / (now - base[1]) * 1e6
        return None

    def take_limit(self, watts: float | None) -> None:
        """Set the power limit (W); None if unknown."""
        self.limit = watts
        self.most = min(MOST["W"], OVERSHOOT * watts) if watts else MOST["W"]
