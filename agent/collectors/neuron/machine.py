"""The machine in a record: devices and their ECC counters, the instance, the pods that use its cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent.collectors.neuron import metrics
from agent.collectors.neuron.groups import Groups
from agent.collectors.neuron.problems import Problems
from agent.collectors.neuron.schema import Reader, Record
from agent.collectors.neuron.series import Row, Series
from agent.collectors.neuron.tally import Reported
from agent.datapoint import Level
from agent.host.supervised_process import quoted

HARDWARE: Final = "neuron_hw_counters"
OF_HOST: Final = frozenset({"vcpu_usage", "memory_info"})
"""Groups of host metrics, which other collectors read."""
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
"""Our dimension names by the keys of `instance_info`."""
MOST_DEVICES: Final = 1024

Named = tuple[str, list[Row]]


class Machine:
    """Keeps the state of the machine over records."""

    def __init__(
        self,
        series: Series,
        groups: Groups,
        problems: Problems,
        level: Level,
        *,
        ecc_per_period: bool,
        boot: int | None,
    ) -> None:
        """Take when the devices' counters were zero: `boot` (ns since the epoch), else when they are first seen."""
        self._level = level
        self._series, self._groups, self._problems, self._read = series, groups, problems, Reader(problems)
        self._ecc_per_period, self._boot = ecc_per_period, boot
        self._ecc: dict[tuple[str, str, str], Reported] = {}
        self._pods_until = 0.0
        self.identity: Mapping[str, str] = {}
        """Dimension names and values of this instance; a later record may add some."""
        self.devices: int | None = None

    def take(self, record: Record, now: float, until: float, at: int, start_time: int) -> Iterator[Named]:
        """Yield each group with its new rows, which are kept `until` (monotonic s, as `now`)."""
        self._take_instance(record.instance_info)
        self._take_pods(record.neuron_k8s_info, now, until)
        yield "neuron_hardware_info", self._hardware(record.neuron_hardware_info)
        for name, given in self._read.mapping(record.system_data, "system_data").items():
            if name == HARDWARE:
                group = self._read.group(given, name)
                yield name, self._ecc_rows(group.neuron_devices, at, start_time) if group else []
            elif name not in OF_HOST:
                self._problems.once(f"the group {quoted(name)} of the system is not known")

    def _hardware(self, info: Any) -> list[Row]:
        number, info = self._read.number, self._read.mapping(info, "neuron_hardware_info")
        self._read.failed("neuron_hardware_info", info.get("error"))
        if cores := number(info.get("neuroncore_per_device_count"), "neuroncore_per_device_count"):
            self._groups.divide(int(cores))
        devices = number(info.get("neuron_device_count"), "neuron_device_count")
        size = number(info.get("neuron_device_memory_size"), "neuron_device_memory_size")
        if devices is not None:
            self.devices = int(devices)
        return [self._series.row(metrics.DEVICE_MEMORY_TOTAL, devices * size)] if devices and size else []

    def _ecc_rows(self, listed: Any, at: int, start_time: int) -> list[Row]:
        rows = []
        for device, counters in self._devices(listed).items():
            for key, memory, corrected, metric in ECC:
                count = self._read.number(counters.get(key), key) if metric.level <= self._level else None
                if count is None:
                    continue
                place = (device, memory, corrected)
                if place not in self._ecc:
                    self._ecc[place] = Reported(start_time if self._ecc_per_period else self._boot or start_time)
                known = self._ecc[place]
                if self._ecc_per_period:
                    known.add(int(count))
                else:
                    known.read(int(count), at)
                rows.append(self._series.row(metric, known.value, *place, start_time=known.start_time))
        return rows

    def _devices(self, listed: Any) -> dict[str, Mapping[str, Any]]:
        """Return the devices of a list by their indices."""
        if listed is not None and not isinstance(listed, list):
            self._problems.add("neuron_devices: no list")
        found: dict[str, Mapping[str, Any]] = {}
        for device in listed if isinstance(listed, list) else []:
            index = device.get("neuron_device_index") if isinstance(device, dict) else None
            if type(index) is int and 0 <= index < MOST_DEVICES:
                found[str(index)] = device
            else:
                self._problems.add("neuron_devices: a device has no index")
        return found

    def _take_instance(self, info: Any) -> None:
        info = self._read.mapping(info, "instance_info")
        self._read.failed("instance_info", info.get("error"))
        known = {word: self._read.text(info.get(key), key) for key, word in IDENTITY.items()}
        # A new mapping, since another thread may look at the old one.
        self.identity = {**self.identity, **{word: text for word, text in known.items() if text}}

    def _take_pods(self, info: Any, now: float, until: float) -> None:
        if info is None:
            if now > self._pods_until:
                self._series.pods({})
            return
        info = self._read.mapping(info, "neuron_k8s_info")
        failed = self._read.failed("neuron_k8s_info", info.get("error"))
        cores = self._read.mapping(None if failed else info.get("neuroncores_k8s_info"), "neuroncores_k8s_info")
        self._pods_until = until
        self._series.pods({core: self._pod(self._read.mapping(pod, "a core's pod")) for core, pod in cores.items()})

    def _pod(self, pod: Mapping[str, Any]) -> Mapping[str, str]:
        containers = pod.get("container_name")
        names = containers if isinstance(containers, list) else [containers]
        words = {
            "k8s_pod": self._read.text(pod.get("pod_name"), "pod_name"),
            "k8s_namespace": self._read.text(pod.get("namespace"), "namespace"),
            "k8s_container": ",".join(sorted(self._read.text(name, "container_name") for name in names))[:255],
        }
        return {word: text for word, text in words.items() if text.strip(",")}
