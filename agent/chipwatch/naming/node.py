"""The names of node_exporter 1.10 on Linux: https://github.com/prometheus/node_exporter, collector/*_linux.go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chipwatch.naming.name import ToolName

_DEVICE: Final = {"device": "{device}"}
_INTERFACE: Final = {"device": "{interface}"}
_NODE_DIRECTIONS: Final = {"sent": "transmit", "received": "receive"}
_TRANSFERS: Final = {"sent": "transmitted", "received": "received"}
_LINK_ERRORS: Final = {
    "VL15_dropped": "vl15_dropped",
    "port_rcv_constraint_errors": "port_constraint_errors_received",
    "port_rcv_discards": "port_discards_received",
    "port_rcv_errors": "port_errors_received",
    "port_rcv_remote_physical_errors": "port_receive_remote_physical_errors",
    "port_rcv_switch_relay_errors": "port_receive_switch_relay_errors",
    "port_xmit_constraint_errors": "port_constraint_errors_transmitted",
    "port_xmit_discards": "port_discards_transmitted",
}
_SENSOR: Final = {"chip": "{chip}", "sensor": "{sensor}"}
NODE: Final[Mapping[str, ToolName]] = {
    "cpu.core.time": ToolName("node_cpu_seconds_total", dims={"cpu": "{cpu}", "mode": "{mode}"}),
    "cpu.load": ToolName("node_load{window}", words={"1m": "1", "5m": "5", "15m": "15"}),
    "memory.total": ToolName("node_memory_MemTotal_bytes"),
    "memory.available": ToolName("node_memory_MemAvailable_bytes"),
    "disk.available": ToolName("node_filesystem_avail_bytes", dims={"mountpoint": "{path}"}),
    "disk.device.read": ToolName("node_disk_read_bytes_total", dims=_DEVICE),
    "disk.device.written": ToolName("node_disk_written_bytes_total", dims=_DEVICE),
    "disk.device.operations": ToolName("node_disk_{direction}s_completed_total", dims=_DEVICE),
    "disk.device.busy": ToolName("node_disk_io_time_seconds_total", dims=_DEVICE),
    "network.interface.sent": ToolName("node_network_transmit_bytes_total", dims=_INTERFACE),
    "network.interface.received": ToolName("node_network_receive_bytes_total", dims=_INTERFACE),
    "network.interface.errors": ToolName(
        "node_network_{direction}_errs_total", dims=_INTERFACE, words=_NODE_DIRECTIONS
    ),
    "network.interface.drops": ToolName("node_network_{direction}_drop_total", dims=_INTERFACE, words=_NODE_DIRECTIONS),
    "network.tcp.retransmits": ToolName("node_netstat_Tcp_RetransSegs"),
    "network.tcp.timeouts": ToolName("node_netstat_TcpExt_TCPTimeouts"),
    "network.tcp.listen.drops": ToolName("node_netstat_TcpExt_ListenDrops"),
    "disk.read_only": ToolName("node_filesystem_readonly", dims={"mountpoint": "{path}"}),
    "rdma.rate": ToolName("node_infiniband_rate_bytes_per_second", "By/s", 1.25e8),
    "rdma.sent": ToolName("node_infiniband_port_data_transmitted_bytes_total"),
    "rdma.received": ToolName("node_infiniband_port_data_received_bytes_total"),
    "rdma.packets": ToolName("node_infiniband_port_packets_{direction}_total", words=_TRANSFERS),
    "rdma.errors.detail": ToolName("node_infiniband_{error}_total", words=_LINK_ERRORS),
    "rdma.link.downed": ToolName("node_infiniband_link_downed_total"),
    "rdma.wait": ToolName("node_infiniband_port_transmit_wait_total"),
    "cpu.throttle.events": ToolName("node_cpu_package_throttles_total"),
    "host.temperature": ToolName("node_hwmon_temp_celsius", dims=_SENSOR),
    "host.fan.speed": ToolName("node_hwmon_fan_rpm", dims=_SENSOR),
}
