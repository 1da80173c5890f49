"""
Converts the metric groups of a record to rows, merged over runtimes.

Each runtime lists every core of the machine, with 0 for cores of other runtimes. So utilization is the maximum over
runtimes, bytes and rates are sums, and latency is that of the slowest runtime.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from chipwatch.collectors.neuron import metrics
from chipwatch.collectors.neuron.schema import INDEX, Core, RecordGroup, RecordReader
from chipwatch.collectors.neuron.series import NeuronSeries, Row, ValuesByLabels
from chipwatch.contract.datapoint import Level

PERCENTILE: Final = re.compile(r"p\d{1,3}")
BASIC_PERCENTILES: Final = ("p50", "p99")
MAX_PERCENT: Final = 100

Entry = tuple[str, RecordGroup]
"""A runtime's tag ("" if tags are not used), and its group."""


class Groups:
    """Converts the groups of one record to rows."""

    def __init__(self, series: NeuronSeries, reader: RecordReader, level: Level) -> None:
        """`level`: highest level of metrics."""
        self._rows, self._reader = series.rows, reader
        self._detailed, self._all = level >= Level.DETAILED, level >= Level.ALL

    def cores(self, entries: Sequence[Entry]) -> Iterator[Row]:
        """Yield the rows of `neuroncore_counters`."""
        number = self._reader.number
        busiest: ValuesByLabels = {}
        flops: ValuesByLabels = {}
        physical: ValuesByLabels = {}
        for tag, group in entries:
            for key, core in self._reader.mapping(group.neuroncores_in_use, "neuroncores_in_use").items():
                if type(core) is not Core:
                    self._reader.report("neuroncores_in_use: a core is not an object")
                    continue
                share = number(core.neuroncore_utilization, "neuroncore_utilization", MAX_PERCENT)
                _maximum(busiest, (tag, key), share)
                if self._detailed:
                    rate = core.effective_flops if core.flops is None else core.flops
                    _add(flops, (tag, key), number(rate, "flops"))
                if self._all and core.v3d is not None:
                    for index, value in self._physical(core.v3d):
                        _maximum(physical, (tag, key, index), value)
        yield from self._rows(metrics.CORE_UTILIZATION, busiest)
        yield from self._rows(metrics.CORE_FLOPS, flops)
        yield from self._rows(metrics.PHYSICAL_UTILIZATION, physical)

    def memory(self, entries: Sequence[Entry]) -> Iterator[Row]:
        """Yield the rows of `memory_used`, without loaded models."""
        reader = self._reader
        host: ValuesByLabels = {}
        device: ValuesByLabels = {}
        categories: ValuesByLabels = {}
        cores: ValuesByLabels = {}
        for tag, group in entries:
            used = reader.mapping(group.neuron_runtime_used_bytes, "neuron_runtime_used_bytes")
            _add(host, (tag,), reader.number(used.get("host"), "host memory"))
            _add(device, (tag,), reader.number(used.get("neuron_device"), "device memory"))
            if not self._detailed:
                continue
            breakdown = reader.mapping(used.get("usage_breakdown"), "usage_breakdown")
            for name, value in reader.named(breakdown.get("host"), "usage_breakdown of the host"):
                _add(categories, (tag, name), value)
            of_cores = reader.mapping(breakdown.get("neuroncore_memory_usage"), "neuroncore_memory_usage")
            for key, core in of_cores.items():
                for name, value in reader.named(core, "neuroncore_memory_usage"):
                    _add(cores, (tag, key, name), value)
        yield from self._rows(metrics.HOST_MEMORY, host)
        yield from self._rows(metrics.DEVICE_MEMORY, device)
        yield from self._rows(metrics.HOST_CATEGORY, categories)
        yield from self._rows(metrics.CORE_MEMORY, cores)

    def latency(self, entries: Sequence[Entry]) -> Iterator[Row]:
        """Yield the latencies of `execution_stats`; none if nothing ran."""
        basic: ValuesByLabels = {}
        detailed: ValuesByLabels = {}
        for tag, group in entries:
            for key, percentiles in self._reader.mapping(group.latency_stats, "latency_stats").items():
                if key not in ("total_latency", "device_latency"):
                    continue
                scope = key.removesuffix("_latency")
                for percentile, seconds in self._reader.named(percentiles, key):
                    if PERCENTILE.fullmatch(percentile):
                        is_basic = scope == "total" and percentile in BASIC_PERCENTILES
                        _maximum(basic if is_basic else detailed, (tag, scope, percentile), seconds)
        yield from self._rows(metrics.LATENCY, basic)
        yield from self._rows(metrics.LATENCY_DETAIL, detailed)

    def vcpu(self, entries: Sequence[Entry]) -> Iterator[Row]:
        """Yield the rows of `neuron_runtime_vcpu_usage`."""
        busiest: ValuesByLabels = {}
        for tag, group in entries:
            for mode, value in self._reader.named(group.vcpu_usage, "vcpu_usage", MAX_PERCENT):
                _maximum(busiest, (tag, mode), value)
        yield from self._rows(metrics.VCPU, busiest)

    def _physical(self, v3d: Any) -> Iterator[tuple[str, float]]:
        """Yield the utilization of physical cores; their keys are `nc_v3.0`, `nc_v3.1` ..., by the user guide."""
        reader = self._reader
        for key, core in reader.mapping(v3d, "v3d").items():
            index = key.rpartition(".")[2]
            share = reader.number(reader.mapping(core, "v3d").get("neuroncore_utilization"), "v3d", MAX_PERCENT)
            if share is not None and INDEX.fullmatch(index):
                yield index, share


def _maximum(values: ValuesByLabels, key: tuple[str, ...], value: float | None) -> None:
    if value is not None and value > values.get(key, -1):
        values[key] = value


def _add(values: ValuesByLabels, key: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        values[key] = values.get(key, 0) + value
