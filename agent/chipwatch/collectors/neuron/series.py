"""Finds the series of a value: its metric and dimensions, which are built once and cached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from chipwatch.collectors.neuron.metrics import CORE, TAG, shaped
from chipwatch.collectors.neuron.schema import INDEX, RecordReader
from chipwatch.contract.datapoint import Dimensions, Level, Metric

MAX_CACHED: Final = 20_000
"""Most series whose dimensions are cached."""

ValuesByLabels = dict[tuple[str, ...], float]
"""Tag of the runtime ("" for none) and the values of the metric's dimensions, without a core's device -> value."""
Pods = Mapping[str, dict[str, str]]
"""Index of a core -> dimensions of the pod that uses it."""


class Row(NamedTuple):
    """A datapoint without its time."""

    metric: Metric
    value: float
    dims: Dimensions
    start_time: int | None


class NeuronSeries:
    """Finds the series of values; adds to each core its device and the pod that uses it."""

    def __init__(self, reader: RecordReader, level: Level) -> None:
        """`level`: highest level of metrics."""
        self._reader, self.level = reader, level
        self._known: dict[tuple[str, tuple[str, ...]], tuple[Metric, Dimensions]] = {}
        self._pods: Pods = {}
        self._cores_per_device: int | None = None

    def set_pods(self, pods: Pods) -> None:
        """Set the dimensions that the series of cores have in addition from now on."""
        if pods != self._pods:
            self._pods = pods
            self._known.clear()

    def set_cores_per_device(self, count: int) -> None:
        """Set the number of cores of each device; on Trn2, of logical cores."""
        if count != self._cores_per_device:
            self._cores_per_device = count
            self._known.clear()

    def rows(self, metric: Metric, values: ValuesByLabels, start_time: int | None = None) -> Iterator[Row]:
        """Yield a row for each value; cores whose device is unknown are left out."""
        if metric.level > self.level:
            return
        for key, value in values.items():
            if found := self._known.get((metric.name, key)) or self._new_series(metric, *key):
                yield Row(found[0], value, found[1], start_time)

    def core(self, index: str) -> Dimensions | None:
        """Return the dimensions of a core and its device; None if the device is unknown."""
        device = self._device(index)
        return None if device is None else Dimensions(dict(zip(CORE, (index, device), strict=True)))

    def _new_series(self, metric: Metric, tag: str, *values: str) -> tuple[Metric, Dimensions] | None:
        key = metric.name, (tag, *values)
        pods: dict[str, str] = {}
        if metric.dims[:2] == CORE:
            core, *more = values
            if (device := self._device(core)) is None:
                return None
            values, pods = (core, device, *more), self._pods.get(core, {})
        pairs = dict(zip(metric.dims, values, strict=True)) | ({TAG: tag} if tag else {}) | pods
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        self._known[key] = shaped(metric, tuple(pairs)), Dimensions(pairs)
        return self._known[key]

    def _device(self, core: str) -> str | None:
        """Return the index of a core's device, None if unknown. Cores are numbered through all devices."""
        if self._cores_per_device and INDEX.fullmatch(core):
            return str(int(core) // self._cores_per_device)
        problem = (
            "is not an index" if self._cores_per_device else "has no device: neuroncore_per_device_count is unknown"
        )
        self._reader.report(f"the key of a core {problem}; the core is left out")
        return None
