"""NFS as this client sees it: mountstats of /proc, which the kernel answers without asking the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.host.counters import Counters

SOURCE: Final = ("source",)
RETRANSMITS: Final = counter("nfs.retransmits", "{request}", "Requests that were sent again.", dims=SOURCE)
TIMEOUTS: Final = counter("nfs.timeouts", "{timeout}", "Requests that got no answer in time.", dims=SOURCE)
UNANSWERED: Final = gauge("nfs.unanswered", "s", "Time for which requests have been without any answer.", dims=SOURCE)
READ: Final = counter("nfs.read", "By", "Read from the server.", Level.DETAILED, SOURCE)
WRITTEN: Final = counter("nfs.written", "By", "Written to the server.", Level.DETAILED, SOURCE)
_KEYS: Final = ("source", "operation")
OPERATIONS: Final = counter("nfs.operations", "{request}", "Requests that were answered.", Level.DETAILED, _KEYS)
TIME: Final = counter(
    "nfs.operation.time", "s", "Time that requests took, from their start to their answer.", Level.DETAILED, _KEYS
)
METRICS: Final = (RETRANSMITS, TIMEOUTS, UNANSWERED, READ, WRITTEN, OPERATIONS, TIME)
TYPES: Final = frozenset({"nfs", "nfs4"})
REPLIES: Final = {b"tcp": (6, 7), b"rdma": (6, 7), b"udp": (3, 4)}
"""Where the fields of `xprt:` have the requests sent and the answers received (net/sunrpc/xprtsock.c of Linux)."""


class MountCounts(NamedTuple):
    """One mount: requests, bytes, and for read, write and other requests their number and time (s)."""

    point: bytes
    sent: int
    received: int
    retransmits: int
    timeouts: int
    read: int
    written: int
    operations: dict[str, tuple[int, float]]


def parsed(data: bytes) -> dict[str, MountCounts]:
    """Return the counts by source; of several mounts of one source the first. Raise ValueError or LookupError."""
    counts = {}
    for part in (b"\n" + data).split(b"\ndevice ")[1:]:
        header, *lines = part.splitlines()
        words = header.split()
        source = words[0].decode("utf-8", "replace")
        if b"fstype" in words and words[words.index(b"fstype") + 1].decode() in TYPES and source not in counts:
            counts[source] = _mount(words[3], lines)
    return counts


def _mount(point: bytes, lines: list[bytes]) -> MountCounts:
    sent = received = retransmits = timeouts = read = written = 0
    operations = {"read": (0, 0.0), "write": (0, 0.0), "other": (0, 0.0)}
    is_operation = False
    for line in lines:
        key, _, rest = line.strip().partition(b":")
        fields = rest.split()
        if is_operation and len(fields) >= 8:
            done, transmissions, late, *_, elapsed = (int(field) for field in fields[:8])
            retransmits, timeouts = retransmits + max(0, transmissions - done), timeouts + late
            name = key.decode().lower() if key in {b"READ", b"WRITE"} else "other"
            before, spent = operations[name]
            operations[name] = before + done, spent + elapsed / 1000
        elif key == b"xprt" and fields[0] in REPLIES:
            outward, inward = REPLIES[fields[0]]
            sent, received = sent + int(fields[outward]), received + int(fields[inward])
        elif key == b"bytes":
            read, written = int(fields[4]), int(fields[5])
        is_operation = is_operation or key == b"per-op statistics"
    return MountCounts(point, sent, received, retransmits, timeouts, read, written, operations)


class NfsSource:
    """One mounted file system of a server."""

    def __init__(self, name: str) -> None:
        self._dims = Dimensions(source=name)
        self._counters = Counters()
        self._answered: tuple[int, int, float] | None = None

    def points(self, at: int, now: float, counts: MountCounts) -> Iterator[Datapoint]:
        """Yield the counts as of `now` (monotonic s)."""
        if self._answered is None or counts.received != self._answered[1]:
            self._answered = counts.sent, counts.received, now
        sent, _, since = self._answered
        yield UNANSWERED.point(at, now - since if counts.sent > sent else 0.0, self._dims)
        point = self._counters.point
        yield point(RETRANSMITS, at, counts.retransmits, self._dims)
        yield point(TIMEOUTS, at, counts.timeouts, self._dims)
        yield point(READ, at, counts.read, self._dims)
        yield point(WRITTEN, at, counts.written, self._dims)
        for name, (done, elapsed) in counts.operations.items():
            dims = self._dims | {"operation": name}
            yield point(OPERATIONS, at, done, dims)
            yield point(TIME, at, elapsed, dims)
