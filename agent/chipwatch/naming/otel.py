"""
Names of OpenTelemetry's semantic conventions: https://github.com/open-telemetry/semantic-conventions.

All `hw.*` and `system.*` are in Development there, `process.*` are candidates. Ratios are 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chipwatch.naming.name import NONE, ToolName

VERSION: Final = "1.44.0"
"""The release of the conventions."""
RATIO: Final = ("1", 0.01)
"""Unit and factor of what we send in percent."""
_GPU: Final = {"hw.id": "{gpu}"}
_GPU_TYPE: Final = {**_GPU, "hw.type": "gpu"}
_DISK: Final = {"system.device": "{device}"}
_PATH: Final = {"system.filesystem.mountpoint": "{path}"}
_INTERFACE: Final = {"network.interface.name": "{interface}"}
_MODE: Final = {"cpu.mode": "{mode}"}
_CORE: Final = {"cpu.logical_number": "{cpu}"}
_WAYS: Final = {"sent": "transmit", "received": "receive"}
_PORT: Final = {"hw.id": "{device}/{port}"}
_DIMM: Final = {"hw.id": "{controller}/{dimm}", "hw.type": "memory", "error.type": "{kind}"}
_BYTES_OF_GBIT: Final = ("By/s", 1.25e8)
_PORT_HELP: Final = "Sent or received by the port."
_CPU_HELP: Final = "Share of time in which all CPUs worked, the one in cpu.logical_number, or all in the mode cpu.mode."
_DISK_HELP: Final = "Read from or written to all whole physical disks, or the one in system.device."
_NETWORK_HELP: Final = "Sent or received by all interfaces, or by the one in network.interface.name."
_ERRORS_HELP: Final = "Errors of the component, by error.type."
_TASK_HELP: Final = "Share of time in which the GPU worked, by hw.gpu.task."
_IO_HELP: Final = "Sent or received by the GPU over PCIe."
_PROCESS_HELP: Final = "Read from or written to storage by the process tree."
_FILES_HELP: Final = "Space of a file system, by system.filesystem.state."


def _in(dims: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return `dims` and further attributes, `__` in whose names stands for a dot."""
    return {**dims, **{key.replace("__", "."): value for key, value in more.items()}}


def _disk_io(way: str, dims: Mapping[str, str] = NONE) -> ToolName:
    return ToolName("system.disk.io", dims=_in(dims, disk__io__direction=way), help=_DISK_HELP)


def _network_io(way: str, dims: Mapping[str, str] = NONE) -> ToolName:
    return ToolName("system.network.io", dims=_in(dims, network__io__direction=way), help=_NETWORK_HELP)


def _files(state: str) -> ToolName:
    return ToolName("system.filesystem.usage", dims=_in(_PATH, system__filesystem__state=state), help=_FILES_HELP)


def _process_io(way: str) -> ToolName:
    return ToolName("process.disk.io", dims=_in(NONE, disk__io__direction=way), help=_PROCESS_HELP)


def _task(task: str) -> ToolName:
    return ToolName("hw.gpu.utilization", *RATIO, dims=_in(_GPU, hw__gpu__task=task), help=_TASK_HELP)


def _errors(kind: str) -> ToolName:
    return ToolName("hw.errors", dims=_in(_GPU_TYPE, error__type=kind), help=_ERRORS_HELP)


def _gpu_io(way: str) -> ToolName:
    return ToolName("hw.gpu.io", dims=_in(_GPU, network__io__direction=way), help=_IO_HELP)


def _port_io(way: str) -> ToolName:
    return ToolName("hw.network.io", dims=_in(_PORT, network__io__direction=way), help=_PORT_HELP)


_PORT_ERRORS: Final = {**_PORT, "hw.type": "network", "error.type": "{error}"}
_PORT_WAYS: Final = {**_PORT, "network.io.direction": "{direction}"}
_DIRECTION: Final = {**_INTERFACE, "network.io.direction": "{direction}"}
_USED: Final = {**_PATH, "system.filesystem.state": "used"}
OTEL: Final[Mapping[str, ToolName]] = {
    "cpu.utilization": ToolName("system.cpu.utilization", *RATIO, help=_CPU_HELP),
    "cpu.core.utilization": ToolName("system.cpu.utilization", *RATIO, dims=_CORE, help=_CPU_HELP),
    "cpu.mode.utilization": ToolName("system.cpu.utilization", *RATIO, dims=_MODE, help=_CPU_HELP),
    "cpu.core.time": ToolName("system.cpu.time", dims={**_CORE, **_MODE}),
    "memory.used": ToolName("system.memory.usage", dims={"system.memory.state": "used"}),
    "memory.utilization": ToolName("system.memory.utilization", *RATIO, dims={"system.memory.state": "used"}),
    "memory.available": ToolName("system.memory.linux.available"),
    "memory.total": ToolName("system.memory.limit"),
    "swap.used": ToolName("system.paging.usage", dims={"system.paging.state": "used"}),
    "swap.utilization": ToolName("system.paging.utilization", *RATIO, dims={"system.paging.state": "used"}),
    "disk.used": _files("used"),
    "disk.available": _files("free"),
    "disk.utilization": ToolName("system.filesystem.utilization", *RATIO, dims=_USED),
    "disk.read": _disk_io("read"),
    "disk.written": _disk_io("write"),
    "disk.device.read": _disk_io("read", _DISK),
    "disk.device.written": _disk_io("write", _DISK),
    "disk.device.operations": ToolName("system.disk.operations", dims={**_DISK, "disk.io.direction": "{direction}"}),
    "disk.device.busy": ToolName("system.disk.io_time", dims=_DISK),
    "network.sent": _network_io("transmit"),
    "network.received": _network_io("receive"),
    "network.interface.sent": _network_io("transmit", _INTERFACE),
    "network.interface.received": _network_io("receive", _INTERFACE),
    "network.interface.errors": ToolName("system.network.errors", "{error}", dims=_DIRECTION, words=_WAYS),
    "network.interface.drops": ToolName("system.network.packet.dropped", dims=_DIRECTION, words=_WAYS),
    "process.cpu.utilization": ToolName("process.cpu.utilization", *RATIO),
    "process.memory.rss": ToolName("process.memory.usage"),
    "process.memory.utilization": ToolName("process.memory.utilization", *RATIO),
    "process.threads": ToolName("process.thread.count"),
    "process.open_files": ToolName("process.unix.file_descriptor.count", "{file_descriptor}"),
    "process.io.read": _process_io("read"),
    "process.io.written": _process_io("write"),
    "container.memory.used": ToolName("container.memory.working_set"),
    "gpu.utilization": _task("general"),
    "gpu.encoder.utilization": _task("encoder"),
    "gpu.decoder.utilization": _task("decoder"),
    "gpu.memory.used": ToolName("hw.gpu.memory.usage", dims=_GPU),
    "gpu.memory.total": ToolName("hw.gpu.memory.limit", dims=_GPU),
    "gpu.memory.utilization": ToolName("hw.gpu.memory.utilization", *RATIO, dims=_GPU),
    "gpu.power": ToolName("hw.power", dims=_GPU_TYPE),
    "gpu.energy": ToolName("hw.energy", dims=_GPU_TYPE),
    "gpu.temperature": ToolName("hw.temperature", dims=_GPU_TYPE),
    "gpu.ecc.corrected": _errors("corrected"),
    "gpu.ecc.uncorrected": _errors("uncorrected"),
    "gpu.pcie.sent": _gpu_io("transmit"),
    "gpu.pcie.received": _gpu_io("receive"),
    "rdma.state": ToolName("hw.network.up", dims=_PORT),
    "rdma.rate": ToolName("hw.network.bandwidth.limit", *_BYTES_OF_GBIT, dims=_PORT),
    "rdma.sent": _port_io("transmit"),
    "rdma.received": _port_io("receive"),
    "rdma.packets": ToolName("hw.network.packets", dims=_PORT_WAYS, words=_WAYS),
    "rdma.errors.detail": ToolName("hw.errors", dims=_PORT_ERRORS, help=_ERRORS_HELP),
    "memory.dimm.errors": ToolName("hw.errors", dims=_DIMM, help=_ERRORS_HELP),
}
"""
Our metric -> the convention's name.

Where the convention has an UpDownCounter, ours stays a gauge: the mean of a window is no sum. Not here, for lack of a
convention: activity of multiprocessors and tensor cores, clocks, throttling, Xid, NVLink, TPU, Neuron, jobs, TCP's
retransmissions, allowances of a cloud, congestion and operations of RDMA. `rdma.errors` and `memory.errors` are sums
of what `hw.errors` has.
"""
