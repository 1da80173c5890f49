"""Collects traffic and errors of network interfaces, TCP retransmissions, and packets that a cloud throttled."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, counter, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.counters import Counters
from chipwatch.host.device_table import Counts, DeviceColumn, DeviceTable
from chipwatch.host.ethtool import DriverCounters, Ethtool, ethtool
from chipwatch.host.last_values import LastValues
from chipwatch.host.pace import CALM, Pace
from chipwatch.host.procfs import KeptFile, SystemSource, close_all, open_kept
from chipwatch.host.prompt import PromptCollector

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
    """
    The packets that a cloud's network card throttled: counters of `ethtool -S`, of interfaces that have them.

    AWS's ENA counts packets beyond each allowance of the instance:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-network-performance-ena.html
    Google's gVNIC has no allowances, but counts packets that its receive queues dropped (gve_ethtool.c of Linux).
    """

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


SENT: Final = counter("network.sent", "By", "Sent by all interfaces but the loopback (lo).")
RECEIVED: Final = counter("network.received", "By", "Received by all interfaces but the loopback (lo).")
INTERFACE_SENT: Final = counter("network.interface.sent", "By", "Sent by one interface.", Level.ALL, ("interface",))
INTERFACE_RECEIVED: Final = counter(
    "network.interface.received", "By", "Received by one interface.", Level.ALL, ("interface",)
)
_KEYS: Final = ("interface", "direction")
ERRORS: Final = counter(
    "network.interface.errors", "{packet}", "Packets that an interface could not send or receive due to errors.",
    Level.DETAILED, _KEYS)  # fmt: skip
DROPS: Final = counter(
    "network.interface.drops", "{packet}", "Packets that an interface discarded, for lack of a buffer or a receiver.",
    Level.DETAILED, _KEYS)  # fmt: skip

ALLOWANCES_EVERY: Final = 15.0
"""Seconds between two readings of allowances, because each sends a command to the network card."""

RETRANSMITS: Final = counter("network.tcp.retransmits", "{segment}", "Segments that TCP sent again.")
TIMEOUTS: Final = counter(
    "network.tcp.timeouts", "{timeout}", "How often TCP waited in vain for an acknowledgement.", Level.DETAILED
)
LISTEN_DROPS: Final = counter(
    "network.tcp.listen.drops", "{connection}", "Connections that were refused since a queue was full.", Level.DETAILED
)
TCP_COLUMNS: Final = {
    (b"Tcp:", b"RetransSegs"): RETRANSMITS,
    (b"TcpExt:", b"TCPTimeouts"): TIMEOUTS,
    (b"TcpExt:", b"ListenDrops"): LISTEN_DROPS,
}
FILES: Final = {"snmp": Level.BASIC, "netstat": Level.DETAILED}
"""File -> lowest level of its metrics. It is read only if needed: the kernel sums hundreds of counters for it."""
PROTOCOLS: Final = (b"Tcp:", b"TcpExt:")


def _points(data: bytes, at: int, counters: Counters) -> Iterator[Datapoint]:
    """Parse pairs of lines, names and values, and yield their points; `counters` has their start times."""
    lines = data.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        if names.startswith(PROTOCOLS):
            width, places = _places(names)
            numbers = values.split()
            if len(numbers) != width:
                raise ValueError(values)
            for metric, place in places:
                yield counters.point(metric, at, int(numbers[place]))


@lru_cache(maxsize=8)
def _places(names: bytes) -> tuple[int, list[tuple[Metric, int]]]:
    """Return the number of words in a line of names, and the index of each metric. Cached: the line never changes."""
    protocol, *keys = names.split()
    there = enumerate(keys, 1)
    wanted = [(TCP_COLUMNS[protocol, key], place) for place, key in there if (protocol, key) in TCP_COLUMNS]
    return 1 + len(keys), wanted


OUT, IN = Dimensions(direction="sent"), Dimensions(direction="received")
COLUMNS: Final = (
    DeviceColumn(SENT, 8),
    DeviceColumn(RECEIVED, 0),
    DeviceColumn(INTERFACE_SENT, 8),
    DeviceColumn(INTERFACE_RECEIVED, 0),
    DeviceColumn(ERRORS, 10, dims=OUT),
    DeviceColumn(ERRORS, 2, dims=IN),
    DeviceColumn(DROPS, 11, dims=OUT),
    DeviceColumn(DROPS, 3, dims=IN),
)
"""Columns of /proc/net/dev."""


def _traffic(table: DeviceTable, data: bytes) -> Counts:
    # The name of an alias may hold colons; old kernels write no space after the last colon.
    parts = [line.rpartition(b":") for line in data.split(b"\n")[2:]]
    return table.parse([(name.strip(), rest) for name, colon, rest in parts if colon])


def _psutil_traffic(table: DeviceTable, psutil: Any) -> Counts:
    """Return the traffic. On macOS and BSD, dropped outgoing packets are always 0, so they are unknown."""
    counted = psutil.net_io_counters(pernic=True, nowrap=False).items()
    return table.pick(
        {name: {0: c.bytes_recv, 2: c.errin, 3: c.dropin, 8: c.bytes_sent, 10: c.errout} for name, c in counted}
    )


def _source(proc: Path, table: DeviceTable) -> SystemSource[Counts]:
    """Open the table of interfaces of the host's network namespace, or of this process's; raise OSError."""
    how = partial(_traffic, table), partial(_psutil_traffic, table)
    # /proc/net always shows the reader's namespace, also below a mounted /proc of the host; process 1 has the host's.
    try:
        return SystemSource(proc / ("net/dev" if proc == Path("/proc") else "1/net/dev"), *how)
    except OSError:
        return SystemSource(proc / "net/dev", *how)


class NetworkCollector(PromptCollector):
    """
    Reads the counters of interfaces, of TCP, and of the cloud's limits.

    The sums include all interfaces except the loopback. A bond or a bridge repeats the traffic of its members.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Options under [collectors.network]."""

        proc: Path = Path("/proc")
        sys: Path = Path("/sys")
        loopback: bool = False
        """Count the loopback interface too."""

    metrics = (
        SENT, RECEIVED, INTERFACE_SENT, INTERFACE_RECEIVED, ERRORS, DROPS, *TCP_COLUMNS.values(), EXCEEDED,
        CONNECTIONS,
    )  # fmt: skip
    needs = Needs(level=True, state=True)

    def __init__(self, config: Config) -> None:
        self._config, self._folder = config, config.sys / "class/net"
        self._source: SystemSource[Counts] | None = None
        self._tcp: list[KeptFile] = []
        """The files with the counters of TCP, of the network namespace whose interfaces are read."""
        self._allowances = Allowances()
        self._pace, self._tcp_pace = Pace(ALLOWANCES_EVERY), Pace(CALM)
        self._kept: LastValues | None = None
        self._counters = Counters()

    def open(self, given: Given) -> None:
        """Open the files; raise Unavailable if there is no interface to count."""
        self.close()
        kept = LastValues(given.state, "network", self._config.proc)
        self._table = DeviceTable(COLUMNS, given.level, self._counted, kept, self._folder.joinpath)
        try:
            self._source = _source(self._config.proc, self._table)
        except OSError as error:
            raise Unavailable(f"no network interfaces: {error}") from error
        if not self._source.read():
            raise Unavailable(f"no network interface but the loopback in {self._source}")
        paths = [self._source.path.parent / name for name, least in FILES.items() if least <= given.level]
        self._tcp = [file for path in paths if (file := open_kept(path))] if sys.platform == "linux" else []
        self._kept, self._counters = kept, Counters(kept=kept, device=self._folder / "lo")

    def collect(self, at: int) -> Iterable[Datapoint]:
        """Yield the counters and their sums."""
        assert self._source is not None
        traffic = self._source.read()
        yield from self._table.points(at, traffic)
        if sys.platform == "linux" and self._pace.is_due(at):
            yield from self._allowances.points(at, traffic)
        for file in self._tcp if self._tcp_pace.is_due(at) else ():
            yield from file.parse(lambda data: list(_points(data, at, self._counters)))
        if self._kept:
            self._kept.save(at)

    def describe(self) -> str:
        """Return the names of the interfaces."""
        names = list(self._source.read()) if self._source else []
        return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"

    def close(self) -> None:
        """Close the files."""
        close_all(self._source, *self._tcp, self._kept)
        self._source, self._tcp, self._kept = None, [], None

    def _counted(self, names: Collection[str]) -> Collection[str]:
        """Return the names of interfaces that count."""
        loopback = "lo" if sys.platform == "linux" else r"lo\d*"
        return [name for name in names if self._config.loopback or not re.fullmatch(loopback, name)]
