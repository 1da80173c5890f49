"""Renames points by a naming profile, for dashboards that expect the names of another tool."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import fsum
from typing import Final, NamedTuple

from chipwatch.config.naming.profiles import PLACEHOLDER, Copy, Profile, ToolName, placeholders, profiles
from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Kind, Metric, new

CACHED_SERIES: Final = 100_000
"""Most series in a generation of the cache; a series that is missing in two generations is forgotten."""
IN_USE: Final = 30 * 10**9
"""Nanoseconds for which a GPU counts as used after a point of the process tree; such points come every 10 s."""
MAX_EPOCHS: Final = 8
"""Epochs of a counter that are remembered, since a batch may be sent again later."""
ENDPOINT: Final = "endpoint"
"""The dimension that all scraped metrics have, and no other metric."""
OF_TREE: Final = frozenset({"gpu.process.utilization", "gpu.process.memory.used", "gpu.process.memory.utilization"})
"""Metrics of the watched process tree on a GPU; they have the dimensions of the GPU's other metrics."""
LIMIT: Final = "container.memory.limit"
"""Metric with the limit of the container's memory; if there is no limit, it is the machine's memory."""
PART: Final = "mig"
"""The dimension of a partition of a GPU: who uses the partition uses the GPU."""

_SeriesKey = tuple[str, Dimensions]


class _Epoch(NamedTuple):
    """
    A stretch of a counter without a reset, which is sent as a counter that starts at 0.

    `start_time` is the start that is sent; at that time, our value was `base`.
    """

    given: int | None
    """Our counter's start time, which changes with a reset."""
    start_time: int
    base: float

    def has(self, point: Datapoint) -> bool:
        """Return whether `point` belongs to this epoch."""
        return point.start_time == self.given and point.at >= self.start_time and point.value >= self.base


class _Series(NamedTuple):
    """A series as it is sent."""

    metric: Metric | None
    """The renamed metric; None: our own."""
    dims: Dimensions
    factor: float = 1.0
    epochs: list[_Epoch] | None = None
    """For a counter that starts at 0: its last epochs. There are several, since points may be sent again."""


_UNCHANGED: Final = _Series(None, NO_DIMENSIONS)


class Renamer:
    """
    Gives points the names, units and scale of a profile. A metric that is not in the profile keeps our name.

    Other tools' counters begin at 0 when the tool starts. So a renamed counter begins at 0, too, and has only increases
    that a window has seen. Scraped counters, and profiles that are `cumulative`, keep our values. Used by one thread,
    which may send a point again.
    """

    def __init__(self, tool: Profile, *others: Profile) -> None:
        """Take the profile, and those whose names are sent as copies, with that profile's keys for the machine."""
        self._tool, self._names, self._machine = tool, tool.names, tool.machine
        self._copied = [(_pattern_of(other), other.machine) for other in others]
        self._others = ToolName("", dims=tool.others)
        self._keys = placeholders(tool.others)
        self._known: dict[_SeriesKey, _Series] = {}
        self._before: dict[_SeriesKey, _Series] = {}
        self._numbers: Counter[tuple[str, str]] = Counter()

    def __call__(self, point: Datapoint) -> Datapoint:
        """Return the renamed point."""
        metric, value, dims, at, start_time, start, summary, increase = point
        has_rules = self._machine or self._keys or self._copied or metric.name in self._names
        if not (has_rules or (self._tool.scraped and ENDPOINT in metric.dims)):
            return point
        series = self._known.get((metric.name, dims)) or self._recall(point)
        if series is _UNCHANGED:
            return point
        theirs, dims, factor, epochs = series
        if epochs:
            epoch = epochs[-1] if epochs[-1].has(point) else _find_epoch(epochs, point)
            start_time, value = epoch.start_time, value - epoch.base
        if factor != 1.0:
            value *= factor
            increase = None if increase is None else increase * factor
            summary = summary and summary._replace(
                sum=summary.sum * factor,
                minimum=summary.minimum * factor,
                maximum=summary.maximum * factor,
                values=tuple(value * factor for value in summary.values),
            )
        return new(Datapoint, (theirs or metric, value, dims, at, start_time, start, summary, increase))

    def _recall(self, point: Datapoint) -> _Series:
        """Return the series of a point from the older half of the cache, or a new one."""
        key = (point.metric.name, point.dims)
        series = self._before.get(key) or self._learn(point)
        if len(self._known) >= CACHED_SERIES:
            self._before, self._known = self._known, {}
            alive = {(dims.get(ENDPOINT, ""), name) for name, dims in self._before}
            self._numbers = Counter({page: number for page, number in self._numbers.items() if page in alive})
        self._known[key] = series
        return series

    def _learn(self, point: Datapoint) -> _Series:
        metric, dims = point.metric, point.dims
        if ENDPOINT in metric.dims:
            if self._tool.scraped:
                return self._number(metric, dims)
        elif (keys := next((keys for names, keys in self._copied if names.fullmatch(metric.name)), None)) is not None:
            return _Series(None, Dimensions(_rename_machine(dims, metric, keys)))
        elif (name := self._names.get(metric.name)) and name.fits(dims):
            return self._name(name, point)
        elif not self._keys.isdisjoint(dims):
            return self._name(self._others._replace(template=metric.name), point)
        return _Series(None, Dimensions(_rename_machine(dims, metric, self._machine))) if self._machine else _UNCHANGED

    def _name(self, name: ToolName, point: Datapoint) -> _Series:
        old = point.metric
        templates = "".join((name.template, *name.dims.values()))
        taken = {key: name.words.get(word, word) for key, word in point.dims.items() if f"{{{key}}}" in templates}
        text = name.template.format_map(taken)
        own = {}
        for key, template in name.dims.items():
            for alternative in reversed(template.split("|")):
                with contextlib.suppress(KeyError):
                    own[key] = alternative.format_map(taken)
        keys = (*(key for key in old.dims if key not in taken), *own)
        metric = replace(old, name=text, unit=name.unit or old.unit, help=name.help or old.help, dims=keys)
        left = {key: word for key, word in point.dims.items() if key not in taken}
        dims = Dimensions(_rename_machine(left, old, self._machine), **own)
        starts = old.kind is Kind.COUNTER and not self._tool.cumulative
        return _Series(metric, dims, name.factor, [_start(point, point.value)] if starts else None)

    def _number(self, metric: Metric, dims: Dimensions) -> _Series:
        """Return a scraped series with the next `{index}` of its name on its page; its labels stay."""
        endpoint = dims[ENDPOINT]
        index = self._numbers[endpoint, metric.name]
        self._numbers[endpoint, metric.name] += 1
        text = self._tool.scraped.format(endpoint=endpoint, metric=metric.name, index=index)
        keys = tuple(key for key in metric.dims if key != ENDPOINT)
        left = {key: word for key, word in dims.items() if key != ENDPOINT}
        return _Series(replace(metric, name=text, dims=keys), Dimensions(_rename_machine(left, metric, self._machine)))


def _rename_machine(dims: Mapping[str, str], metric: Metric, machine: Mapping[str, str]) -> dict[str, str]:
    """Return `dims` with a profile's keys for the machine's dimensions; the metric's own dimensions stay."""
    pairs = sorted(dims.items(), key=lambda pair: pair[0] in metric.dims)  # the metric's own win
    return {key if key in metric.dims else machine.get(key, key): word for key, word in pairs}


def _pattern_of(tool: Profile) -> re.Pattern[str]:
    """Return a pattern for the names that a profile gives."""
    return re.compile("|".join(".+".join(map(re.escape, PLACEHOLDER.split(name)[::2])) for name, _ in tool.meanings()))


def _start(point: Datapoint, base: float, after: int = 0) -> _Epoch:
    """Return the epoch that starts before the increase of `point`; if that is unknown, it starts now at `base`."""
    if point.increase is None or point.window_start is None:
        return _Epoch(point.start_time, point.at, base)
    return _Epoch(point.start_time, point.window_start + after, point.value - point.increase)


def _find_epoch(epochs: list[_Epoch], point: Datapoint) -> _Epoch:
    """Return the epoch of a point that is not in the last one: it is sent again, or its counter was reset."""
    for epoch in reversed(epochs):
        if epoch.has(point):
            return epoch
    if point.at < epochs[-1].start_time:
        return _Epoch(point.start_time, point.at, point.value)
    epochs[:] = [*epochs[1 - MAX_EPOCHS :], _start(point, 0.0, after=1)]  # `start` is of the last epoch
    return epochs[-1]


class Copier:
    """
    Copies points under a second name, for tools that have two metrics where we have one. One thread uses it.

    It runs before the limit of series and the spool, so a copy is counted and kept like any other point.
    """

    def __init__(self, copies: Mapping[str, Copy], memory: float = 0.0, *, cumulative: bool = False) -> None:
        """Take the copies of a profile by our name, the bytes of the machine's memory, and `Profile.cumulative`."""
        self._copies, self._memory, self._limited = copies, memory, False
        names = {metric: copy.name for metric, copy in copies.items()}
        self._rename = Renamer(Profile(names, cumulative=cumulative))
        self._used: dict[Dimensions, int] = {}
        self._counts: dict[tuple[str, Dimensions], float] = {}
        self._last: dict[tuple[str, Dimensions], int] = {}

    def __call__(self, points: Sequence[Datapoint]) -> list[Datapoint]:
        """Return the points to send in addition to these points of a tick or a window."""
        copies: list[Datapoint] = []
        groups: dict[tuple[str, Dimensions, int], list[Datapoint]] = {}
        for point, copy in self._find_copies(points):
            if copy.limited not in (None, self._limited):
                continue
            if copy.rate:
                copies += map(self._rename, _rates(point))
            elif over := copy.mean_over or copy.last_of:
                rest = _without(point.dims, over, *copy.drops)
                groups.setdefault((point.metric.name, rest, point.at), []).append(point)
            elif not copy.of_tree or point.at - self._used.get(point.dims, -IN_USE) < IN_USE:
                made = self._rename(point)
                copies += [made] if made is not point else []  # a series with other dimensions does not get the name
        for (name, rest, _), group in groups.items():
            copy = self._copies[name]
            merged = _mean(group, copy.mean_over, rest) if copy.mean_over else self._latest(group, copy.last_of, rest)
            copies.append(self._rename(merged))
        return copies

    def _latest(self, counters: Sequence[Datapoint], key: str, rest: Dimensions) -> Datapoint:
        """Return a gauge; its value is that of the dimension `key` of the counter that rose last."""
        first = counters[0]
        series = (first.metric.name, rest)
        for point in counters:
            before = self._counts.get((point.metric.name, point.dims), 0.0)
            self._counts[point.metric.name, point.dims] = point.value
            if point.value > before and point.dims[key].isdecimal():
                self._last[series] = int(point.dims[key])
        left = tuple(key for key in first.metric.dims if key in rest)
        metric = replace(first.metric, kind=Kind.GAUGE, unit="1", dims=left)
        return metric.point(first.at, self._last.get(series, 0), rest)

    def _find_copies(self, points: Sequence[Datapoint]) -> list[tuple[Datapoint, Copy]]:
        """Return the points that have a copy. Note which GPUs are used, and whether memory is limited."""
        pairs = []
        for point in points:
            name = point.metric.name
            if name in self._copies and ENDPOINT not in point.metric.dims:
                pairs.append((point, self._copies[name]))
            elif name in OF_TREE:
                self._used[point.dims] = point.at
                if PART in point.metric.dims:
                    self._used[_without(point.dims, PART)] = point.at
            elif name == LIMIT:
                self._limited = point.value < self._memory
        return pairs


@lru_cache(1024)
def _without(dims: Dimensions, *keys: str) -> Dimensions:
    return Dimensions({key: word for key, word in dims.items() if key not in keys})


def _mean(points: Sequence[Datapoint], over: str, rest: Dimensions) -> Datapoint:
    """Return the mean of gauges of the same time, without a summary."""
    first = points[0]
    metric = replace(first.metric, dims=tuple(key for key in first.metric.dims if key != over))
    start = min((point.window_start for point in points if point.window_start is not None), default=None)
    return Datapoint(metric, fsum([point.value for point in points]) / len(points), rest, first.at, None, start)


def _rates(point: Datapoint) -> Iterator[Datapoint]:
    """Yield a counter's increase per second, if its increase in the window is known."""
    if point.increase is not None and point.window_start is not None and point.at > point.window_start:
        metric = replace(point.metric, kind=Kind.GAUGE, unit=f"{point.metric.unit}/s")
        yield metric.point(point.at, point.increase / (point.at - point.window_start) * 1e9, point.dims)


def renamer(names: str) -> Renamer | None:
    """Return the renamer for a profile of PROFILES, or for a list of them; None for `native`."""
    first, *others = profiles(names)[0]
    return Renamer(first, *others) if first.names or others else None


def copier(names: str) -> Callable[[Sequence[Datapoint]], list[Datapoint]] | None:
    """Return what copies points for a profile of PROFILES, or for all but the first of a list; None without copies."""
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    copiers = [Copier(copies, memory, cumulative=tool.cumulative) for tool, copies in tables_of_copies(names)]
    return (lambda points: [copy for each in copiers for copy in each(points)]) if copiers else None


def tables_of_copies(names: str) -> Iterator[tuple[Profile, Mapping[str, Copy]]]:
    """Yield the copies of each profile of a list; the names of all but the first are copies, too."""
    for place, tool in enumerate(profiles(names)[0]):
        if place and tool.names:
            yield tool, {metric: Copy(name) for metric, name in tool.names.items()}
        if tool.copies:
            yield tool, tool.copies
