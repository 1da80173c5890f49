"""Samples of a series -> one datapoint a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from agent.datapoint import Datapoint, Dimensions, Kind, Summary
from agent.sink import SLACK

MOST_VALUES: Final = 150
"""Distinct values a summary keeps: CloudWatch takes no more in one datum."""
FORGET: Final = 3600 * 10**9
"""Nanoseconds after which the last reading of a counter that is gone is forgotten."""

Series = tuple[str, Dimensions]


def summarise(samples: list[float]) -> Summary:
    """Return what is known of `samples`; more than 150 distinct values are put on a grid of 150 steps."""
    if len(samples) == 1:
        value = samples[0]
        return Summary(1, value, value, value, (value,), (1,), value)
    low, high = min(samples), max(samples)
    seen = Counter(samples)
    if len(seen) > MOST_VALUES:
        last = MOST_VALUES - 1
        step = (high - low) / last
        steps = Counter(min(last, round((v - low) / step)) for v in samples)
        seen = Counter({high if n == last else low + n * step: times for n, times in steps.items()})
    values = sorted(seen)
    counts = tuple(seen[v] for v in values)
    return Summary(len(samples), sum(samples), low, high, tuple(values), counts, samples[-1])


class _Counter:
    """The last reading of a counter, and how much it rose since the last window."""

    __slots__ = ("increase", "point", "start")

    def __init__(self, point: Datapoint) -> None:
        self.point = point
        self.start = point.at
        self.increase: float | None = None


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
        self._gauges: dict[Series, tuple[Datapoint, list[float]]] = {}
        self._counters: dict[Series, _Counter] = {}
        self._touched: dict[Series, _Counter] = {}
        self._closed = 0

    def add(self, points: Iterable[Datapoint], at: int) -> list[Datapoint]:
        """Take the samples of the tick at `at` (ns); return the datapoints of the window that they ended."""
        if not self._length:
            self._last = at
            passing = []
            for point in points:
                if point.metric.kind is Kind.COUNTER:
                    self._rise(point)
                else:
                    passing.append(point)
            return passing + self._settle()
        slot = at // self._length
        if self._slot is None:
            self._slot, self._early = slot, None if self._first is None else at + self._first
        done = []
        if slot != self._slot or (self._early is not None and at >= self._early):
            done, self._early = [] if self.is_short else self.close(), None
        self._slot, self._last = slot, at
        gauges = self._gauges
        for point in points:
            if point.metric.kind is Kind.COUNTER:
                self._rise(point)
                continue
            key = (point.metric.name, point.dims)
            known = gauges.get(key)
            if known is None:
                gauges[key] = (point, [point.value])
            else:
                known[1].append(point.value)
        return done

    @property
    def is_instant(self) -> bool:
        """Whether each sample is a point, so that no window is ever open."""
        return not self._length

    @property
    def is_short(self) -> bool:
        """Whether the window cannot end yet, since too little time has passed since the last one."""
        slack = self._slack
        return self._ended is not None and self._ended - slack <= self._last < self._ended + self._spacing - slack

    def prime(self, points: Iterable[Datapoint], at: int) -> None:
        """Take samples as a base for counters only."""
        ended = self._ended
        self.add(points, at)
        self.close()
        self._ended = ended

    def close(self) -> list[Datapoint]:
        """End the window; return one datapoint for each series that was seen in it."""
        done = []
        for first, samples in self._gauges.values():
            total = summarise(samples)
            mean = min(max(total.sum / total.count, total.minimum), total.maximum)  # a sum is rounded
            done.append(Datapoint(first.metric, mean, first.dims, self._last, None, min(first.at, self._last), total))
        self._gauges = {}
        done += self._settle()
        if done:
            due = self._last if self._ended is None else self._ended + self._spacing
            self._ended = due if 0 < due - self._last <= self._slack else self._last  # the sink moves its end to there
        return done

    def _settle(self) -> list[Datapoint]:
        """Return one datapoint for each counter that was seen in the window; forget those long gone."""
        done = []
        for state in self._touched.values():
            metric, value, dims, at, since, *_ = state.point
            if state.increase is not None or not self._increases:
                done.append(Datapoint(metric, value, dims, at, since, min(state.start, at), None, state.increase))
            state.start, state.increase = at, None
        self._touched = {}
        self._closed += 1
        if self._closed % 64 == 0:
            horizon = self._last - FORGET
            self._counters = {k: s for k, s in self._counters.items() if s.point.at > horizon}
            self._born = max(self._born, horizon)  # what returns must not pass for a life that we saw begin
        return done

    def _rise(self, point: Datapoint) -> None:
        """
        Add what the counter gained since its last reading.

        A life that began under our eyes counts from zero. A counter that went back, or whose `since` moved, began
        anew at a moment unknown: this reading is only a base. So is one whose `since` is its own `at`.
        """
        key = (point.metric.name, point.dims)
        state = self._counters.get(key)
        last = state.point if state else None
        if state is None:
            state = self._counters[key] = _Counter(point)
        since = point.since
        gain: float | None = None
        if last is not None and since == last.since:
            gain = point.value - last.value
        elif since is not None and (self._born if last is None else last.at) <= since < point.at:
            gain = point.value
            if last is None:
                state.start = since
        if gain is not None and gain >= 0:
            state.increase = gain if state.increase is None else state.increase + gain
        elif state.increase is None:
            state.start = point.at
        state.point = point
        self._touched[key] = state
