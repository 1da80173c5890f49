"""Our metrics under the names of a profile, for dashboards that know another tool's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from agent.datapoint import Datapoint, Dimensions, Kind, Metric
from agent.profiles import MACHINE, NONE, PROFILES, Name


class Renamer:
    """
    Gives points the names, units and scale of a profile; a metric that the profile lacks keeps its own.

    Counters begin at 0 with the first point of this process, as they do in the tools whose names these are.
    Used by one thread.
    """

    def __init__(self, profile: Mapping[str, Name], machine: Mapping[str, str] = NONE) -> None:
        """Take a profile of PROFILES, and what it calls the dimensions of the machine."""
        self._profile, self._machine = profile, machine
        self._known: dict[tuple[str, Dimensions], tuple[Metric, Dimensions, float, float, int] | None] = {}
        self._relabelled: dict[tuple[str, Dimensions], Dimensions] = {}

    def __call__(self, point: Datapoint) -> Datapoint:
        """Return the point under its other name."""
        name = self._profile.get(point.metric.name)
        if name is None:
            return self._relabel(point) if self._machine else point
        key = (point.metric.name, point.dims)
        if key not in self._known:
            self._known[key] = self._learn(name, point) if name.suits(point.dims) else None
        known = self._known[key]
        if known is None:
            return self._relabel(point) if self._machine else point
        metric, dims, factor, base, since = known
        summary, increase = point.summary, point.increase
        if factor != 1.0:
            if summary is not None:
                summary = summary._replace(
                    sum=summary.sum * factor,
                    minimum=summary.minimum * factor,
                    maximum=summary.maximum * factor,
                    values=tuple(value * factor for value in summary.values),
                )
            increase = None if increase is None else increase * factor
        value = (point.value - base) * factor
        if metric.kind is Kind.GAUGE:
            return Datapoint(metric, value, dims, point.at, None, point.start, summary)
        if value < 0:  # the counter began anew: so does ours
            self._known[key] = (metric, dims, factor, 0.0, point.at)
            value, since = point.value * factor, point.at
        return Datapoint(metric, value, dims, point.at, since, point.start, None, increase)

    def _learn(self, name: Name, point: Datapoint) -> tuple[Metric, Dimensions, float, float, int]:
        old = point.metric
        places = "".join((name.template, *name.dims.values()))
        taken = {key: name.words.get(word, word) for key, word in point.dims.items() if f"{{{key}}}" in places}
        text = name.template.format_map(taken)
        own = {}
        for key, word in name.dims.items():
            with contextlib.suppress(KeyError):
                own[key] = word.format_map(taken)
        keys = (*(key for key in old.dims if key not in taken), *own)
        metric = Metric(text, old.kind, name.unit or old.unit, old.help, old.level, keys)
        left = {key: word for key, word in point.dims.items() if key not in taken}
        dims = Dimensions(self._machines(left, old), **own)
        base = point.value if old.kind is Kind.COUNTER else 0.0
        return metric, dims, name.factor, base, point.at

    def _relabel(self, point: Datapoint) -> Datapoint:
        """Return a point that has no other name under the other names of the machine."""
        key = (point.metric.name, point.dims)
        if key not in self._relabelled:
            self._relabelled[key] = Dimensions(self._machines(point.dims, point.metric))
        return Datapoint(point.metric, point.value, self._relabelled[key], *point[3:])

    def _machines(self, dims: Mapping[str, str], metric: Metric) -> dict[str, str]:
        """Return `dims` with the machine's among them under their other names; a metric's own keep theirs."""
        return {key if key in metric.dims else self._machine.get(key, key): word for key, word in dims.items()}


def renamer(profile: str) -> Callable[[Datapoint], Datapoint] | None:
    """Return what renames points, or None for `native`; raise LookupError naming the profiles."""
    if profile not in PROFILES:
        raise LookupError(f"names: no such profile {profile!r}; choose from: {', '.join(PROFILES)}")
    return Renamer(PROFILES[profile], MACHINE.get(profile, NONE)) if PROFILES[profile] else None
