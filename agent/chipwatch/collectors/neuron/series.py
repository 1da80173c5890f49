"""
Converts a record to rows: its values, each with its series, that is its metric and dimensions.

Each runtime lists every core of the machine, with 0 for cores of other runtimes. So utilization is the maximum over
runtimes, bytes and rates are sums, and latency is that of the slowest runtime.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from chipwatch.collectors.neuron import metrics
from chipwatch.collectors.neuron.metrics import CORE, TAG, shaped
from chipwatch.collectors.neuron.schema import INDEX, LARGEST_TOTAL, Core, Record, RecordGroup, RecordReader
from chipwatch.contract.datapoint import Dimensions, Level, Metric
from chipwatch.host.counters import Life
from chipwatch.host.last_values import LastValues
from chipwatch.host.supervised_process import quoted

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
    """Finds the series of values, which are built once; adds to each core its device and the pod that uses it."""

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


PERCENTILE: Final = re.compile(r"p\d{1,3}")
BASIC_PERCENTILES: Final = ("p50", "p99")
MAX_PERCENT: Final = 100

Entry = tuple[str, RecordGroup]
"""A runtime's tag ("" if tags are not used), and its group."""


class Groups:
    """Converts the groups of one record, merged over runtimes, to rows."""

    def __init__(self, series: NeuronSeries, reader: RecordReader, level: Level) -> None:
        """`level`: highest level of metrics."""
        self._rows, self._reader = series.rows, reader
        self._detailed, self._all = level >= Level.DETAILED, level >= Level.ALL

    def cores(self, entries: Sequence[Entry]) -> Iterator[Row]:
        """Yield the rows of `neuroncore_counters`."""
        number, values = self._reader.number, defaultdict[Metric, ValuesByLabels](dict)
        for tag, group in entries:
            for key, core in self._reader.mapping(group.neuroncores_in_use, "neuroncores_in_use").items():
                if type(core) is not Core:
                    self._reader.report("neuroncores_in_use: a core is not an object")
                    continue
                share = number(core.neuroncore_utilization, "neuroncore_utilization", MAX_PERCENT)
                _maximum(values[metrics.CORE_UTILIZATION], (tag, key), share)
                if self._detailed:
                    rate = core.effective_flops if core.flops is None else core.flops
                    _add(values[metrics.CORE_FLOPS], (tag, key), number(rate, "flops"))
                if self._all and core.v3d is not None:
                    for index, value in self._physical(core.v3d):
                        _maximum(values[metrics.PHYSICAL_UTILIZATION], (tag, key, index), value)
        return self._of(values)

    def memory(self, entries: Sequence[Entry]) -> Iterator[Row]:
        """Yield the rows of `memory_used`, without loaded models."""
        reader, values = self._reader, defaultdict[Metric, ValuesByLabels](dict)
        for tag, group in entries:
            used = reader.mapping(group.neuron_runtime_used_bytes, "neuron_runtime_used_bytes")
            _add(values[metrics.HOST_MEMORY], (tag,), reader.number(used.get("host"), "host memory"))
            _add(values[metrics.DEVICE_MEMORY], (tag,), reader.number(used.get("neuron_device"), "device memory"))
            if not self._detailed:
                continue
            breakdown = reader.mapping(used.get("usage_breakdown"), "usage_breakdown")
            for name, value in reader.named(breakdown.get("host"), "usage_breakdown of the host"):
                _add(values[metrics.HOST_CATEGORY], (tag, name), value)
            of_cores = reader.mapping(breakdown.get("neuroncore_memory_usage"), "neuroncore_memory_usage")
            for key, core in of_cores.items():
                for name, value in reader.named(core, "neuroncore_memory_usage"):
                    _add(values[metrics.CORE_MEMORY], (tag, key, name), value)
        return self._of(values)

    def latency(self, entries: Sequence[Entry]) -> Iterator[Row]:
        """Yield the latencies of `execution_stats`; none if nothing ran."""
        values = defaultdict[Metric, ValuesByLabels](dict)
        for tag, group in entries:
            for key, percentiles in self._reader.mapping(group.latency_stats, "latency_stats").items():
                if key not in ("total_latency", "device_latency"):
                    continue
                scope = key.removesuffix("_latency")
                for percentile, seconds in self._reader.named(percentiles, key):
                    if PERCENTILE.fullmatch(percentile):
                        is_basic = scope == "total" and percentile in BASIC_PERCENTILES
                        metric = metrics.LATENCY if is_basic else metrics.LATENCY_DETAIL
                        _maximum(values[metric], (tag, scope, percentile), seconds)
        return self._of(values)

    def vcpu(self, entries: Sequence[Entry]) -> Iterator[Row]:
        """Yield the rows of `neuron_runtime_vcpu_usage`."""
        busiest: ValuesByLabels = {}
        for tag, group in entries:
            for mode, value in self._reader.named(group.vcpu_usage, "vcpu_usage", MAX_PERCENT):
                _maximum(busiest, (tag, mode), value)
        yield from self._rows(metrics.VCPU, busiest)

    def _of(self, values: Mapping[Metric, ValuesByLabels]) -> Iterator[Row]:
        return (row for metric, labelled in values.items() for row in self._rows(metric, labelled))

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


HARDWARE: Final = "neuron_hw_counters"
OF_HOST: Final = frozenset({"vcpu_usage", "memory_info"})
"""Groups about the host, which are ignored: other collectors read the same."""
ECC: Final = tuple(
    (f"{memory}_ecc_{kind}", memory, corrected, metric)
    for memory in ("mem", "sram")
    for kind, corrected, metric in (("corrected", "yes", metrics.ECC), ("uncorrected", "no", metrics.ECC_UNCORRECTED))
)
IDENTITY: Final = {
    "instance_id": "instance_id",
    "instance_type": "instance_type",
    "ami_id": "ami_id",
    "instance_region": "region",
    "instance_availability_zone": "availability_zone",
    "ultraserver_id": "ultraserver_id",
}
"""Key of `instance_info` -> our dimension."""
MAX_DEVICES: Final = 1024


class NeuronMachine:
    """The machine from record to record: devices, ECC counters, the instance, pods on cores."""

    def __init__(self, series: NeuronSeries, reader: RecordReader, *, ecc_per_period: bool, kept: LastValues) -> None:
        """`kept`: counters of the devices from an earlier run."""
        self._series, self._reader = series, reader
        self._ecc_per_period, self._kept = ecc_per_period, kept
        self._ecc: dict[tuple[str, ...], Life] = {}
        self._pods_until = 0.0
        self.identity: Mapping[str, str] = {}
        """Dimensions of this instance; later records may add some."""
        self.devices: int | None = None

    def take(
        self, record: Record, now: float, until: float, at: int, start_time: int
    ) -> Iterator[tuple[str, Iterator[Row]]]:
        """Yield each group with its new rows; pods count `until` a time (monotonic s, as `now`)."""
        self._take_instance(record.instance_info)
        self._take_pods(record.neuron_k8s_info, now, until)
        yield "neuron_hardware_info", self._hardware(record.neuron_hardware_info)
        for name, group in self._reader.mapping(record.system_data, "system_data").items():
            if name == HARDWARE:
                counters = self._reader.group(group, name)
                yield name, self._ecc_rows(counters.neuron_devices if counters else None, at, start_time)
            elif name not in OF_HOST:
                self._reader.report_once(f"the group {quoted(name)} of the system is unknown")

    def _hardware(self, info: Any) -> Iterator[Row]:
        number, info = self._reader.number, self._reader.mapping(info, "neuron_hardware_info")
        self._reader.failed("neuron_hardware_info", info.get("error"))
        if cores := number(info.get("neuroncore_per_device_count"), "neuroncore_per_device_count"):
            self._series.set_cores_per_device(int(cores))
        if logical := number(info.get("logical_neuroncore_config"), "logical_neuroncore_config"):
            yield from self._series.rows(metrics.LOGICAL, {("",): logical})
        devices = number(info.get("neuron_device_count"), "neuron_device_count")
        size = number(info.get("neuron_device_memory_size"), "neuron_device_memory_size")
        if devices is not None:
            self.devices = int(devices)
        if devices and size:
            yield from self._series.rows(metrics.DEVICE_MEMORY_TOTAL, {("",): devices * size})

    def _ecc_rows(self, listed: Any, at: int, start_time: int) -> Iterator[Row]:
        for device, counters in self._devices(listed).items():
            for key, memory, corrected, metric in ECC:
                count = self._reader.number(counters.get(key), key) if metric.level <= self._series.level else None
                if count is None:
                    continue
                series = "", device, memory, corrected
                if series not in self._ecc:
                    kept = None if self._ecc_per_period else self._kept
                    self._ecc[series] = kept.life(f"{series}", at) if kept else Life(start_time)
                life = self._ecc[series]
                life.take(min(life.value + int(count), LARGEST_TOTAL) if self._ecc_per_period else int(count), at)
                yield from self._series.rows(metric, {series: life.value}, life.start_time)

    def _devices(self, listed: Any) -> dict[str, Mapping[str, Any]]:
        """Return index -> device."""
        devices: dict[str, Mapping[str, Any]] = {}
        for device in self._reader.expect(listed, list, "neuron_devices") or []:
            index = device.get("neuron_device_index") if isinstance(device, dict) else None
            if type(index) is int and 0 <= index < MAX_DEVICES:
                devices[str(index)] = device
            else:
                self._reader.report("neuron_devices: a device has no index")
        return devices

    def _take_instance(self, info: Any) -> None:
        info = self._reader.mapping(info, "instance_info")
        self._reader.failed("instance_info", info.get("error"))
        words = {word: self._reader.text(info.get(key), key) for key, word in IDENTITY.items()}
        # It is replaced, not changed, because another thread may be reading the old mapping.
        self.identity = {**self.identity, **{word: text for word, text in words.items() if text}}

    def _take_pods(self, info: Any, now: float, until: float) -> None:
        if info is None:
            if now > self._pods_until:
                self._series.set_pods({})
            return
        info = self._reader.mapping(info, "neuron_k8s_info")
        failed = self._reader.failed("neuron_k8s_info", info.get("error"))
        cores = self._reader.mapping(None if failed else info.get("neuroncores_k8s_info"), "neuroncores_k8s_info")
        self._pods_until = until
        self._series.set_pods({core: self._pod(info) for core, info in cores.items()})

    def _pod(self, info: Any) -> dict[str, str]:
        pod = self._reader.mapping(info, "a core's pod")
        containers = pod.get("container_name")
        names = containers if isinstance(containers, list) else [containers]
        words = {
            "k8s_pod": self._reader.text(pod.get("pod_name"), "pod_name"),
            "k8s_namespace": self._reader.text(pod.get("namespace"), "namespace"),
            "k8s_container": ",".join(sorted(self._reader.text(name, "container_name") for name in names))[:255],
        }
        return {word: text for word, text in words.items() if text.strip(",")}
