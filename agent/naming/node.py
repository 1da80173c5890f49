"""The names of node_exporter 1.10 on Linux: https://github.com/prometheus/node_exporter, collector/*_linux.go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.naming.name import Name

_DEVICE: Final = {"device": "{device}"}
_INTERFACE: Final = {"device": "{interface}"}
_NODE_DIRECTIONS: Final = {"sent": "transmit", "received": "receive"}
NODE: Final[Mapping[str, Name]] = {
    "cpu.load": Name("node_load{window}", words={"1m": "1", "5m": "5", "15m": "15"}),
    "memory.total": Name("node_memory_MemTotal_bytes"),
    "memory.available": Name("node_memory_MemAvailable_bytes"),
    "disk.available": Name("node_filesystem_avail_bytes", dims={"mountpoint": "{path}"}),
    "disk.device.read": Name("node_disk_read_bytes_total", dims=_DEVICE),
    "disk.device.written": Name("node_disk_written_bytes_total", dims=_DEVICE),
    "disk.device.operations": Name("node_disk_{direction}s_completed_total", dims=_DEVICE),
    "disk.device.busy": Name("node_disk_io_time_seconds_total", dims=_DEVICE),
    "network.interface.sent": Name("node_network_transmit_bytes_total", dims=_INTERFACE),
    "network.interface.received": Name("node_network_receive_bytes_total", dims=_INTERFACE),
    "network.interface.errors": Name("node_network_{direction}_errs_total", dims=_INTERFACE, words=_NODE_DIRECTIONS),
    "network.interface.drops": Name("node_network_{direction}_drop_total", dims=_INTERFACE, words=_NODE_DIRECTIONS),
}
