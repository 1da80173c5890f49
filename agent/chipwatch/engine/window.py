"""Turns the samples of each series into one datapoint for each window."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final

from chipwatch.contract.datapoint import COUNTER, Datapoint, Dimensions, Metric, Summary, new, start_after
from chipwatch.contract.sink import SLACK

MOST_VALUES: Final = 150
"""Most distinct values of a summary; CloudWatch takes no more in one datum."""
MAX_RANK_ERROR: Final = 0.01
"""Largest error of a percentile after values were merged, as a share of all samples."""
FORGET: Final = 3600 * 10**9
"""Nanoseconds without a reading after which a counter is forgotten."""
MOST_GONE: Final = 50_000
"""Most counters without a reading that are remembered: about 30 MB."""

Series = tuple[str, Dimensions]
ONCE: Final = (1,)


def summarise(samples: list[float]) -> Summary:
    """Return a summary of `samples`; above 150 distinct values, neighbours are merged into their mean."""
    ordered = sorted(samples)
    seen = Counter(ordered)  # its keys ascend, as a dict keeps their order
    values, sizes = [*seen], [*seen.values()]
    if len(seen) > MOST_VALUES:
        sizes = [sizes[0], *_merged(sizes[1:-1], len(samples) * MAX_RANK_ERROR), sizes[-1]]
        ends = [*accumulate(sizes)]
        values = [_mean(ordered[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    return Summary(len(samples), _sum(samples), ordered[0], ordered[-1], tuple(values), tuple(sizes), samples[-1])


def _merged(sizes: list[int], most: float) -> list[int]:
    """
    Merge neighbouring values into bins; return the number of samples in each bin.

    `sizes` are the numbers of samples at each value, in the order of the values. At most `most` samples of a bin lie
    below its mean, and at most `most` above it. `most` grows until the bins are few enough.
    """
    bins: list[int] = []
    first = 0
    for size in sizes:
        if bins and bins[-1] + size - min(first, size) <= most:
            bins[-1] += size
        else:
            bins.append(size)
            first = size
    return bins if len(bins) <= MOST_VALUES - 2 else _merged(sizes, most * 1.05)


def _mean(ordered: list[float]) -> float:
    return min(max(_sum(ordered) / len(ordered), ordered[0]), ordered[-1])  # rounding may exceed them


def _sum(samples: list[float]) -> float:
    """Return the sum; the largest float if the sum is larger."""
    try:
        return math.fsum(samples)
    except OverflowError:
        total = math.fsum([value / 2**64 for value in samples]) * 2.0**64
        return min(max(total, -sys.float_info.max), sys.float_info.max)


class _Gauge:
    """The samples of a gauge in the open window: the first point, the values of the others, and the last time."""

    __slots__ = ("at", "first", "more", "start")

    def __init__(self, at: int) -> None:
        self.first: Datapoint | None = None
        self.at = self.start = at
        self.more: list[float] = []


class _Counter:
    """The last reading of a counter, and its increase in the open window so far."""

    __slots__ = ("began", "given", "holds_zero", "increase", "is_seen", "point", "start")

    def __init__(self, point: Datapoint, *, holds_zero: bool) -> None:
        self.point, self.holds_zero = point, holds_zero
        self.given: int | None
        """The start time that the collector set."""
        self.began: int | None = None
        """The start time to send instead, if the counter was reset and the collector did not notice."""
        self.start = point.at
        self.increase: float | None = None
        self.is_seen = False


class Increases:
    """The counters of one route: the last reading of each, and its increase in the open window so far."""

    def __init__(self, *, born: int, increases: bool, holds_zero: Callable[[Metric], bool]) -> None:
        """Take the arguments of Window."""
        self._born, self._increases, self._holds_zero = born, increases, holds_zero
        self._known: dict[Series, _Counter] = {}
        self._ends = 0
        self.seen: list[_Counter] = []
        """The counters that have a reading in the open window."""

    def __len__(self) -> int:
        """Return how many counters are remembered."""
        return len(self._known)

    def turn_back(self, at: int) -> None:
        """Note that the clock was set back to `at`: a counter that starts from now on started while the agent ran."""
        self._born = min(self._born, at - 1)

    def end(self, last: int, earliest: int = 0) -> list[Datapoint]:
        """End the window; return a datapoint for each counter in it, stamped `earliest` (ns) or later."""
        done = []
        for state in self.seen:
            metric, value, dims, at, start_time, _, _, _ = state.point
            start, gain = state.start, state.increase
            if (gain is not None or not self._increases) and (value or not state.holds_zero):
                end, start = at if at > earliest else earliest, start if start < at else at  # noqa: FURB136  twice as fast
                done.append(new(Datapoint, (metric, value, dims, end, start_time, start, None, gain)))
            state.start, state.increase, state.is_seen = at, None, False
        self._ends += 1
        crowd, live, self.seen = len(self._known), len(self.seen), []
        if self._ends % 64 == 0 or crowd - live > MOST_GONE:
            horizon = last - FORGET
            if crowd - live > MOST_GONE:
                horizon = sorted(state.point.at for state in self._known.values())[-live - MOST_GONE // 2]
            self._known = {k: s for k, s in self._known.items() if s.point.at > horizon}
            if len(self._known) < crowd:  # a forgotten counter that returns is not new
                self._born = max(self._born, horizon)
        return done

    def add(self, point: Datapoint, wants: Callable[[Metric], bool]) -> bool:
        """Add the increase of a counter since its last reading; return True if the last reading has the same time."""
        key = (point.metric.name, point.dims)
        state = self._known.get(key)
        last = state.point if state else None
        if state is None:
            if not wants(point.metric):
                return False
            state = self._known[key] = _Counter(point, holds_zero=self._holds_zero(point.metric))
        gain: float | None
        if last is not None and last.at == point.at:
            return True
        if last is not None and point.start_time == state.given and point.value >= last.value:
            gain = point.value - last.value
            if gain and not last.value and state.holds_zero:
                state.began = start_after(last.at, last.start_time or 0, point.at)
        else:
            gain = self._rise_from_zero(state, last, point)
            state.given = point.start_time
        if state.began is not None:
            point = point._replace(start_time=state.began)
        if gain is not None:
            state.increase = gain if state.increase is None else state.increase + gain
        elif state.increase is None:
            state.start = point.at
        state.point = point
        if not state.is_seen:
            state.is_seen = True
            self.seen.append(state)
        return False

    def _rise_from_zero(self, state: _Counter, last: Datapoint | None, point: Datapoint) -> float | None:
        """
        Return the increase of a counter that is new, fell, or has another start time; None if it is not known.

        A counter that started after the last reading has increased from 0. A counter that fell was reset: it has also
        increased from 0, and without a newer start time it gets one after the last reading. A start time that is older
        than the last one is wrong, and the last one stays.
        """
        start_time, before = point.start_time or 0, (last.start_time or 0) if last is not None else 0
        state.began = None
        if last is not None and point.value < last.value and start_time <= before:
            state.began = start_after(last.at, before, point.at)
            return point.value
        if last is not None and start_time < before <= point.at:
            state.began = before
        elif point.start_time is not None and (self._born if last is None else last.at) <= start_time < point.at:
            if last is None:
                state.start = start_time
            return point.value
        return None


class Window:
    """
    Aggregates the samples of one route, window after window.

    Windows are aligned to the clock (one of 60 s is a minute of the day), so that machines can be compared. A window
    ends with the first samples of the next one, or with `close`. With `seconds` = 0, each call of `add` is a window:
    gauges stay as they are, counters get their increase.
    """

    def __init__(
        self,
        seconds: float,
        *,
        born: int,
        increases: bool = False,
        spacing: float = 0.0,
        ended: int | None = None,
        first: float | None = None,
        holds_zero: Callable[[Metric], bool] = lambda _: False,
    ) -> None:
        """
        Take the length of a window in seconds, and the start of this agent (ns since the epoch).

        With `increases`, a counter whose increase is unknown yields no datapoint. A window that would end less than
        `spacing` seconds after the last one goes on for another length; `ended` (ns) is the end of the last window
        before a restart. The very first window ends after `first` seconds, if that is sooner.

        A counter that `holds_zero` accepts yields no datapoint while it is 0. Once it rises, its start time is its last
        reading at 0, so that a receiver sees the first event whole.
        """
        self._length = int(seconds * 1e9)
        self._slot: int | None = None
        self._last = born
        self._spacing, self._slack = int(spacing * 1e9), int(min(spacing, SLACK) * 1e9)
        self._ended = None if ended is None else ended + self._slack  # the sink may have shifted the end so far
        self._first = math.inf if first is None else int(first * 1e9)
        self._early = math.inf
        self._gauges: dict[Series, _Gauge] = {}
        self._counters = Increases(born=born, increases=increases, holds_zero=holds_zero)
        self.repeated: Datapoint | None = None
        """A point that was left out, since its series already has a value of the same time; or None."""

    def add(
        self, points: Iterable[Datapoint], at: int, wants: Callable[[Metric], bool] = lambda _: True
    ) -> list[Datapoint]:
        """
        Add the samples of the tick at `at` (ns) that `wants` accepts; return the datapoints of a window that ended.

        `wants` is called only for a series that is new in the window.
        """
        done, is_each = self._turn(at), not self._length
        gauges, counters = self._gauges, self._counters
        for point in points:
            metric = point.metric
            if metric.kind is COUNTER:
                if counters.add(point, wants):
                    self.repeated = point
                continue
            if is_each:
                if wants(metric):
                    done.append(point)
                continue
            key = (metric.name, point.dims)
            if (gauge := gauges.get(key)) is None:
                if not wants(metric):
                    continue
                gauge = gauges[key] = _Gauge(point.at)
            if gauge.first is None:
                gauge.first = point
            elif gauge.at == point.at:
                self.repeated = point
            else:
                gauge.more.append(point.value)
            gauge.at = point.at
        return done + counters.end(at) if is_each else done

    def _turn(self, at: int) -> list[Datapoint]:
        """Begin the tick at `at` (ns); if a window ends with it, return the window's datapoints."""
        done: list[Datapoint] = []
        if at < self._last:
            self._counters.turn_back(at)
        if self._length:
            slot = at // self._length
            if slot != self._slot or at >= self._early:
                done = [] if self.is_short else self.close()
                self._early = at + self._first if self._slot is None else math.inf
            self._slot = slot
        self._last = at
        return done

    def first_seconds(self, interval: float) -> float:
        """Return the seconds until the first window ends, about; `interval` is the seconds between ticks."""
        length = min(self._length, self._first)
        return math.ceil(length / 1e9 / interval) * interval if interval else 0.0

    @property
    def is_short(self) -> bool:
        """True while the last window ended too recently to end this one."""
        ended, spacing = self._ended, self._spacing
        return ended is not None and ended - 2 * spacing <= self._last < ended + spacing - self._slack

    def prime(self, points: Iterable[Datapoint], at: int, wants: Callable[[Metric], bool] = lambda _: True) -> None:
        """Take a first reading that is not sent: increases of counters begin at it."""
        ended = self._ended
        self.add(points, at, wants)
        self.close()
        self._ended = ended

    def close(self) -> list[Datapoint]:
        """
        End the window; return a datapoint for each of its series.

        Two windows end at least `spacing` apart: datapoints of one that ends earlier get the earliest time allowed.
        """
        done, earliest = [], 0
        if self._spacing and self._ended is not None and self._last >= self._ended - 2 * self._spacing:
            earliest = self._ended + self._spacing - self._slack  # for the reading of a counter that came late, too
            if self.is_short:
                earliest = self._last = self._ended + self._spacing
        gone, last = [], self._last
        for key, gauge in self._gauges.items():
            if (first := gauge.first) is None:
                gone.append(key)
                continue
            metric, value, dims, _, _, _, _, _ = first
            if gauge.more:
                total = summarise([value, *gauge.more])
                gauge.more.clear()
                mean = min(max(total.sum / total.count, total.minimum), total.maximum)  # rounding may exceed them
            else:
                total, mean = new(Summary, (1, value, value, value, (value,), ONCE, value)), float(value)
            done.append(new(Datapoint, (metric, mean, dims, last, None, min(last, gauge.start), total, None)))
            gauge.first, gauge.start = None, gauge.at
        if len(gone) < len(self._gauges) or self._counters.seen:  # if nothing was read at all, keep all gauges
            for key in gone:
                del self._gauges[key]
        done += self._counters.end(self._last, earliest)
        if done:
            due = self._last if self._ended is None else self._ended + self._spacing
            self._ended = due if 0 < due - self._last <= self._slack else self._last  # the sink shifts the end to `due`
        return done
