"""TCP of this network namespace: what it repeated or refused, from /proc/net/snmp and /proc/net/netstat."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Level, Metric, counter
from chipwatch.host.counters import Counters
from chipwatch.host.procfs import close_all, open_kept

RETRANSMITS: Final = counter("network.tcp.retransmits", "{segment}", "Segments that TCP sent again.")
TIMEOUTS: Final = counter(
    "network.tcp.timeouts", "{timeout}", "How often TCP waited in vain for an acknowledgement.", Level.DETAILED
)
LISTEN_DROPS: Final = counter(
    "network.tcp.listen.drops", "{connection}", "Connections that were refused since a queue was full.", Level.DETAILED
)
COLUMNS: Final = {
    (b"Tcp:", b"RetransSegs"): RETRANSMITS,
    (b"TcpExt:", b"TCPTimeouts"): TIMEOUTS,
    (b"TcpExt:", b"ListenDrops"): LISTEN_DROPS,
}
FILES: Final = {"snmp": Level.BASIC, "netstat": Level.DETAILED}
"""File -> the lowest level of a metric in it; the kernel adds up hundreds of counters of all CPUs for a reading."""
PROTOCOLS: Final = (b"Tcp:", b"TcpExt:")


class Tcp:
    """The counters; none where the files are absent."""

    def __init__(self, folder: Path, level: Level) -> None:
        """Take the folder `net` of a process in the namespace, and the highest level that is wanted."""
        self._files = [file for name, least in FILES.items() if least <= level and (file := open_kept(folder / name))]

    def points(self, at: int, counters: Counters) -> Iterator[Datapoint]:
        """Yield the points of `counters`; raise OSError."""
        for file in self._files:
            yield from file.parse(lambda data: list(_points(data, at, counters)))

    def close(self) -> None:
        """Close the files."""
        close_all(*self._files)


def _points(data: bytes, at: int, counters: Counters) -> Iterator[Datapoint]:
    """Yield the points of pairs of lines: names, then values."""
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
    """Return the number of words of a line, and where the metrics are in it; the kernel has the same line each time."""
    protocol, *keys = names.split()
    wanted = [(COLUMNS[protocol, key], place) for place, key in enumerate(keys, 1) if (protocol, key) in COLUMNS]
    return 1 + len(keys), wanted
