"""
Reads how many packets a cloud's network card throttled: counters of `ethtool -S`, which need no permission.

AWS's ENA counts packets beyond each allowance of the instance:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-network-performance-ena.html
Google's gVNIC has no allowances, but counts packets that its receive queues dropped (gve_ethtool.c of Linux).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.host.counters import Counters
from chipwatch.host.ethtool import DriverCounters, Ethtool, ethtool

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


def _wanted(name: str) -> str | None:
    return name if QUEUE.sub("", name) in {AVAILABLE, *LIMITS} else None


class Allowances:
    """The counters of allowances, of interfaces that have them."""

    def __init__(self, call: Ethtool = ethtool) -> None:
        self._source = DriverCounters(_wanted, call)
        self._counters = Counters()

    def points(self, at: int, interfaces: Iterable[str]) -> Iterator[Datapoint]:
        """Yield the counters of `interfaces`."""
        for interface in interfaces:
            dims = Dimensions(interface=interface)
            queues: dict[str, dict[str, int]] = {}
            for name, value in self._source.read(interface):
                kind = QUEUE.sub("", name)
                if kind == AVAILABLE:
                    yield CONNECTIONS.point(at, value, dims)
                elif kind == name:
                    yield self._counters.point(EXCEEDED, at, value, dims | {"limit": LIMITS[kind]})
                else:
                    queues.setdefault(kind, {})[name] = value
            for kind, members in queues.items():
                yield self._counters.total(EXCEEDED, at, members, dims | {"limit": LIMITS[kind]})
