"""Naming profiles: tables of the names that other tools have for our metrics; rename.py applies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chipwatch.naming.dcgm import DCGM, DCGM_4_6, DCGM_4_6_COPIES, DCGM_COPIES
from chipwatch.naming.name import GIB, MB, MIB, Copy, Name
from chipwatch.naming.node import NODE
from chipwatch.naming.otel import OTEL

# Weights & Biases by its documents, the older of which have IPUs and single cores:
# https://docs.wandb.ai/models/ref/python/experiments/system-metrics. Its MB and GB are binary, its counters start at 0
# with the agent.
WANDB_DOCS: Final[Mapping[str, Name]] = {
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
    "ipu.board.temperature": Name("ipu.{ipu}.average board temp (C)"),
    "ipu.die.temperature": Name("ipu.{ipu}.average die temp (C)"),
    "ipu.clock": Name("ipu.{ipu}.clock (MHz)"),
    "ipu.power": Name("ipu.{ipu}.ipu power (W)"),
    "ipu.utilization": Name("ipu.{ipu}.ipu utilisation (%)"),
    "ipu.session.utilization": Name("ipu.{ipu}.ipu utilisation (session) (%)"),
    "ipu.link.speed": Name("ipu.{ipu}.speed (GT/s)"),
    "tpu.duty_cycle": Name("tpu.{tpu}.dutyCycle"),
    "tpu.memory.used": Name("tpu.{tpu}.memoryUsageBytes"),
    "tpu.memory.utilization": Name("tpu.{tpu}.memoryUsage"),  # the page repeats the name for bytes
    "neuron.core.utilization": Name("trn.{neuron_core}.neuroncore_utilization"),
    "neuron.core.memory.used": Name("trn.{neuron_core}.neuroncore_memory_usage.{category}"),
    "neuron.host.memory.used": Name("trn.host_total_memory_usage"),
    "neuron.host.memory.category.used": Name("trn.host_total_memory_usage.{category}"),
    "neuron.device.memory.used": Name("trn.neuron_device_total_memory_usage"),
}
_WANDB_NAMES: Final = {name.template for name in WANDB_DOCS.values()}
_GPU_COPIES: Final[Mapping[str, Copy]] = {
    metric: Copy(name._replace(template=template), of_tree=True)
    for metric, name in WANDB_DOCS.items()
    if name.template.startswith("gpu.{gpu}.")
    and (template := name.template.replace("gpu.", "gpu.process.", 1)) not in _WANDB_NAMES
}
"""All values of a GPU again under `gpu.process`, except those that we have for the process tree."""
WANDB_DOCS_COPIES: Final[Mapping[str, Copy]] = {
    "memory.utilization": Copy(Name("memory")),
    "tpu.duty_cycle": Copy(Name("tpu"), mean_over="tpu"),
    **_GPU_COPIES,
}
"""The older of two names, too."""

# Weights & Biases by what its release 0.31 sends: tests/fixtures/SOURCES.wandb.txt.
_UNSENT: Final = frozenset({"cpu.core.utilization", "memory.utilization", "disk.read", "disk.written"})
WANDB: Final[Mapping[str, Name]] = {
    **{metric: name for metric, name in WANDB_DOCS.items() if metric not in _UNSENT and not metric.startswith("ipu.")},
    "container.memory.oom_kills": Name("proc.memory.oomKills"),
    "network.tcp.retransmits": Name("network.tcpRetransmits"),
    "gpu.ecc.uncorrected": Name("gpu.{gpu}.uncorrectedMemoryErrors"),
    "gpu.energy": Name("gpu.{gpu}.energyJoules"),
    "tpu.memory.used": Name("tpu.{tpu}.hbmCapacityUsage"),
    "tpu.memory.total": Name("tpu.{tpu}.hbmCapacityTotal"),
    "tpu.memory.utilization": Name("tpu.{tpu}.hbmMemoryUsage"),
    "tpu.memory.activity": Name("tpu.{tpu}.runtimeHbmUtilization"),
    "tpu.tensorcore.utilization": Name("tpu.{tpu}.tensorcoreUtilization"),
    "tpu.tensorcore.idle": Name("tpu.{tpu}.tensorcoreIdleDuration"),
    "neuron.host.memory.category.used": Name("trn.host_memory_usage.{category}"),
}
_MEMORY_HELP: Final = "Share of the memory in use: the container's if it has a limit, else the machine's."
_SENT_GPU_COPIES: Final = (
    "gpu.memory.activity", "gpu.temperature", "gpu.power", "gpu.power.utilization", "gpu.power.limit",
)  # fmt: skip
WANDB_COPIES: Final[Mapping[str, Copy]] = {
    "memory.utilization": Copy(Name("memory_percent", help=_MEMORY_HELP), limited=False),
    "container.memory.utilization": Copy(Name("memory_percent", help=_MEMORY_HELP), limited=True),
    **{metric: _GPU_COPIES[metric] for metric in _SENT_GPU_COPIES},
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

# Amazon CloudWatch agent: https://github.com/aws/amazon-cloudwatch-agent, the Linux metrics of its translator/config,
# its default_unit.go and, for Neuron, its awsneuron_metric_modifier.go. Its metrics of nvidia-smi have no unit: "1" and
# "MiBy" become CloudWatch's None.
_ALL_CPUS: Final = {"cpu": "cpu-total"}
_GPU: Final = {"index": "{gpu}", "name": "{model}"}
_CORE: Final = {"NeuronCore": "core{neuron_core}", "NeuronDevice": "device{neuron_device}"}
_DIRECTIONS: Final = {"sent": "out", "received": "in"}
_CORRECTED: Final = {"yes": "corrected", "no": "uncorrected"}
_CPU_HELP: Final = "Share of time in which all CPUs, or the one in `cpu`, worked."
_READ_HELP: Final = "Read from all whole physical disks, or from the one in `name`."
_WRITTEN_HELP: Final = "Written to all whole physical disks, or to the one in `name`."
_SENT_HELP: Final = "Sent by all interfaces, or by the one in `interface`."
_RECEIVED_HELP: Final = "Received by all interfaces, or by the one in `interface`."
_EFA_DIRECTIONS: Final = {"sent": "tx", "received": "rx"}
_ALLOWANCES: Final = {
    "bandwidth_in": "bw_in", "bandwidth_out": "bw_out", "packets": "pps", "connections": "conntrack",
    "link_local": "linklocal",
}  # fmt: skip
CWAGENT: Final[Mapping[str, Name]] = {
    "cpu.utilization": Name("cpu_usage_active", dims=_ALL_CPUS, help=_CPU_HELP),
    "cpu.core.utilization": Name("cpu_usage_active", dims={"cpu": "cpu{cpu}"}, help=_CPU_HELP),
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
    "disk.read": Name("diskio_read_bytes", help=_READ_HELP),
    "disk.written": Name("diskio_write_bytes", help=_WRITTEN_HELP),
    "disk.device.read": Name("diskio_read_bytes", dims={"name": "{device}"}, help=_READ_HELP),
    "disk.device.written": Name("diskio_write_bytes", dims={"name": "{device}"}, help=_WRITTEN_HELP),
    "disk.device.operations": Name("diskio_{direction}s", dims={"name": "{device}"}),
    "disk.device.busy": Name("diskio_io_time", "ms", 1e3, dims={"name": "{device}"}),
    "network.sent": Name("net_bytes_sent", help=_SENT_HELP),
    "network.received": Name("net_bytes_recv", help=_RECEIVED_HELP),
    "network.interface.sent": Name("net_bytes_sent", help=_SENT_HELP),
    "network.interface.received": Name("net_bytes_recv", help=_RECEIVED_HELP),
    "network.interface.errors": Name("net_err_{direction}", words=_DIRECTIONS),
    "network.interface.drops": Name("net_drop_{direction}", words=_DIRECTIONS),
    "network.allowance.exceeded": Name("ethtool_{limit}_allowance_exceeded", words=_ALLOWANCES),
    "network.allowance.connections": Name("ethtool_conntrack_allowance_available"),
    "rdma.sent": Name("efa_tx_bytes"),
    "rdma.received": Name("efa_rx_bytes"),
    "rdma.packets": Name("efa_{direction}_pkts", words=_EFA_DIRECTIONS),
    "rdma.retransmits": Name("efa_retrans_pkts"),
    "rdma.operation.size": Name("efa_{operation}_bytes"),
    "rdma.errors.detail": Name("efa_{error}", words={"rx_drops": "rx_dropped"}),
    "rdma.operations": Name("efa_{operation}_wrs"),
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
_LOCATION_HELP: Final = "Memory used by all runtimes at `memory_location`."
NEURON_PROMETHEUS: Final[Mapping[str, Name]] = {
    "neuron.core.utilization": Name("neuroncore_utilization_ratio", "1", 0.01, {"neuroncore": "{neuron_core}", **_TAG}),
    "neuron.core.memory.used": Name(
        "neuroncore_memory_usage_{category}", dims={"neuroncore": "{neuron_core}", "memory_location": "None", **_TAG}
    ),
    "neuron.host.memory.used": Name(
        "neuron_runtime_memory_used_bytes", dims={"memory_location": "host", **_TAG}, help=_LOCATION_HELP
    ),
    "neuron.device.memory.used": Name(
        "neuron_runtime_memory_used_bytes", dims={"memory_location": "neuron_device", **_TAG}, help=_LOCATION_HELP
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
    "wandb-docs": WANDB_DOCS,
    "mlflow": MLFLOW,
    "cwagent": CWAGENT,
    "neuron-prometheus": NEURON_PROMETHEUS,
    "dcgm": DCGM,
    "dcgm4.6": DCGM_4_6,
    "node": NODE,
    "otel": OTEL,
}
CUMULATIVE: Final = frozenset({"dcgm", "dcgm4.6", "node", "otel"})
"""Profiles whose counters keep what they counted before the agent began, as the other tool's do."""
_DCGM_MACHINE: Final = {
    "hostname": "Hostname", "k8s_namespace": "namespace", "k8s_pod": "pod", "k8s_container": "container",
}  # fmt: skip
MACHINE: Final[Mapping[str, Mapping[str, str]]] = {
    "cwagent": {
        "instance_id": "InstanceId", "instance_type": "InstanceType", "ami_id": "ImageId", "hostname": "host",
        "autoscaling_group": "AutoScalingGroupName", "ecs_cluster": "ClusterName", "ecs_service": "ServiceName",
        "ecs_task": "TaskId", "ecs_task_family": "TaskDefinitionFamily", "ecs_container": "ContainerName",
        "k8s_cluster": "ClusterName", "k8s_node": "NodeName", "k8s_namespace": "Namespace", "k8s_pod": "FullPodName",
        "k8s_container": "ContainerName",
    },
    "dcgm": _DCGM_MACHINE,
    "dcgm4.6": _DCGM_MACHINE,
}  # fmt: skip
"""Profile -> its keys for the dimensions of the machine; they apply to every metric, renamed or not."""
COPIES: Final[Mapping[str, Mapping[str, Copy]]] = {
    "wandb": WANDB_COPIES,
    "wandb-docs": WANDB_DOCS_COPIES,
    "dcgm": DCGM_COPIES,
    "dcgm4.6": DCGM_4_6_COPIES,
}
SCRAPED: Final[Mapping[str, str]] = dict.fromkeys(("wandb", "wandb-docs"), "openmetrics.{endpoint}.{metric}.{index}")
"""
Profile -> its names for scraped metrics: those with the dimension `endpoint`.

`metric` is the name on the page, `index` the number of the series among those of this name, in order of appearance.
"""
