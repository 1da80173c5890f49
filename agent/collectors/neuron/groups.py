"""
Turns the metric groups of a record into rows, merged over runtimes.

Each runtime lists every core of the machine, with 0 for cores of other runtimes. So utilization is the maximum over
runtimes, bytes and rates are sums, and a latency is that of the slowest runtime.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, TypeVar

from agent.collectors.neuron import metrics
from agent.collectors.neuron.problems import Problems
from agent.collectors.neuron.schema import Core, Group, Reader, is_index
from agent.collectors.neuron.series import Row, Series
from agent.datapoint import Level

PERCENTILE: Final = re.compile(r"p\d{1,3}")
BASIC_PERCENTILES: Final = ("p50", "p99")
WHOLE: Final = 100
"""Percent; a larger share is invalid."""

Entry = tuple[str, Group]
"""A runtime's tag ("" without tags), and its group."""
K = TypeVar("K", bound=Hashable)


class Groups:
    """Turns the groups of one record into rows."""

    def __init__(self, series: Series, problems: Problems, level: Level) -> None:
        """Make rows up to `level`; note invalid input in `problems`."""
        self._row, self._problems, self._read = series.row, problems, Reader(problems)
        self._detailed, self._all = level >= Level.DETAILED, level >= Level.ALL
        self._places: dict[str, tuple[str, str] | None] = {}
        self.per_device: int | None = None
        """Cores of each device, from the last record that has it; logical cores on Trn2."""

    def divide(self, per_device: int) -> None:
        """Take how many cores each device has."""
        if per_device != self.per_device:
            self.per_device = per_device
            self._places.clear()

    def cores(self, entries: Sequence[Entry]) -> list[Row]:
        """Return the rows of `neuroncore_counters`."""
        number, row = self._read.number, self._row
        busiest: dict[tuple[str, str], float] = {}
        flops: dict[tuple[str, str], float] = {}
        physical: dict[tuple[str, str, str], float] = {}
        for tag, group in entries:
            for key, core in self._read.mapping(group.neuroncores_in_use, "neuroncores_in_use").items():
                if type(core) is not Core:
                    self._problems.add("neuroncores_in_use: a core is no object")
                    continue
                _most(busiest, (tag, key), number(core.neuroncore_utilization, "neuroncore_utilization", WHOLE))
                if self._detailed:
                    rate = core.effective_flops if core.flops is None else core.flops
                    _sum(flops, (tag, key), number(rate, "flops"))
                if self._all and core.v3d is not None:
                    for index, share in self._physical(core.v3d):
                        _most(physical, (tag, key, index), share)
        rows = [
            row(metrics.CORE_UTILIZATION, value, *place, tag=tag)
            for (tag, key), value in busiest.items()
            if (place := self._place(key))
        ]
        rows += [
            row(metrics.CORE_FLOPS, value, *place, tag=tag)
            for (tag, key), value in flops.items()
            if (place := self._place(key))
        ]
        rows += [
            row(metrics.PHYSICAL_UTILIZATION, value, *place, index, tag=tag)
            for (tag, key, index), value in physical.items()
            if (place := self._place(key))
        ]
        return rows

    def memory(self, entries: Sequence[Entry]) -> list[Row]:
        """Return the rows of `memory_used`, without the models."""
        read, row = self._read, self._row
        host: dict[str, float] = {}
        device: dict[str, float] = {}
        categories: dict[tuple[str, str], float] = {}
        cores: dict[tuple[str, str, str], float] = {}
        for tag, group in entries:
            used = read.mapping(group.neuron_runtime_used_bytes, "neuron_runtime_used_bytes")
            _sum(host, tag, read.number(used.get("host"), "host memory"))
            _sum(device, tag, read.number(used.get("neuron_device"), "device memory"))
            if not self._detailed:
                continue
            breakdown = read.mapping(used.get("usage_breakdown"), "usage_breakdown")
            for name, value in read.named(breakdown.get("host"), "usage_breakdown of the host"):
                _sum(categories, (tag, name), value)
            of_cores = read.mapping(breakdown.get("neuroncore_memory_usage"), "neuroncore_memory_usage")
            for key, core in of_cores.items():
                for name, value in read.named(core, "neuroncore_memory_usage"):
                    _sum(cores, (tag, key, name), value)
        rows = [row(metrics.HOST_MEMORY, value, tag=tag) for tag, value in host.items()]
        rows += [row(metrics.DEVICE_MEMORY, value, tag=tag) for tag, value in device.items()]
        rows += [row(metrics.HOST_CATEGORY, value, name, tag=tag) for (tag, name), value in categories.items()]
        rows += [
            row(metrics.CORE_MEMORY, value, *place, name, tag=tag)
            for (tag, key, name), value in cores.items()
            if (place := self._place(key))
        ]
        return rows

    def latency(self, entries: Sequence[Entry]) -> list[Row]:
        """Return the latencies of `execution_stats`; none where nothing was executed."""
        slowest: dict[tuple[str, str, str], float] = {}
        for tag, group in entries:
            for scope, percentiles in self._read.mapping(group.latency_stats, "latency_stats").items():
                if scope not in ("total_latency", "device_latency"):
                    continue
                for percentile, seconds in self._read.named(percentiles, scope):
                    if PERCENTILE.fullmatch(percentile):
                        _most(slowest, (tag, scope.removesuffix("_latency"), percentile), seconds)
        rows = []
        for (tag, scope, percentile), value in slowest.items():
            basic = scope == "total" and percentile in BASIC_PERCENTILES
            if basic or self._detailed:
                metric = metrics.LATENCY if basic else metrics.LATENCY_DETAIL
                rows.append(self._row(metric, value, scope, percentile, tag=tag))
        return rows

    def vcpu(self, entries: Sequence[Entry]) -> list[Row]:
        """Return the rows of `neuron_runtime_vcpu_usage`."""
        busiest: dict[tuple[str, str], float] = {}
        for tag, group in entries:
            for mode, value in self._read.named(group.vcpu_usage, "vcpu_usage", WHOLE):
                _most(busiest, (tag, mode), value)
        return [
            self._row(metrics.VCPU, value, mode, tag=tag) for (tag, mode), value in busiest.items() if self._detailed
        ]

    def _place(self, key: str) -> tuple[str, str] | None:
        """Return core and device for the index of a core, which counts on over devices; None if it is invalid."""
        if key not in self._places and len(self._places) < 10_000:
            self._places[key] = (key, str(int(key) // self.per_device)) if is_index(key) and self.per_device else None
        place = self._places.get(key)
        if place is None:
            known = "is no index" if self.per_device else "has no device: neuroncore_per_device_count is not known"
            self._problems.add(f"the key of a core {known}; left out")
        return place

    def _physical(self, v3d: Any) -> Iterator[tuple[str, float]]:
        """Yield physical cores: keys are `nc_v3.0`, `nc_v3.1` ... by the guide."""
        for key, core in self._read.mapping(v3d, "v3d").items():
            index = key.rpartition(".")[2]
            share = self._read.number(self._read.mapping(core, "v3d").get("neuroncore_utilization"), "v3d", WHOLE)
            if share is not None and is_index(index):
                yield index, share


def _most(into: dict[K, float], key: K, value: float | None) -> None:
    if value is not None and value > into.get(key, -1):
        into[key] = value


def _sum(into: dict[K, float], key: K, value: float | None) -> None:
    if value is not None:
        into[key] = into.get(key, 0) + value
