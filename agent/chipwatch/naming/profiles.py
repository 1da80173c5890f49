"""Naming profiles: tables of the names that other tools have for our metrics; rename.py applies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chipwatch.naming.dcgm import DCGM, DCGM_4_6, DCGM_4_6_COPIES, DCGM_COPIES
from chipwatch.naming.name import GIB, MB, MIB, Copy, ToolName
from chipwatch.naming.node import NODE
from chipwatch.naming.otel import OTEL

# Weights & Biases by its documents, the older of which have IPUs and single cores:
# https://docs.wandb.ai/models/ref/python/experiments/system-metrics. Its MB and GB are binary, its counters start at 0
# with the agent.
WANDB_DOCS: Final[Mapping[str, ToolName]] = {
    "cpu.core.utilization": ToolName("cpu.{cpu}.cpu_percent"),
    "memory.utilization": ToolName("memory_percent"),
    "memory.available": ToolName("proc.memory.availableMB", "MiBy", MIB),
    "disk.utilization": ToolName("disk.{path}.usagePercent"),
    "disk.used": ToolName("disk.{path}.usageGB", "GiBy", GIB),
    "disk.read": ToolName("disk.in", "MiBy", MIB),
    "disk.written": ToolName("disk.out", "MiBy", MIB),
    "disk.device.read": ToolName("disk.{device}.in", "MiBy", MIB),
    "disk.device.written": ToolName("disk.{device}.out", "MiBy", MIB),
    "network.sent": ToolName("network.sent"),
    "network.received": ToolName("network.recv"),
    "process.cpu.utilization": ToolName("cpu"),
    "process.threads": ToolName("proc.cpu.threads"),
    "process.memory.rss": ToolName("proc.memory.rssMB", "MiBy", MIB),
    "process.memory.utilization": ToolName("proc.memory.percent"),
    "gpu.utilization": ToolName("gpu.{gpu}.gpu"),
    "gpu.memory.activity": ToolName("gpu.{gpu}.memory"),
    "gpu.memory.utilization": ToolName("gpu.{gpu}.memoryAllocated"),
    "gpu.memory.used": ToolName("gpu.{gpu}.memoryAllocatedBytes"),
    "gpu.temperature": ToolName("gpu.{gpu}.temp"),
    "gpu.power": ToolName("gpu.{gpu}.powerWatts"),
    "gpu.power.utilization": ToolName("gpu.{gpu}.powerPercent"),
    "gpu.power.limit": ToolName("gpu.{gpu}.enforcedPowerLimitWatts"),
    "gpu.clock.sm": ToolName("gpu.{gpu}.smClock"),
    "gpu.clock.memory": ToolName("gpu.{gpu}.memoryClock"),
    "gpu.clock.graphics": ToolName("gpu.{gpu}.graphicsClock"),
    "gpu.ecc.corrected": ToolName("gpu.{gpu}.correctedMemoryErrors"),
    "gpu.ecc.uncorrected": ToolName("gpu.{gpu}.unCorrectedMemoryErrors"),
    "gpu.encoder.utilization": ToolName("gpu.{gpu}.encoderUtilization"),
    "gpu.fan.utilization": ToolName("gpu.{gpu}.fanSpeed"),
    "gpu.sm.active": ToolName("gpu.{gpu}.smActive"),
    "gpu.sm.occupancy": ToolName("gpu.{gpu}.smOccupancy"),
    "gpu.tensor.active": ToolName("gpu.{gpu}.pipeTensorActive"),
    "gpu.dram.active": ToolName("gpu.{gpu}.dramActive"),
    "gpu.fp64.active": ToolName("gpu.{gpu}.pipeFp64Active"),
    "gpu.fp32.active": ToolName("gpu.{gpu}.pipeFp32Active"),
    "gpu.fp16.active": ToolName("gpu.{gpu}.pipeFp16Active"),
    "gpu.pcie.sent": ToolName("gpu.{gpu}.pcieTxBytes"),
    "gpu.pcie.received": ToolName("gpu.{gpu}.pcieRxBytes"),
    "gpu.nvlink.sent": ToolName("gpu.{gpu}.nvlinkTxBytes"),
    "gpu.nvlink.received": ToolName("gpu.{gpu}.nvlinkRxBytes"),
    "gpu.process.memory.used": ToolName("gpu.process.{gpu}.memoryAllocatedBytes"),
    "gpu.process.memory.utilization": ToolName("gpu.process.{gpu}.memoryAllocated"),
    "gpu.process.utilization": ToolName("gpu.process.{gpu}.gpu"),
    "ipu.board.temperature": ToolName("ipu.{ipu}.average board temp (C)"),
    "ipu.die.temperature": ToolName("ipu.{ipu}.average die temp (C)"),
    "ipu.clock": ToolName("ipu.{ipu}.clock (MHz)"),
    "ipu.power": ToolName("ipu.{ipu}.ipu power (W)"),
    "ipu.utilization": ToolName("ipu.{ipu}.ipu utilisation (%)"),
    "ipu.session.utilization": ToolName("ipu.{ipu}.ipu utilisation (session) (%)"),
    "ipu.link.speed": ToolName("ipu.{ipu}.speed (GT/s)"),
    "tpu.duty_cycle": ToolName("tpu.{tpu}.dutyCycle"),
    "tpu.memory.used": ToolName("tpu.{tpu}.memoryUsageBytes"),
    "tpu.memory.utilization": ToolName("tpu.{tpu}.memoryUsage"),  # the page repeats the name for bytes
    "neuron.core.utilization": ToolName("trn.{neuron_core}.neuroncore_utilization"),
    "neuron.core.memory.used": ToolName("trn.{neuron_core}.neuroncore_memory_usage.{category}"),
    "neuron.host.memory.used": ToolName("trn.host_total_memory_usage"),
    "neuron.host.memory.category.used": ToolName("trn.host_total_memory_usage.{category}"),
    "neuron.device.memory.used": ToolName("trn.neuron_device_total_memory_usage"),
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
    "memory.utilization": Copy(ToolName("memory")),
    "tpu.duty_cycle": Copy(ToolName("tpu"), mean_over="tpu"),
    **_GPU_COPIES,
}
"""The older of two names, too."""

# Weights & Biases by what its release 0.31 sends: tests/fixtures/SOURCES.wandb.txt.
_UNSENT: Final = frozenset({"cpu.core.utilization", "memory.utilization", "disk.read", "disk.written"})
WANDB: Final[Mapping[str, ToolName]] = {
    **{metric: name for metric, name in WANDB_DOCS.items() if metric not in _UNSENT and not metric.startswith("ipu.")},
    "container.memory.oom_kills": ToolName("proc.memory.oomKills"),
    "network.tcp.retransmits": ToolName("network.tcpRetransmits"),
    "gpu.ecc.uncorrected": ToolName("gpu.{gpu}.uncorrectedMemoryErrors"),
    "gpu.energy": ToolName("gpu.{gpu}.energyJoules"),
    "tpu.memory.used": ToolName("tpu.{tpu}.hbmCapacityUsage"),
    "tpu.memory.total": ToolName("tpu.{tpu}.hbmCapacityTotal"),
    "tpu.memory.utilization": ToolName("tpu.{tpu}.hbmMemoryUsage"),
    "tpu.memory.activity": ToolName("tpu.{tpu}.runtimeHbmUtilization"),
    "tpu.tensorcore.utilization": ToolName("tpu.{tpu}.tensorcoreUtilization"),
    "tpu.tensorcore.idle": ToolName("tpu.{tpu}.tensorcoreIdleDuration"),
    "neuron.host.memory.category.used": ToolName("trn.host_memory_usage.{category}"),
}
_MEMORY_HELP: Final = "Share of the memory in use: the container's if it has a limit, else the machine's."
_SENT_GPU_COPIES: Final = (
    "gpu.memory.activity", "gpu.temperature", "gpu.power", "gpu.power.utilization", "gpu.power.limit",
)  # fmt: skip
WANDB_COPIES: Final[Mapping[str, Copy]] = {
    "memory.utilization": Copy(ToolName("memory_percent", help=_MEMORY_HELP), limited=False),
    "container.memory.utilization": Copy(ToolName("memory_percent", help=_MEMORY_HELP), limited=True),
    **{metric: _GPU_COPIES[metric] for metric in _SENT_GPU_COPIES},
}

# MLflow: https://mlflow.org/docs/latest/ml/tracking/system-metrics/. Its megabytes are 10^6 bytes.
MLFLOW: Final[Mapping[str, ToolName]] = {
    "cpu.utilization": ToolName("system/cpu_utilization_percentage"),
    "memory.utilization": ToolName("system/system_memory_usage_percentage"),
    "memory.used": ToolName("system/system_memory_usage_megabytes", "MBy", MB),
    "disk.utilization": ToolName("system/disk_usage_percentage"),
    "disk.used": ToolName("system/disk_usage_megabytes", "MBy", MB),
    "disk.available": ToolName("system/disk_available_megabytes", "MBy", MB),
    "network.sent": ToolName("system/network_transmit_megabytes", "MBy", MB),
    "network.received": ToolName("system/network_receive_megabytes", "MBy", MB),
    "gpu.utilization": ToolName("system/gpu_{gpu}_utilization_percentage"),
    "gpu.memory.utilization": ToolName("system/gpu_{gpu}_memory_usage_percentage"),
    "gpu.memory.used": ToolName("system/gpu_{gpu}_memory_usage_megabytes", "MBy", MB),
    "gpu.power": ToolName("system/gpu_{gpu}_power_usage_watts"),
    "gpu.power.utilization": ToolName("system/gpu_{gpu}_power_usage_percentage"),
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
CWAGENT: Final[Mapping[str, ToolName]] = {
    "cpu.utilization": ToolName("cpu_usage_active", dims=_ALL_CPUS, help=_CPU_HELP),
    "cpu.core.utilization": ToolName("cpu_usage_active", dims={"cpu": "cpu{cpu}"}, help=_CPU_HELP),
    "cpu.mode.utilization": ToolName("cpu_usage_{mode}", dims=_ALL_CPUS),
    "memory.utilization": ToolName("mem_used_percent"),
    "memory.used": ToolName("mem_used"),
    "memory.available": ToolName("mem_available"),
    "memory.total": ToolName("mem_total"),
    "swap.used": ToolName("swap_used"),
    "swap.utilization": ToolName("swap_used_percent"),
    "disk.utilization": ToolName("disk_used_percent"),
    "disk.used": ToolName("disk_used"),
    "disk.available": ToolName("disk_free"),
    "disk.read": ToolName("diskio_read_bytes", help=_READ_HELP),
    "disk.written": ToolName("diskio_write_bytes", help=_WRITTEN_HELP),
    "disk.device.read": ToolName("diskio_read_bytes", dims={"name": "{device}"}, help=_READ_HELP),
    "disk.device.written": ToolName("diskio_write_bytes", dims={"name": "{device}"}, help=_WRITTEN_HELP),
    "disk.device.operations": ToolName("diskio_{direction}s", dims={"name": "{device}"}),
    "disk.device.busy": ToolName("diskio_io_time", "ms", 1e3, dims={"name": "{device}"}),
    "network.sent": ToolName("net_bytes_sent", help=_SENT_HELP),
    "network.received": ToolName("net_bytes_recv", help=_RECEIVED_HELP),
    "network.interface.sent": ToolName("net_bytes_sent", help=_SENT_HELP),
    "network.interface.received": ToolName("net_bytes_recv", help=_RECEIVED_HELP),
    "network.interface.errors": ToolName("net_err_{direction}", words=_DIRECTIONS),
    "network.interface.drops": ToolName("net_drop_{direction}", words=_DIRECTIONS),
    "network.allowance.exceeded": ToolName("ethtool_{limit}_allowance_exceeded", words=_ALLOWANCES),
    "network.allowance.connections": ToolName("ethtool_conntrack_allowance_available"),
    "rdma.sent": ToolName("efa_tx_bytes"),
    "rdma.received": ToolName("efa_rx_bytes"),
    "rdma.packets": ToolName("efa_{direction}_pkts", words=_EFA_DIRECTIONS),
    "rdma.retransmits": ToolName("efa_retrans_pkts"),
    "rdma.operation.size": ToolName("efa_{operation}_bytes"),
    "rdma.errors.detail": ToolName("efa_{error}", words={"rx_drops": "rx_dropped"}),
    "rdma.operations": ToolName("efa_{operation}_wrs"),
    "process.threads": ToolName("procstat_num_threads"),
    "process.memory.rss": ToolName("procstat_memory_rss"),
    "process.count": ToolName("procstat_lookup_pid_count"),
    "process.open_files": ToolName("procstat_num_fds"),
    "gpu.utilization": ToolName("nvidia_smi_utilization_gpu", "1", dims=_GPU),
    "gpu.memory.activity": ToolName("nvidia_smi_utilization_memory", "1", dims=_GPU),
    "gpu.memory.used": ToolName("nvidia_smi_memory_used", "MiBy", MIB, dims=_GPU),
    "gpu.memory.total": ToolName("nvidia_smi_memory_total", "MiBy", MIB, dims=_GPU),
    "gpu.temperature": ToolName("nvidia_smi_temperature_gpu", dims=_GPU),
    "gpu.power": ToolName("nvidia_smi_power_draw", dims=_GPU),
    "gpu.clock.sm": ToolName("nvidia_smi_clocks_current_sm", dims=_GPU),
    "gpu.clock.memory": ToolName("nvidia_smi_clocks_current_memory", dims=_GPU),
    "gpu.clock.graphics": ToolName("nvidia_smi_clocks_current_graphics", dims=_GPU),
    "gpu.fan.utilization": ToolName("nvidia_smi_fan_speed", "1", dims=_GPU),
    "neuron.core.utilization": ToolName("node_neuroncore_utilization", dims=_CORE),
    "neuron.core.memory.used": ToolName("node_neuroncore_memory_usage_{category}", dims=_CORE),
    "neuron.device.memory.used": ToolName("node_neurondevice_runtime_memory_used_bytes"),
    "neuron.execution.outcomes": ToolName("node_neuron_execution_status_{outcome}"),
    "neuron.execution.errors": ToolName("node_neuron_execution_errors_{error}"),
    "neuron.ecc.events": ToolName(
        "node_neurondevice_hw_ecc_events_{memory}_ecc_{corrected}",
        dims={"NeuronDevice": "device{neuron_device}"},
        words=_CORRECTED,
    ),
}

# AWS's neuron-monitor-prometheus.py, as of 2024: aws/amazon-cloudwatch-agent-test, docs/resources/dummy-neuron-monitor.
_TAG: Final = {"runtime_tag": "{neuron_runtime_tag}"}
_LOCATION_HELP: Final = "Memory used by all runtimes at `memory_location`."
NEURON_PROMETHEUS: Final[Mapping[str, ToolName]] = {
    "neuron.core.utilization": ToolName(
        "neuroncore_utilization_ratio", "1", 0.01, {"neuroncore": "{neuron_core}", **_TAG}
    ),
    "neuron.core.memory.used": ToolName(
        "neuroncore_memory_usage_{category}", dims={"neuroncore": "{neuron_core}", "memory_location": "None", **_TAG}
    ),
    "neuron.host.memory.used": ToolName(
        "neuron_runtime_memory_used_bytes", dims={"memory_location": "host", **_TAG}, help=_LOCATION_HELP
    ),
    "neuron.device.memory.used": ToolName(
        "neuron_runtime_memory_used_bytes", dims={"memory_location": "neuron_device", **_TAG}, help=_LOCATION_HELP
    ),
    "neuron.runtime.vcpu.utilization": ToolName(
        "neuron_runtime_vcpu_usage_ratio", "1", 0.01, {"usage_type": "{mode}", **_TAG}
    ),
    "neuron.execution.errors": ToolName("execution_errors_total", dims={"error_type": "{error}", **_TAG}),
    "neuron.execution.outcomes": ToolName("execution_status_total", dims={"status_type": "{outcome}", **_TAG}),
    "neuron.execution.latency": ToolName(
        "execution_latency_seconds", dims={"percentile": "{percentile}", **_TAG}, only={"scope": "total"}
    ),
    "neuron.ecc.events": ToolName(
        "hardware_ecc_events_total",
        dims={"event_type": "{memory}_ecc_{corrected}", "neuron_device_index": "{neuron_device}"},
        words=_CORRECTED,
    ),
    "memory.total": ToolName("system_memory_total_bytes"),
    "memory.used": ToolName("system_memory_used_bytes"),
    "swap.used": ToolName("system_swap_used_bytes"),
}

PROFILES: Final[Mapping[str, Mapping[str, ToolName]]] = {
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
