"""Reads the parts of a record about the machine: devices, ECC counters, the instance, pods on cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from chipwatch.collectors.neuron import metrics
from chipwatch.collectors.neuron.schema import LARGEST_TOTAL, Record, RecordReader
from chipwatch.collectors.neuron.series import NeuronSeries, Row
from chipwatch.host.counters import Life
from chipwatch.host.last_values import LastValues
from chipwatch.host.supervised_process import quoted

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
    """The state of the machine from record to record."""

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
