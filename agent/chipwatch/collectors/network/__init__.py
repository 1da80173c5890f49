"""Collects traffic and errors of network interfaces, TCP retransmissions, and packets that a cloud throttled."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.collectors.network import allowance
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, counter
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import LastValues
from chipwatch.host.pace import Pace
from chipwatch.host.procfs import SystemSource, close_all, open_kept

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


class Tcp:
    """The TCP counters of the kernel; none if its files are absent."""

    def __init__(self, folder: Path, level: Level) -> None:
        """`folder`: /proc/PID/net of a process in the network namespace; `level`: highest level of metrics."""
        self._files = [file for name, least in FILES.items() if least <= level and (file := open_kept(folder / name))]

    def points(self, at: int, counters: Counters) -> Iterator[Datapoint]:
        """Yield the points; `counters` has their start times. Raise OSError."""
        for file in self._files:
            yield from file.parse(lambda data: list(_points(data, at, counters)))

    def close(self) -> None:
        """Close the files."""
        close_all(*self._files)


def _points(data: bytes, at: int, counters: Counters) -> Iterator[Datapoint]:
    """Parse pairs of lines, names and values, and yield their points."""
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


class _Traffic(NamedTuple):
    """Counters of one interface, in bytes and packets; None if the platform does not count these."""

    sent: int
    received: int
    errors_sent: int
    errors_received: int
    drops_sent: int | None
    drops_received: int


_COLUMNS: Final = itemgetter(8, 0, 10, 2, 11, 3)
"""Columns of /proc/net/dev for the fields of _Traffic."""


def _traffic(data: bytes) -> dict[str, _Traffic]:
    traffic = {}
    for line in data.split(b"\n")[2:]:
        # The name of an alias may hold colons; old kernels write no space after the last colon.
        name, colon, fields = line.rpartition(b":")
        if colon:
            traffic[name.strip().decode(errors="backslashreplace")] = _Traffic._make(map(int, _COLUMNS(fields.split())))
    return traffic


def _psutil_traffic(psutil: Any) -> dict[str, _Traffic]:
    """Return the traffic. On macOS and BSD, dropped outgoing packets are always 0, so they are unknown."""
    return {
        name: _Traffic(c.bytes_sent, c.bytes_recv, c.errout, c.errin, None, c.dropin)
        for name, c in psutil.net_io_counters(pernic=True, nowrap=False).items()
    }


def _source(proc: Path) -> SystemSource[dict[str, _Traffic]]:
    """Open the table of interfaces of the host's network namespace, or of this process's; raise OSError."""
    # /proc/net always shows the reader's namespace, also below a mounted /proc of the host; process 1 has the host's.
    try:
        path = proc / ("net/dev" if proc == Path("/proc") else "1/net/dev")
        return SystemSource(path, _traffic, _psutil_traffic)
    except OSError:
        return SystemSource(proc / "net/dev", _traffic, _psutil_traffic)


_Interface = tuple[Counters, Dimensions, Dimensions, Dimensions]
"""An interface: its counters, its dimensions, and these with the direction `sent` and `received` added."""


class NetworkCollector(Collector):
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
        SENT, RECEIVED, INTERFACE_SENT, INTERFACE_RECEIVED, ERRORS, DROPS, *TCP_COLUMNS.values(), allowance.EXCEEDED,
        allowance.CONNECTIONS,
    )  # fmt: skip
    needs = Needs(level=True, state=True)

    def __init__(self, config: Config) -> None:
        self._config, self._folder = config, config.sys / "class/net"
        self._source: SystemSource[dict[str, _Traffic]] | None = None
        self._tcp: Tcp | None = None
        self._allowances = allowance.Allowances()
        self._pace = Pace(ALLOWANCES_EVERY)
        self._kept: LastValues | None = None
        self._counters = Counters()
        self._interfaces: dict[str, _Interface] = {}

    def waits(self) -> bool:
        return False

    def open(self, given: Given) -> None:
        """Open the files; raise Unavailable if there is no interface to count."""
        self._level = given.level
        self.close()
        try:
            self._source = _source(self._config.proc)
            if sys.platform == "linux":
                self._tcp = Tcp(self._source.path.parent, self._level)
        except OSError as error:
            raise Unavailable(f"no network interfaces: {error}") from error
        traffic = self._read(self._source)
        if not traffic:
            raise Unavailable(f"no network interface but the loopback in {self._source}")
        self._kept = LastValues(given.state, "network", self._config.proc)
        self._counters, self._interfaces = Counters(kept=self._kept, device=self._folder / "lo"), {}

    def collect(self, at: int) -> Iterable[Datapoint]:
        """Yield the counters and their sums."""
        assert self._source is not None
        traffic = self._read(self._source)
        if traffic:
            yield self._counters.total(SENT, at, {name: counted.sent for name, counted in traffic.items()})
            yield self._counters.total(RECEIVED, at, {name: counted.received for name, counted in traffic.items()})
        if self._level >= Level.DETAILED:
            yield from self._interface_points(at, traffic)
        if self._tcp:
            if self._pace.is_due():
                yield from self._allowances.points(at, traffic)
            yield from self._tcp.points(at, self._counters)
        if self._kept:
            self._kept.save(at)

    def _interface_points(self, at: int, traffic: dict[str, _Traffic]) -> Iterable[Datapoint]:
        self._interfaces = {name: self._interfaces.get(name) or self._interface(name) for name in traffic}
        for name, (counters, both, out, into) in self._interfaces.items():
            counted = traffic[name]
            if self._level >= Level.ALL:
                yield counters.point(INTERFACE_SENT, at, counted.sent, both)
                yield counters.point(INTERFACE_RECEIVED, at, counted.received, both)
            yield counters.point(ERRORS, at, counted.errors_sent, out)
            yield counters.point(ERRORS, at, counted.errors_received, into)
            if counted.drops_sent is not None:
                yield counters.point(DROPS, at, counted.drops_sent, out)
            yield counters.point(DROPS, at, counted.drops_received, into)

    def _interface(self, name: str) -> _Interface:
        both = Dimensions(interface=name)
        counters = Counters(kept=self._kept, device=self._folder / name)
        return counters, both, both | {"direction": "sent"}, both | {"direction": "received"}

    def describe(self) -> str:
        """Return the names of the interfaces."""
        names = list(self._read(self._source)) if self._source else []
        return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"

    def close(self) -> None:
        """Close the files."""
        close_all(self._source, self._tcp, self._kept)
        self._source = self._tcp = self._kept = None

    def _read(self, source: SystemSource[dict[str, _Traffic]]) -> dict[str, _Traffic]:
        traffic, loopback = source.read(), "lo" if sys.platform == "linux" else r"lo\d*"
        return {name: of for name, of in traffic.items() if self._config.loopback or not re.fullmatch(loopback, name)}
