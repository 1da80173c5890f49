"""Samples of a series -> one datapoint a window."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final

from agent.datapoint import Datapoint, Dimensions, Kind, Metric, Summary
from agent.sink import SLACK

MOST_VALUES: Final = 150
"""Distinct values a summary keeps: CloudWatch takes no more in one datum."""
RANK: Final = 0.01
"""How far, in ranks of all samples, a percentile of a summary with fewer values than were seen may be off."""
FORGET: Final = 3600 * 10**9
"""Nanoseconds after which the last reading of a counter that is gone is forgotten."""

COUNTER: Final = Kind.COUNTER  # a constant of a module is read at half the cost of an enum's member
Series = tuple[str, Dimensions]


def everything(_: Metric) -> bool:
    """Tell that any metric is wanted."""
    return True


def summarise(samples: list[float]) -> Summary:
    """Return what is known of `samples`; of more than 150 distinct values, neighbours are replaced by their mean."""
    if len(samples) == 1:
        value = samples[0]
        return Summary(1, value, value, value, (value,), (1,), value)
    ordered = sorted(samples)
    seen = Counter(ordered)  # its keys ascend as well
    values, sizes = [*seen], [*seen.values()]
    if len(seen) > MOST_VALUES:
        sizes = [sizes[0], *_merged(sizes[1:-1], len(samples) * RANK), sizes[-1]]
        ends = [*accumulate(sizes)]
        values = [_mean(ordered[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    return Summary(len(samples), _sum(samples), ordered[0], ordered[-1], tuple(values), tuple(sizes), samples[-1])


def _merged(sizes: list[int], most: float) -> list[int]:
    """
    Return the sizes of bins for values in ascending order, of which each was seen as often as `sizes` says.

    Wherever between its ends the mean of a bin lies, at most `most` samples of the bin are below it, and above it.
    Where so few bins are not enough (dozens of values, each seen more often than that), they get larger.
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
    return min(max(_sum(ordered) / len(ordered), ordered[0]), ordered[-1])  # a sum is rounded


def _sum(samples: list[float]) -> float:
    """Return the sum, at most the largest float."""
    try:
        return math.fsum(samples)
    except OverflowError:
        total = math.fsum([value / 2**64 for value in samples]) * 2.0**64
        return min(max(total, -sys.float_info.max), sys.float_info.max)


class _Counter:
    """The last reading of a counter, and how much it rose in the open window."""

    __slots__ = ("increase", "is_seen", "point", "start")

    def __init__(self, point: Datapoint) -> None:
        self.point = point
        self.start = point.at
        self.increase: float | None = None
        self.is_seen = False


class Window:
    """
    Collapses the samples of one sink, window after window.

    Windows are aligned to the clock (a window of 60 s is a minute of the day), so that machines can be compared.
    A window ends with the first samples of another one; `close` ends it at once. With `seconds` = 0 each call
    of `add` is a window of its own: gauges pass as they are, counters gain their increase.
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
    ) -> None:
        """
        Take the length in seconds and the moment (ns) at which this agent began to watch.

        With `increases`, a counter whose increase is not known is no datapoint. A window that would end less than
        `spacing` seconds after the last one, of before a restart `ended` (ns), goes on for another length.
        The very first window ends `first` seconds after its first samples, if that is sooner.
        """
        self._increases = increases
        self._length = int(seconds * 1e9)
        self._born = born
        self._slot: int | None = None
        self._last = 0
        self._spacing, self._slack = int(spacing * 1e9), int(min(spacing, SLACK) * 1e9)
        self._ended = None if ended is None else ended + self._slack  # it may have been moved by so much
        self._first = None if first is None else int(first * 1e9)
        self._early: int | None = None
        self._gauges: dict[Series, tuple[Datapoint, Callable[[float], None], list[float]]] = {}
        self._counters: dict[Series, _Counter] = {}
        self._seen: list[_Counter] = []
        self._closed = 0
        self.samples = 0
        """Samples of the open window."""

    def add(
        self, points: Iterable[Datapoint], at: int, wants: Callable[[Metric], bool] = everything
    ) -> list[Datapoint]:
        """
        Take the samples of the tick at `at` (ns) that `wants` accepts; return the datapoints of the window they ended.

        `wants` is asked once for each series and window.
        """
        if not self._length:
            return self._pass(points, at, wants)
        slot = at // self._length
        if self._slot is None:
            self._slot, self._early = slot, None if self._first is None else at + self._first
        done = []
        if slot != self._slot or (self._early is not None and at >= self._early):
            done, self._early = [] if self.is_short else self.close(), None
        self._slot, self._last = slot, at
        gauges, counters, taken = self._gauges, self._counters, 0
        for point in points:
            metric = point.metric
            key = (metric.name, point.dims)
            if metric.kind is COUNTER:
                if key in counters or wants(metric):
                    self._rise(key, point)
                    taken += 1
            elif (known := gauges.get(key)) is not None:
                known[1](point.value)
                taken += 1
            elif wants(metric):
                samples = [point.value]
                gauges[key] = (point, samples.append, samples)
                taken += 1
        self.samples += taken
        return done

    def _pass(self, points: Iterable[Datapoint], at: int, wants: Callable[[Metric], bool]) -> list[Datapoint]:
        """Return gauges as they are and counters with their increase."""
        self._last = at
        gauges = []
        for point in points:
            if wants(point.metric):
                if point.metric.kind is COUNTER:
                    self._rise((point.metric.name, point.dims), point)
                else:
                    gauges.append(point)
        return gauges + self._end_counters()

    @property
    def is_instant(self) -> bool:
        """Whether each sample is a point, so that no window is ever open."""
        return not self._length

    @property
    def is_short(self) -> bool:
        """Whether the window cannot end yet, since too little time has passed since the last one."""
        ended, spacing = self._ended, self._spacing
        return ended is not None and ended - 2 * spacing <= self._last < ended + spacing - self._slack

    def prime(self, points: Iterable[Datapoint], at: int, wants: Callable[[Metric], bool] = everything) -> None:
        """Take samples as a base for counters only."""
        ended = self._ended
        self.add(points, at, wants)
        self.close()
        self._ended = ended

    def close(self) -> list[Datapoint]:
        """
        End the window; return one datapoint for each series that was seen in it.

        Where the window is short, they are stamped with the first moment that is far enough from the last window.
        """
        done, earliest = [], 0
        if self._spacing and self._ended is not None and self._last >= self._ended - 2 * self._spacing:
            earliest = self._ended + self._spacing - self._slack  # also for a reading that came late
            if self.is_short:
                earliest = self._last = self._ended + self._spacing
        for first, _, samples in self._gauges.values():
            total = summarise(samples)
            mean = min(max(total.sum / total.count, total.minimum), total.maximum)  # a sum is rounded
            done.append(Datapoint(first.metric, mean, first.dims, self._last, None, min(first.at, self._last), total))
        self._gauges, self.samples = {}, 0
        done += self._end_counters(earliest)
        if done:
            due = self._last if self._ended is None else self._ended + self._spacing
            self._ended = due if 0 < due - self._last <= self._slack else self._last  # the sink moves its end to there
        return done

    def _end_counters(self, earliest: int = 0) -> list[Datapoint]:
        """Return one datapoint for each counter seen in the window, at `earliest` or later; forget those long gone."""
        done = []
        for state in self._seen:
            metric, value, dims, at, start_time, *_ = state.point
            if state.increase is not None or not self._increases:
                end, start = max(at, earliest), min(state.start, at)
                done.append(Datapoint(metric, value, dims, end, start_time, start, None, state.increase))
            state.start, state.increase, state.is_seen = at, None, False
        self._seen = []
        self._closed += 1
        if self._closed % 64 == 0:
            horizon = self._last - FORGET
            self._counters = {k: s for k, s in self._counters.items() if s.point.at > horizon}
            self._born = max(self._born, horizon)  # what returns must not pass for a life that we saw begin
        return done

    def _rise(self, key: Series, point: Datapoint) -> None:
        """
        Add what the counter gained since its last reading.

        A life that began under our eyes counts from zero. A counter that went back, or whose `start_time` moved, began
        anew at a moment unknown: this reading is only a base. So is one whose `start_time` is its own `at`.
        """
        state = self._counters.get(key)
        last = state.point if state else None
        if state is None:
            state = self._counters[key] = _Counter(point)
        start_time = point.start_time
        gain: float | None = None
        if last is not None and start_time == last.start_time:
            gain = point.value - last.value
        elif start_time is not None and (self._born if last is None else last.at) <= start_time < point.at:
            gain = point.value
            if last is None:
                state.start = start_time
        if gain is not None and gain >= 0:
            state.increase = gain if state.increase is None else state.increase + gain
        elif state.increase is None:
            state.start = point.at
        state.point = point
        if not state.is_seen:
            state.is_seen = True
            self._seen.append(state)
