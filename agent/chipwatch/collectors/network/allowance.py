"""
Reads how many packets a cloud's network card throttled: counters of `ethtool -S`, which need no permission.

AWS's ENA counts packets beyond each allowance of the instance:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-network-performance-ena.html
Google's gVNIC has no allowances, but counts packets that its receive queues dropped (gve_ethtool.c of Linux).
"""

from __future__ import annotations

import fcntl
import re
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from socket import AF_INET, SOCK_DGRAM, socket
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.host.counters import Counters

EXCEEDED: Final = counter(
    "network.allowance.exceeded", "{packet}", "Packets that were queued or dropped since a limit was reached.",
    dims=("interface", "limit"))  # fmt: skip
CONNECTIONS: Final = gauge(
    "network.allowance.connections", "{connection}", "Tracked connections that the instance can still have.",
    Level.DETAILED, ("interface",))  # fmt: skip
AVAILABLE: Final = "conntrack_allowance_available"
LIMITS: Final = {
    "bw_in_allowance_exceeded": "bandwidth_in",
    "bw_out_allowance_exceeded": "bandwidth_out",
    "pps_allowance_exceeded": "packets",
    "conntrack_allowance_exceeded": "connections",
    "linklocal_allowance_exceeded": "link_local",
    "rx_queue_drop_cnt": "receive_queue",
}
QUEUE: Final = re.compile(r"\[\d+\]$")
SIOCETHTOOL: Final = 0x8946
DRIVER, STRINGS, STATISTICS = 0x03, 0x1B, 0x1D
"""ETHTOOL_GDRVINFO, ETHTOOL_GSTRINGS, ETHTOOL_GSTATS: include/uapi/linux/ethtool.h."""
DRIVER_SIZE, COUNT_AT, NAME_SIZE = 196, 180, 32
MOST: Final = 1 << 14
"""Most counters of an interface. Buffers have room for all: the kernel may write more than it announced."""
Ethtool = Callable[[str, bytes], bytes]


def ethtool(interface: str, request: bytes) -> bytes:
    """Send a request of ethtool to the kernel; return its answer. Raise OSError."""
    data = array("B", request)
    with closing(socket(AF_INET, SOCK_DGRAM)) as control:
        fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP16x", interface.encode(), data.buffer_info()[0]))
    return data.tobytes()


class Allowances:
    """The counters of allowances, of interfaces that have them."""

    def __init__(self, call: Ethtool = ethtool) -> None:
        self._call = call
        self._names: dict[str, list[str]] = {}
        self._counters = Counters()

    def points(self, at: int, interfaces: Iterable[str]) -> Iterator[Datapoint]:
        """Yield the counters of `interfaces`."""
        for interface in interfaces:
            if interface not in self._names:
                self._names[interface] = self._find(interface)
            if names := self._names[interface]:
                try:
                    values = self._read(interface, names)
                except OSError:
                    del self._names[interface]  # the interface is gone, or its number of queues has changed
                    continue
                yield from self._points(at, Dimensions(interface=interface), values)

    def _points(self, at: int, dims: Dimensions, values: Mapping[str, int]) -> Iterator[Datapoint]:
        queues: dict[str, dict[str, int]] = {}
        for name, value in values.items():
            kind = QUEUE.sub("", name)
            if kind == AVAILABLE:
                yield CONNECTIONS.point(at, value, dims)
            elif kind in LIMITS and kind == name:
                yield self._counters.point(EXCEEDED, at, value, dims | {"limit": LIMITS[kind]})
            elif kind in LIMITS:
                queues.setdefault(kind, {})[name] = value
        for kind, members in queues.items():
            yield self._counters.total(EXCEEDED, at, members, dims | {"limit": LIMITS[kind]})

    def _find(self, interface: str) -> list[str]:
        """Return the names of all counters of an interface; [] if none of them is of interest."""
        try:
            driver = self._call(interface, struct.pack("=I", DRIVER).ljust(DRIVER_SIZE, b"\0"))
            (size,) = struct.unpack_from("=I", driver, COUNT_AT)
            if not 0 < size <= MOST:
                return []
            strings = self._call(interface, struct.pack("=III", STRINGS, 1, size) + bytes(NAME_SIZE * MOST))
        except OSError:
            return []
        names = [text.split(b"\0")[0].decode("ascii", "replace") for (text,) in
                 struct.iter_unpack(f"{NAME_SIZE}s", strings[12 : 12 + NAME_SIZE * size])]  # fmt: skip
        return names if {QUEUE.sub("", name) for name in names} & {AVAILABLE, *LIMITS} else []

    def _read(self, interface: str, names: list[str]) -> dict[str, int]:
        """Return name -> count; raise OSError."""
        data = self._call(interface, struct.pack("=II", STATISTICS, len(names)) + bytes(8 * MOST))
        if struct.unpack_from("=I", data, 4)[0] != len(names):
            raise OSError(f"{interface} has other counters now")
        return dict(zip(names, struct.unpack_from(f"={len(names)}Q", data, 8), strict=True))
