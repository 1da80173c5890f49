"""Naming profiles: our metrics under the names that another tool's dashboards know."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from agent.datapoint import Datapoint, Dimensions, Kind, Metric

MIB, GIB, MB = 2.0**-20, 2.0**-30, 1e-6
PLACE: Final = re.compile(r"\{(\w+)\}")
NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Name(NamedTuple):
    """A name with `{dimension}` places, which take those dimensions up; a unit and a factor where they differ."""

    template: str
    unit: str | None = None
    factor: float = 1.0
    dims: Mapping[str, str] = NONE
    """Dimensions of the other tool: key -> value, with places as in the name; left out where one cannot be filled."""
    words: Mapping[str, str] = NONE
    """Values of our dimensions that it calls otherwise, wherever they fill a place."""
    only: Mapping[str, str] = NONE
    """Dimensions that a series must have to get the name; another one keeps its own."""

    def suits(self, dims: Dimensions) -> bool:
        """Tell whether a series of these dimensions can have the name."""
        places = set(PLACE.findall(self.template))
        return places <= set(dims) and self.only.items() <= dict(dims).items()


# Weights & Biases: https://docs.wandb.ai/models/ref/python/experiments/system-metrics. Its MB and GB are binary, its
# counters begin at 0 with the agent.
WANDB: Final[Mapping[str, Name]] = {
    "cpu.core.utilization": Name("cpu.{cpu}.cpu_percent"),
    "memory.utilization": Name("memory_percent"),
    "memory.available": Name("proc.memory.availableMB", "MiBy", MIB),
    "disk.utilization": Name("disk.{path}.usagePercent"),
    "disk.used": Name("disk.{path}.usageGB", "GiBy", GIB),
    "disk.read": Name("disk.in", "MiBy", MIB),
    "disk.written": Name("disk.out", "MiBy", MIB),
    "disk.device.read": Name("disk.{device}.in", "MiBy", MIB),
    "disk.device.written": Name("disk.{device}.out", "MiBy", MIB),
    "network.sent": Name("network.sent"),
    "network.received": Name("network.recv"),
    "process.cpu.utilization": Name("cpu"),
    "process.threads": Name("proc.cpu.threads"),
    "process.memory.rss": Name("proc.memory.rssMB", "MiBy", MIB),
    "process.memory.utilization": Name("proc.memory.percent"),
    "gpu.utilization": Name("gpu.{gpu}.gpu"),
    "gpu.memory.activity": Name("gpu.{gpu}.memory"),
    "gpu.memory.utilization": Name("gpu.{gpu}.memoryAllocated"),
    "gpu.memory.used": Name("gpu.{gpu}.memoryAllocatedBytes"),
    "gpu.temperature": Name("gpu.{gpu}.temp"),
    "gpu.power": Name("gpu.{gpu}.powerWatts"),
    "gpu.power.utilization": Name("gpu.{gpu}.powerPercent"),
    "gpu.power.limit": Name("gpu.{gpu}.enforcedPowerLimitWatts"),
    "gpu.clock.sm": Name("gpu.{gpu}.smClock"),
    "gpu.clock.memory": Name("gpu.{gpu}.memoryClock"),
    "gpu.clock.graphics": Name("gpu.{gpu}.graphicsClock"),
    "gpu.ecc.corrected": Name("gpu.{gpu}.correctedMemoryErrors"),
    "gpu.ecc.uncorrected": Name("gpu.{gpu}.unCorrectedMemoryErrors"),
    "gpu.encoder.utilization": Name("gpu.{gpu}.encoderUtilization"),
    "gpu.fan.utilization": Name("gpu.{gpu}.fanSpeed"),
    "gpu.sm.active": Name("gpu.{gpu}.smActive"),
    "gpu.sm.occupancy": Name("gpu.{gpu}.smOccupancy"),
    "gpu.tensor.active": Name("gpu.{gpu}.pipeTensorActive"),
    "gpu.dram.active": Name("gpu.{gpu}.dramActive"),
    "gpu.fp64.active": Name("gpu.{gpu}.pipeFp64Active"),
    "gpu.fp32.active": Name("gpu.{gpu}.pipeFp32Active"),
    "gpu.fp16.active": Name("gpu.{gpu}.pipeFp16Active"),
    "gpu.pcie.sent": Name("gpu.{gpu}.pcieTxBytes"),
    "gpu.pcie.received": Name("gpu.{gpu}.pcieRxBytes"),
    "gpu.nvlink.sent": Name("gpu.{gpu}.nvlinkTxBytes"),
    "gpu.nvlink.received": Name("gpu.{gpu}.nvlinkRxBytes"),
    "gpu.process.memory.used": Name("gpu.process.{gpu}.memoryAllocatedBytes"),
    "gpu.process.memory.utilization": Name("gpu.process.{gpu}.memoryAllocated"),
    "gpu.process.utilization": Name("gpu.process.{gpu}.gpu"),
    "neuron.core.utilization": Name("trn.{neuron_core}.neuroncore_utilization"),
    "neuron.core.memory.used": Name("trn.{neuron_core}.neuroncore_memory_usage.{category}"),
    "neuron.host.memory.used": Name("trn.host_total_memory_usage"),
    "neuron.host.memory.category.used": Name("trn.host_total_memory_usage.{category}"),
    "neuron.device.memory.used": Name("trn.neuron_device_total_memory_usage"),
}

# MLflow: https://mlflow.org/docs/latest/ml/tracking/system-metrics/. Its megabytes are 10^6 bytes.
MLFLOW: Final[Mapping[str, Name]] = {
    "cpu.utilization": Name("system/cpu_utilization_percentage"),
    "memory.utilization": Name("system/system_memory_usage_percentage"),
    "memory.used": Name("system/system_memory_usage_megabytes", "MBy", MB),
    "disk.utilization": Name("system/disk_usage_percentage"),
    "disk.used": Name("system/disk_usage_megabytes", "MBy", MB),
    "disk.available": Name("system/disk_available_megabytes", "MBy", MB),
    "network.sent": Name("system/network_transmit_megabytes", "MBy", MB),
    "network.received": Name("system/network_receive_megabytes", "MBy", MB),
    "gpu.utilization": Name("system/gpu_{gpu}_utilization_percentage"),
    "gpu.memory.utilization": Name("system/gpu_{gpu}_memory_usage_percentage"),
    "gpu.memory.used": Name("system/gpu_{gpu}_memory_usage_megabytes", "MBy", MB),
    "gpu.power": Name("system/gpu_{gpu}_power_usage_watts"),
    "gpu.power.utilization": Name("system/gpu_{gpu}_power_usage_percentage"),
}

# Amazon CloudWatch agent: https://github.com/aws/amazon-cloudwatch-agent, what its translator/config registers for
# Linux, its default_unit.go and, for Neuron, its awsneuron_metric_modifier.go. It gives no unit to what it has of
# nvidia-smi: "1" and "MiBy" become CloudWatch's None.
_ALL_CPUS: Final = {"cpu": "cpu-total"}
_GPU: Final = {"index": "{gpu}", "name": "{model}"}
_CORE: Final = {"NeuronCore": "core{neuron_core}", "NeuronDevice": "device{neuron_device}"}
_DIRECTIONS: Final = {"sent": "out", "received": "in"}
_CORRECTED: Final = {"yes": "corrected", "no": "uncorrected"}
CWAGENT: Final[Mapping[str, Name]] = {
    "cpu.utilization": Name("cpu_usage_active", dims=_ALL_CPUS),
    "cpu.core.utilization": Name("cpu_usage_active", dims={"cpu": "cpu{cpu}"}),
    "cpu.mode.utilization": Name("cpu_usage_{mode}", dims=_ALL_CPUS),
    "memory.utilization": Name("mem_used_percent"),
    "memory.used": Name("mem_used"),
    "memory.available": Name("mem_available"),
    "memory.total": Name("mem_total"),
    "swap.used": Name("swap_used"),
    "swap.utilization": Name("swap_used_percent"),
    "disk.utilization": Name("disk_used_percent"),
    "disk.used": Name("disk_used"),
    "disk.available": Name("disk_free"),
    "disk.read": Name("diskio_read_bytes"),
    "disk.written": Name("diskio_write_bytes"),
    "disk.device.read": Name("diskio_read_bytes", dims={"name": "{device}"}),
    "disk.device.written": Name("diskio_write_bytes", dims={"name": "{device}"}),
    "disk.device.operations": Name("diskio_{direction}s", dims={"name": "{device}"}),
    "disk.device.busy": Name("diskio_io_time", "ms", 1e3, dims={"name": "{device}"}),
    "network.sent": Name("net_bytes_sent"),
    "network.received": Name("net_bytes_recv"),
    "network.interface.sent": Name("net_bytes_sent"),
    "network.interface.received": Name("net_bytes_recv"),
    "network.interface.errors": Name("net_err_{direction}", words=_DIRECTIONS),
    "network.interface.drops": Name("net_drop_{direction}", words=_DIRECTIONS),
    "process.threads": Name("procstat_num_threads"),
    "process.memory.rss": Name("procstat_memory_rss"),
    "process.count": Name("procstat_lookup_pid_count"),
    "process.open_files": Name("procstat_num_fds"),
    "gpu.utilization": Name("nvidia_smi_utilization_gpu", "1", dims=_GPU),
    "gpu.memory.activity": Name("nvidia_smi_utilization_memory", "1", dims=_GPU),
    "gpu.memory.used": Name("nvidia_smi_memory_used", "MiBy", MIB, dims=_GPU),
    "gpu.memory.total": Name("nvidia_smi_memory_total", "MiBy", MIB, dims=_GPU),
    "gpu.temperature": Name("nvidia_smi_temperature_gpu", dims=_GPU),
    "gpu.power": Name("nvidia_smi_power_draw", dims=_GPU),
    "gpu.clock.sm": Name("nvidia_smi_clocks_current_sm", dims=_GPU),
    "gpu.clock.memory": Name("nvidia_smi_clocks_current_memory", dims=_GPU),
    "gpu.clock.graphics": Name("nvidia_smi_clocks_current_graphics", dims=_GPU),
    "gpu.fan.utilization": Name("nvidia_smi_fan_speed", "1", dims=_GPU),
    "neuron.core.utilization": Name("node_neuroncore_utilization", dims=_CORE),
    "neuron.core.memory.used": Name("node_neuroncore_memory_usage_{category}", dims=_CORE),
    "neuron.device.memory.used": Name("node_neurondevice_runtime_memory_used_bytes"),
    "neuron.execution.outcomes": Name("node_neuron_execution_status_{outcome}"),
    "neuron.execution.errors": Name("node_neuron_execution_errors_{error}"),
    "neuron.ecc.events": Name(
        "node_neurondevice_hw_ecc_events_{memory}_ecc_{corrected}",
        dims={"NeuronDevice": "device{neuron_device}"},
        words=_CORRECTED,
    ),
}

# AWS's neuron-monitor-prometheus.py, as of 2024: aws/amazon-cloudwatch-agent-test, docs/resources/dummy-neuron-monitor.
_TAG: Final = {"runtime_tag": "{neuron_runtime_tag}"}
NEURON_PROMETHEUS: Final[Mapping[str, Name]] = {
    "neuron.core.utilization": Name("neuroncore_utilization_ratio", "1", 0.01, {"neuroncore": "{neuron_core}", **_TAG}),
    "neuron.core.memory.used": Name(
        "neuroncore_memory_usage_{category}",
        dims={"neuroncore": "{neuron_core}", "memory_location": "None", **_TAG},
    ),
    "neuron.host.memory.used": Name("neuron_runtime_memory_used_bytes", dims={"memory_location": "host", **_TAG}),
    "neuron.device.memory.used": Name(
        "neuron_runtime_memory_used_bytes", dims={"memory_location": "neuron_device", **_TAG}
    ),
    "neuron.runtime.vcpu.utilization": Name(
        "neuron_runtime_vcpu_usage_ratio", "1", 0.01, {"usage_type": "{mode}", **_TAG}
    ),
    "neuron.execution.errors": Name("execution_errors_total", dims={"error_type": "{error}", **_TAG}),
    "neuron.execution.outcomes": Name("execution_status_total", dims={"status_type": "{outcome}", **_TAG}),
    "neuron.execution.latency": Name(
        "execution_latency_seconds", dims={"percentile": "{percentile}", **_TAG}, only={"scope": "total"}
    ),
    "neuron.ecc.events": Name(
        "hardware_ecc_events_total",
        dims={"event_type": "{memory}_ecc_{corrected}", "neuron_device_index": "{neuron_device}"},
        words=_CORRECTED,
    ),
    "memory.total": Name("system_memory_total_bytes"),
    "memory.used": Name("system_memory_used_bytes"),
    "swap.used": Name("system_swap_used_bytes"),
}

PROFILES: Final[Mapping[str, Mapping[str, Name]]] = {
    "native": {},
    "wandb": WANDB,
    "mlflow": MLFLOW,
    "cwagent": CWAGENT,
    "neuron-prometheus": NEURON_PROMETHEUS,
}
MACHINE: Final[Mapping[str, Mapping[str, str]]] = {
    "cwagent": {
        "instance_id": "InstanceId",
        "instance_type": "InstanceType",
        "ami_id": "ImageId",
        "autoscaling_group": "AutoScalingGroupName",
        "hostname": "host",
        "ecs_cluster": "ClusterName",
        "ecs_service": "ServiceName",
        "ecs_task": "TaskId",
        "ecs_task_family": "TaskDefinitionFamily",
        "ecs_container": "ContainerName",
        "k8s_cluster": "ClusterName",
        "k8s_node": "NodeName",
        "k8s_namespace": "Namespace",
        "k8s_pod": "FullPodName",
        "k8s_container": "ContainerName",
    }
}
"""What a profile calls the dimensions that say which machine it is: on every metric, also where it has no name."""


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
