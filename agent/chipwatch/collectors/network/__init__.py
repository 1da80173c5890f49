"""Traffic, errors and drops of the network interfaces; retransmissions of TCP, and limits of the cloud."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.collector import Collector
from chipwatch.collectors.network import allowance
from chipwatch.datapoint import Datapoint, Dimensions, Level, counter
from chipwatch.errors import Unavailable
from chipwatch.host.counters import Counters, counting_since
from chipwatch.host.pace import Pace
from chipwatch.host.procfs import FileSource, PsutilSource, open_kept

# fmt: off
RETRANSMITS: Final = counter("network.tcp.retransmits", "{segment}", "Segments that TCP sent again.")
TCP_TIMEOUTS: Final = counter(
    "network.tcp.timeouts", "{timeout}", "How often TCP waited in vain for an acknowledgement.", Level.DETAILED)
LISTEN_DROPS: Final = counter(
    "network.tcp.listen.drops", "{connection}", "Connections that were refused since a queue was full.", Level.DETAILED)
# fmt: on
TCP_COLUMNS: Final = {
    (b"Tcp:", b"RetransSegs"): RETRANSMITS,
    (b"TcpExt:", b"TCPTimeouts"): TCP_TIMEOUTS,
    (b"TcpExt:", b"ListenDrops"): LISTEN_DROPS,
}


class Tcp:
    """The counters of TCP in /proc/net/snmp and /proc/net/netstat; none where the files are absent."""

    def __init__(self, folder: Path) -> None:
        """`folder`: `net` of a process in the namespace."""
        self._files = [file for name in ("snmp", "netstat") if (file := open_kept(folder / name))]

    def points(self, at: int, start_time: int | None) -> Iterator[Datapoint]:
        """Yield the counters, which were zero at `start_time`; raise OSError."""
        for file in self._files:
            yield from file.parse(lambda data: list(_tcp_points(data, at, start_time)))

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


def _tcp_points(data: bytes, at: int, start_time: int | None) -> Iterator[Datapoint]:
    """Yield the points of pairs of lines: names, then values."""
    lines = data.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        protocol, *keys = names.split()
        numbers = values.split()[1:]
        for key, value in zip(keys, numbers, strict=True):
            if metric := TCP_COLUMNS.get((protocol, key)):
                yield metric.point(at, int(value), start_time=start_time)


SENT: Final = counter("network.sent", "By", "Sent by all interfaces.")
RECEIVED: Final = counter("network.received", "By", "Received by all interfaces.")
INTERFACE_SENT: Final = counter("network.interface.sent", "By", "Sent by one interface.", Level.ALL, ("interface",))
INTERFACE_RECEIVED: Final = counter(
    "network.interface.received", "By", "Received by one interface.", Level.ALL, ("interface",))  # fmt: skip
_KEYS: Final = ("interface", "direction")
ERRORS: Final = counter(
    "network.interface.errors", "{packet}", "Packets that an interface could not send or receive due to errors.",
    Level.DETAILED, _KEYS)  # fmt: skip
DROPS: Final = counter(
    "network.interface.drops", "{packet}", "Packets that an interface discarded, for lack of a buffer or a receiver.",
    Level.DETAILED, _KEYS)  # fmt: skip


ALLOWANCES_EVERY: Final = 15.0
"""Seconds between two readings of the allowances; each one costs a command to the network card."""


class _Traffic(NamedTuple):
    """Counters of one interface, in bytes and packets; None if the platform does not count."""

    sent: int
    received: int
    errors_sent: int
    errors_received: int
    drops_sent: int | None
    drops_received: int


_COLUMNS: Final = itemgetter(8, 0, 10, 2, 11, 3)
"""Columns of /proc/net/dev for the fields of _Traffic."""


class _Proc(FileSource):
    """Linux: /proc/net/dev, which covers one network namespace."""

    loopback: Final = re.compile("lo")

    def __init__(self, proc: Path) -> None:
        # `net` is `self/net`, the reader's own namespace, also in a host's /proc that is mounted elsewhere.
        try:
            super().__init__(proc / ("net/dev" if proc == Path("/proc") else "1/net/dev"))
        except OSError:
            super().__init__(proc / "net/dev")
        self.folder = self._file.path.parent

    def read(self) -> dict[str, _Traffic]:
        return self._file.parse(_traffic)


def _traffic(data: bytes) -> dict[str, _Traffic]:
    traffic = {}
    for line in data.split(b"\n")[2:]:
        # The name of an alias may hold colons; old kernels write no space after the last colon.
        name, colon, fields = line.rpartition(b":")
        if colon:
            traffic[name.strip().decode()] = _Traffic._make(map(int, _COLUMNS(fields.split())))
    return traffic


class _Psutil(PsutilSource):
    """Other systems; on macOS and BSD the number of dropped outgoing packets is always 0."""

    loopback: Final = re.compile(r"lo\d*|Loopback .*")

    def read(self) -> dict[str, _Traffic]:
        counts_drops = sys.platform in {"linux", "win32"}
        return {
            name: _Traffic(c.bytes_sent, c.bytes_recv, c.errout, c.errin, c.dropout if counts_drops else None, c.dropin)
            for name, c in self._psutil.net_io_counters(pernic=True, nowrap=False).items()
        }


_Interface = tuple[Counters, Dimensions, Dimensions, Dimensions]
"""
The counters of an interface, and the dimensions for both directions, sent, received.

A later interface starts at its first reading: it may have counted in another namespace before.
"""


class NetworkCollector(Collector):
    """
    Reads the counters of the interfaces.

    The sums include all interfaces but the loopback; a bond or a bridge repeats the traffic of its members.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Interfaces to count."""

        proc: Path = Path("/proc")
        loopback: bool = False
        """Count the loopback interface too."""

    metrics = (
        SENT, RECEIVED, INTERFACE_SENT, INTERFACE_RECEIVED, ERRORS, DROPS, *TCP_COLUMNS.values(), allowance.EXCEEDED,
        allowance.CONNECTIONS,
    )  # fmt: skip
    level: Level = Level.ALL

    def __init__(self, config: Config) -> None:
        self._config = config
        self._source: _Proc | _Psutil | None = None
        self._tcp: Tcp | None = None
        self._allowances = allowance.Allowances()
        self._pace = Pace(ALLOWANCES_EVERY)
        self._start_time: int | None = None
        self._counters = Counters()
        self._interfaces: dict[str, _Interface] = {}

    def open(self) -> None:
        self.close()
        try:
            if sys.platform == "linux":
                self._source = _Proc(self._config.proc)
                self._tcp = Tcp(self._source.folder)
            else:
                self._source = _Psutil()
        except OSError as error:
            raise Unavailable(f"no network interfaces: {error}") from error
        self._start_time = counting_since(self._config.proc)
        traffic = self._read(self._source)
        if not traffic:
            raise Unavailable(f"no network interface but the loopback in {self._source}")
        self._counters = Counters(self._start_time)
        self._interfaces = {name: _interface(name, Counters(self._start_time)) for name in traffic}

    def collect(self, at: int) -> Iterable[Datapoint]:
        assert self._source is not None
        traffic = self._read(self._source)
        if traffic:
            yield self._counters.total(SENT, at, {name: counted.sent for name, counted in traffic.items()})
            yield self._counters.total(RECEIVED, at, {name: counted.received for name, counted in traffic.items()})
        if self.level >= Level.DETAILED:
            yield from self._interface_points(at, traffic)
        if self._tcp:
            if self._pace.is_due():
                yield from self._allowances.points(at, traffic)
            yield from self._tcp.points(at, self._start_time)

    def _interface_points(self, at: int, traffic: dict[str, _Traffic]) -> Iterable[Datapoint]:
        self._interfaces = {name: self._interfaces.get(name) or _interface(name, Counters()) for name in traffic}
        for name, (counters, both, out, into) in self._interfaces.items():
            counted = traffic[name]
            if self.level >= Level.ALL:
                yield counters.point(INTERFACE_SENT, at, counted.sent, both)
                yield counters.point(INTERFACE_RECEIVED, at, counted.received, both)
            yield counters.point(ERRORS, at, counted.errors_sent, out)
            yield counters.point(ERRORS, at, counted.errors_received, into)
            if counted.drops_sent is not None:
                yield counters.point(DROPS, at, counted.drops_sent, out)
            yield counters.point(DROPS, at, counted.drops_received, into)

    def describe(self) -> str:
        names = list(self._read(self._source)) if self._source else []
        return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"

    def close(self) -> None:
        for source in (self._source, self._tcp):
            if source:
                source.close()
        self._source = self._tcp = None

    def _read(self, source: _Proc | _Psutil) -> dict[str, _Traffic]:
        counts_all, traffic = self._config.loopback, source.read()
        return {name: counted for name, counted in traffic.items() if counts_all or not source.loopback.fullmatch(name)}


def _interface(name: str, counters: Counters) -> _Interface:
    both = Dimensions(interface=name)
    return counters, both, both | {"direction": "sent"}, both | {"direction": "received"}
