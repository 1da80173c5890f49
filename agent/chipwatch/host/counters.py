"""Counters of the host: finds resets, and sums counters of members that come and go."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Metric, start_after
from chipwatch.host.procfs import boot_time

if TYPE_CHECKING:
    from chipwatch.host.last_values import LastValues

Member = TypeVar("Member")


class MemberSum:
    """
    The sum of the counters of members, such as disks, that come, go and are reset. It begins at 0 and never falls.

    A member adds what it gained since the last reading. If it fell, it was reset, and adds its value. A new member adds
    nothing in its first reading, since it may have counted elsewhere before. What a member added stays when it goes.
    A single 0 of a member is ignored, as in `Life`.
    """

    def __init__(self) -> None:
        self._last: Mapping[Any, float] = {}
        self._doubted: dict[Any, float] = {}
        """The members that fell to 0 in the last reading, with their values before."""
        self.value: float = 0
        self.start_time: int | None = None
        """Time at which the sum was 0 (ns since the epoch); None before the first reading."""

    def take(self, members: Mapping[Any, float], at: int) -> None:
        """Take the values of all members, which were read at `at` (ns since the epoch)."""
        if self.start_time is None:
            self.start_time = at
        last, doubted = self._last, dict[Any, float]()
        for name, value in members.items():
            before = last.get(name, value)
            if value < before and not value and name not in self._doubted:
                doubted[name] = before
            else:
                self.value += value - before if value >= before else value
        self._last, self._doubted = {**members, **doubted} if doubted else members, doubted


class Life:
    """
    Finds the start time of one counter. Its driver or its device may reset it at any moment.

    When the value falls, the counter was reset after the reading before. The time of that reading is then the start
    time, so no count is lost. A single 0 is ignored: a failing device may report it, and would seem to jump afterwards.
    """

    def __init__(self, start_time: int | None = None, value: float = 0, last: int = 0) -> None:
        """
        Take the time at which the counter was zero (ns since the epoch); None: it starts at its first reading.

        `value` is the last reading of an earlier run, and `last` is its time.
        """
        self._last = last
        self._doubted: float | None = None
        """The last reading, if it was ignored."""
        self.start_time = start_time
        self.value = value
        """The last reading that is trusted."""

    def take(self, value: float, at: int, most: float = math.inf) -> bool:
        """
        Take a reading at `at` (ns since the epoch); return whether it is trusted.

        A fall to 0, and a rise by more than `most`, are ignored until a second reading confirms them.
        """
        last, self._last = self._last, at
        falls = value < self.value
        leaps = self.start_time is not None and value - self.value > most
        is_confirmed = self._doubted is not None and 0 <= value - self._doubted <= most
        if (leaps or (falls and not value)) and not is_confirmed:
            self._doubted = value
            return False
        if self.start_time is None or leaps:
            self.start_time = at
        elif falls:
            self.start_time = start_after(last, self.start_time, at)
        self.value, self._doubted = value, None
        return True


class Counters:
    """Makes the points of a collector's counters: of single ones by `point`, of sums over members by `total`."""

    def __init__(
        self, start_time: int | None = None, *, kept: LastValues | None = None, device: Path | None = None
    ) -> None:
        """
        Take the time at which single counters were zero (ns since the epoch), or None if it is not known.

        Or take `kept`, the values of an earlier run, and the folder of the counters' `device` in sysfs.
        """
        self._start_time, self._kept, self._device = start_time, kept, device
        self._lives: dict[tuple[str, Dimensions], Life] = {}
        self._sums: dict[tuple[str, Dimensions], MemberSum] = {}

    def point(self, metric: Metric, at: int, value: float, dims: Dimensions = NO_DIMENSIONS) -> Datapoint:
        """Return the point of a reading; its value is the last one that is trusted."""
        key = metric.name, dims
        if (life := self._lives.get(key)) is None:
            series = f"{metric.name} {dict(dims)}"
            life = self._kept.life(series, at, self._device) if self._kept else Life(self._start_time)
            self._lives[key] = life
        life.take(value, at)
        return metric.point(at, life.value, dims, start_time=life.start_time)

    def restart(self) -> None:
        """Begin single counters again at their next reading, which comes from another source."""
        self._start_time, self._lives = None, {}

    def total(
        self, metric: Metric, at: int, members: Mapping[Member, float], dims: Dimensions = NO_DIMENSIONS
    ) -> Datapoint:
        """Return the point of the sum over all `members`, whose values are given by name; see `MemberSum`."""
        key = metric.name, dims
        added = self._sums.get(key) or self._sums.setdefault(key, MemberSum())
        added.take(members, at)
        return metric.point(at, added.value, dims, start_time=added.start_time)


def counting_since(proc: Path) -> int | None:
    """Return the time of this host's boot, when its counters were zero (ns since the epoch), or None."""
    if sys.platform == "linux":
        return boot_time(proc)
    import psutil

    return int(psutil.boot_time() * 1e9)
