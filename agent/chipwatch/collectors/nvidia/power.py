"""The energy and the power of a GPU."""

from __future__ import annotations

import math
from typing import Final

from chipwatch.collectors.nvidia.query import SECOND
from chipwatch.host.gpu_metrics import MOST, OVERSHOOT

MIN_ELAPSED: Final = SECOND // 2
"""Shortest time (ns) for computing power from the energy counter, which increases in steps."""


class Power:
    """Computes the mean power since the last tick from the energy: the sensor gives momentary values."""

    def __init__(self) -> None:
        self.limit: float | None = None
        """The limit that is enforced (W), None if not known."""
        self.most = MOST["W"]
        """The most that the GPU can draw for a moment (W)."""
        self._base: tuple[int | None, int, float] | None = None
        """The start time of the counter, and the time (monotonic ns) and the energy (mJ) that the mean begins at."""

    def most_energy(self, now: int) -> float:
        """Return the largest possible rise of the energy (J): of a second more, since it increases in steps."""
        return MOST["W"] * ((now - self._base[1]) / SECOND + 1) if self._base else math.inf

    def mean(self, energy: float, start_time: int | None, now: int) -> float | None:
        """Return the mean (W) until `now` (monotonic ns) by the energy (mJ), None if it is not known."""
        base = self._base
        if base is None or base[0] != start_time:
            self._base = start_time, now, energy
        elif now - base[1] >= MIN_ELAPSED:
            self._base = start_time, now, energy
            return (energy - base[2]) / (now - base[1]) * 1e6
        return None

    def take_limit(self, watts: float | None) -> None:
        """Take the limit (W)."""
        self.limit = watts
        self.most = min(MOST["W"], OVERSHOOT * watts) if watts else MOST["W"]
