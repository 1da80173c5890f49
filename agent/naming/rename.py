"""Our metrics under the names of a profile, for dashboards that know another tool's."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Final, NamedTuple

from agent.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Kind, Metric
from agent.naming.profiles import COPIES, CUMULATIVE, MACHINE, NONE, PROFILES, SCRAPED, Copy, Name

MOST: Final = 100_000
"""Series that are known at once; beyond that those are forgotten that did not come while as many others did."""
IN_USE: Final = 30 * 10**9
"""Nanoseconds for which a GPU counts as used after the tree's share of it was told, which may be every 10 s only."""
LIVES: Final = 8
"""Lives of a counter that are remembered: those that a batch, which may be brought again, can be of."""
ENDPOINT: Final = "endpoint"
"""What was scraped has this among its own dimensions, and no other metric has."""
OF_TREE: Final = frozenset({"gpu.process.utilization", "gpu.process.memory.used", "gpu.process.memory.utilization"})
"""What tells the tree's share of a GPU, with the dimensions of what the GPU tells of itself."""
LIMIT: Final = "container.memory.limit"
"""What tells whether the memory of the container is limited: it is the machine's where it is not."""
PART: Final = "mig"
"""The dimension of a part of a GPU: who uses the part uses the whole."""

_Key = tuple[str, Dimensions]
_make: Final = Datapoint._make
"""The tuple as it is: a call with keywords and defaults costs twice as much."""


class _Life(NamedTuple):
    """A stretch of a counter that is to begin at 0: `given` tells it from others, `start_time` and `base` are its 0."""

    given: int | None
    """The moment that the counter itself names, which moves when it begins anew."""
    start_time: int
    base: float

    def has(self, point: Datapoint) -> bool:
        """Tell whether `point` is of this life."""
        return point.start_time == self.given and point.at >= self.start_time and point.value >= self.base


class _Series(NamedTuple):
    """How a series goes by its other name."""

    metric: Metric | None
    """None: its own."""
    dims: Dimensions
    factor: float = 1.0
    lives: list[_Life] | None = None
    """Of a counter that is to begin at 0: its last lives, since points may be brought again."""


_STAYS: Final = _Series(None, NO_DIMENSIONS)


class Renamer:
    """
    Gives points the names, units and scale of a profile; a metric that the profile lacks keeps its own.

    Counters begin at 0 with this agent, as they do in the tools whose names these are, but for what was scraped and
    with `cumulative`: what a window saw them rise counts, what they read before does not. Used by one thread, which may
    bring a point again.
    """

    def __init__(
        self,
        profile: Mapping[str, Name],
        machine: Mapping[str, str] = NONE,
        scraped: str = "",
        *,
        cumulative: bool = False,
    ) -> None:
        """Take a profile of PROFILES, and what it calls the dimensions of the machine and what was scraped."""
        self._profile, self._machine, self._scraped, self._cumulative = profile, machine, scraped, cumulative
        self._known: dict[_Key, _Series] = {}
        self._before: dict[_Key, _Series] = {}
        self._numbers: Counter[tuple[str, str]] = Counter()

    def __call__(self, point: Datapoint) -> Datapoint:
        """Return the point under its other name."""
        metric, value, dims, at, start_time, start, summary, increase = point
        if not (metric.name in self._profile or self._machine or (self._scraped and ENDPOINT in metric.dims)):
            return point
        series = self._known.get((metric.name, dims)) or self._recall(point)
        if series is _STAYS:
            return point
        theirs, dims, factor, lives = series
        if lives:
            life = lives[-1] if lives[-1].has(point) else _life(lives, point)
            start_time, value = life.start_time, value - life.base
        if factor != 1.0:
            value *= factor
            increase = None if increase is None else increase * factor
            summary = summary and summary._replace(
                sum=summary.sum * factor,
                minimum=summary.minimum * factor,
                maximum=summary.maximum * factor,
                values=tuple(value * factor for value in summary.values),
            )
        return _make((theirs or metric, value, dims, at, start_time, start, summary, increase))

    def _recall(self, point: Datapoint) -> _Series:
        """Return what is known of a series that did not come for long, or ever."""
        key = (point.metric.name, point.dims)
        series = self._before.get(key) or self._learn(point)
        if len(self._known) >= MOST:
            self._before, self._known = self._known, {}
            alive = {(dims.get(ENDPOINT, ""), name) for name, dims in self._before}
            self._numbers = Counter({page: number for page, number in self._numbers.items() if page in alive})
        self._known[key] = series
        return series

    def _learn(self, point: Datapoint) -> _Series:
        metric, dims = point.metric, point.dims
        if ENDPOINT in metric.dims:
            if self._scraped:
                return self._number(metric, dims)
        elif (name := self._profile.get(metric.name)) and name.suits(dims):
            return self._name(name, point)
        return _Series(None, Dimensions(self._machines(dims, metric))) if self._machine else _STAYS

    def _name(self, name: Name, point: Datapoint) -> _Series:
        old = point.metric
        places = "".join((name.template, *name.dims.values()))
        taken = {key: name.words.get(word, word) for key, word in point.dims.items() if f"{{{key}}}" in places}
        text = name.template.format_map(taken)
        own = {}
        for key, word in name.dims.items():
            with contextlib.suppress(KeyError):
                own[key] = word.format_map(taken)
        keys = (*(key for key in old.dims if key not in taken), *own)
        metric = Metric(text, old.kind, name.unit or old.unit, name.help or old.help, old.level, keys)
        left = {key: word for key, word in point.dims.items() if key not in taken}
        dims = Dimensions(self._machines(left, old), **own)
        begins = old.kind is Kind.COUNTER and not self._cumulative
        return _Series(metric, dims, name.factor, [_begin(point, point.value)] if begins else None)

    def _number(self, metric: Metric, dims: Dimensions) -> _Series:
        """Give what was scraped the next number of its name on its page; its labels stay."""
        endpoint = dims[ENDPOINT]
        index = self._numbers[endpoint, metric.name]
        self._numbers[endpoint, metric.name] += 1
        text = self._scraped.format(endpoint=endpoint, metric=metric.name, index=index)
        keys = tuple(key for key in metric.dims if key != ENDPOINT)
        left = {key: word for key, word in dims.items() if key != ENDPOINT}
        return _Series(replace(metric, name=text, dims=keys), Dimensions(self._machines(left, metric)))

    def _machines(self, dims: Mapping[str, str], metric: Metric) -> dict[str, str]:
        """Return `dims` with the machine's among them under their other names; a metric's own keep theirs."""
        return {key if key in metric.dims else self._machine.get(key, key): word for key, word in dims.items()}


def _begin(point: Datapoint, base: float, after: int = 0) -> _Life:
    """Return the life that begins before what is known of the rise of `point`, or at `base` where nothing is known."""
    if point.increase is None or point.window_start is None:
        return _Life(point.start_time, point.at, base)
    return _Life(point.start_time, point.window_start + after, point.value - point.increase)


def _life(lives: list[_Life], point: Datapoint) -> _Life:
    """Return the life of a reading that is not of the last one: an older point, or a counter that began anew."""
    for life in reversed(lives):
        if life.has(point):
            return life
    if point.at < lives[-1].start_time:
        return _Life(point.start_time, point.at, point.value)
    lives[:] = [*lives[1 - LIVES :], _begin(point, 0.0, after=1)]  # at `start` itself the last life was read
    return lives[-1]


class Copier:
    """
    Makes what a tool has beside a metric's own name, under its name there; for one sink, used by one thread.

    What it makes are points like any other, so it stands before the budget and the spool, where they begin to count.
    """

    def __init__(self, copies: Mapping[str, Copy], memory: float = 0.0) -> None:
        """Take a table of COPIES, and the bytes of memory that the machine has."""
        self._copies, self._memory, self._limited = copies, memory, False
        self._rename = Renamer({metric: copy.name for metric, copy in copies.items()})
        self._used: dict[Dimensions, int] = {}
        self._counts: dict[tuple[str, Dimensions], float] = {}
        self._last: dict[tuple[str, Dimensions], str] = {}

    def __call__(self, points: Sequence[Datapoint]) -> list[Datapoint]:
        """Return what is to be sent beside the points of a tick or a window."""
        made = []
        groups: dict[tuple[str, Dimensions, int], list[Datapoint]] = {}
        for point, copy in self._look(points):
            if copy.limited not in (None, self._limited):
                continue
            if over := copy.mean_over or copy.last_of:
                rest = _without(point.dims, over)
                groups.setdefault((point.metric.name, rest, point.at), []).append(point)
            elif not copy.of_tree or point.at - self._used.get(point.dims, -IN_USE) < IN_USE:
                made.append(self._rename(point))
        for (name, rest, _), group in groups.items():
            copy = self._copies[name]
            one = _mean(group, copy.mean_over, rest) if copy.mean_over else self._latest(group, copy.last_of, rest)
            made.append(self._rename(one))
        return made

    def _latest(self, counters: Sequence[Datapoint], key: str, rest: Dimensions) -> Datapoint:
        """Return a gauge with the value of the dimension `key` of the counter that rose last."""
        first = counters[0]
        series = (first.metric.name, rest)
        for point in counters:
            before = self._counts.get((point.metric.name, point.dims), 0.0)
            self._counts[point.metric.name, point.dims] = point.value
            if point.value > before:
                self._last[series] = point.dims[key]
        metric = replace(
            first.metric, kind=Kind.GAUGE, unit="1", dims=tuple(of for of in first.metric.dims if of != key)
        )
        return metric.point(first.at, float(self._last.get(series, 0)), rest)

    def _look(self, points: Sequence[Datapoint]) -> list[tuple[Datapoint, Copy]]:
        """Return what has a copy in the table; note what decides whether it is made."""
        found = []
        for point in points:
            name = point.metric.name
            if name in self._copies and ENDPOINT not in point.metric.dims:
                found.append((point, self._copies[name]))
            elif name in OF_TREE:
                self._used[point.dims] = point.at
                if PART in point.metric.dims:
                    self._used[_without(point.dims, PART)] = point.at
            elif name == LIMIT:
                self._limited = point.value < self._memory
        return found


@lru_cache(1024)
def _without(dims: Dimensions, key: str) -> Dimensions:
    return Dimensions({k: word for k, word in dims.items() if k != key})


def _mean(points: Sequence[Datapoint], over: str, rest: Dimensions) -> Datapoint:
    """Return the mean of gauges of one moment; of their samples nothing is told."""
    first = points[0]
    metric = replace(first.metric, dims=tuple(key for key in first.metric.dims if key != over))
    start = min((point.window_start for point in points if point.window_start is not None), default=None)
    return Datapoint(metric, fmean([point.value for point in points]), rest, first.at, None, start)


def renamer(profile: str) -> Renamer | None:
    """Return what renames points, or None for `native`; raise LookupError naming the profiles."""
    if profile not in PROFILES:
        raise LookupError(f"names: no such profile {profile!r}; choose from: {', '.join(PROFILES)}")
    table = PROFILES[profile]
    if not table:
        return None
    machine, scraped = MACHINE.get(profile, NONE), SCRAPED.get(profile, "")
    return Renamer(table, machine, scraped, cumulative=profile in CUMULATIVE)


def copier(profile: str) -> Copier | None:
    """Return what makes the copies that a profile has, or None where it has none."""
    return Copier(COPIES[profile], _memory()) if profile in COPIES else None


def _memory() -> float:
    """Return how many bytes of memory this machine has; 0 where that is not known, as if there were no limit."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * float(os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return 0.0
