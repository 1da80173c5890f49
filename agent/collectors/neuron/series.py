"""Finds the series of a value; builds its dimensions once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.collectors.neuron.metrics import CORE, TAG, shaped
from agent.datapoint import Dimensions, Metric

MOST: Final = 20_000
"""Series whose dimensions are cached."""

Pods = Mapping[str, Mapping[str, str]]
"""Dimensions of the pod that uses a core, by the core's index."""


class Row(NamedTuple):
    """A datapoint without its time."""

    metric: Metric
    value: float
    dims: Dimensions
    start_time: int | None = None


class Series:
    """Finds the series of a value; adds the pods that use the cores."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[tuple[str, int, str, tuple[str, ...]], tuple[Metric, Dimensions]] = {}
        self._pods: Pods = {}

    def pods(self, pods: Pods) -> None:
        """Add these dimensions to the series of cores from now on."""
        if pods != self._pods:
            self._pods = pods
            self._known.clear()

    def row(self, metric: Metric, value: float, *places: str, tag: str = "", start_time: int | None = None) -> Row:
        """Return `value` with its series; `places` are the values of the metric's dimensions, in order."""
        key = (metric.name, metric.level, tag, places)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST:
                self._known.clear()
            known = self._known[key] = self._learn(metric, places, tag)
        return Row(known[0], value, known[1], start_time)

    def _learn(self, metric: Metric, places: tuple[str, ...], tag: str) -> tuple[Metric, Dimensions]:
        pairs = dict(zip(metric.dims, places, strict=True))
        if tag:
            pairs[TAG] = tag
        if metric.dims[:2] == CORE:
            pairs |= self._pods.get(places[0], {})
        return shaped(metric, tuple(pairs)), Dimensions(pairs)
