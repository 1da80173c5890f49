"""Receives OTLP metrics over HTTP on loopback, from the processes of jobs, with bounds for each of them."""

from __future__ import annotations

import os
import re
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from chipwatch.collectors.programs.otlp import PushedPoint, from_json, from_protobuf
from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.owner import Owner
from chipwatch.host.counters import Life
from chipwatch.host.exposition import UNITS
from chipwatch.host.job_times import Reports, names
from chipwatch.host.open_devices import open_files
from chipwatch.host.owners import PERMISSION, Owners
from chipwatch.host.procfs import tcp_sockets
from chipwatch.net.page_server import PageServer, Request, Response
from chipwatch.net.protobuf import message, text, varint

MAX_BYTES: Final = 1 << 20
"""Bytes of a request, also uncompressed."""
MOST_SENDERS: Final = 64
MOST_PROBLEMS: Final = 5
MOST_ATTRIBUTES: Final = 24
"""Sinks take no more dimensions, together with the machine's."""
MOST_SERIES: Final = 10_000
"""Series of all senders: a reading may yield 20,000 points."""
SHARE: Final = 50
"""A process, and the search for processes, take at most one part in so many of a core."""
MOST_DEBT: Final = 0.5
"""Seconds of a core that may be taken at once."""
STALE: Final = 300.0
"""Seconds without a request after which a process is forgotten."""
LOOK: Final = 30.0
"""Seconds for which a port belongs to the process that was found."""
ESTABLISHED: Final = b"01"
BAD_WORD: Final = re.compile("[^a-zA-Z0-9_:]")
SCALES: Final = {**{unit: (unit, 1.0) for unit in (*UNITS.values(), "%")},
                 "ms": ("s", 1e-3), "us": ("s", 1e-6), "ns": ("s", 1e-9)}  # fmt: skip
"""Unit of a metric -> ours, and its size in that; all others are 1."""
PROTOBUF, JSON = "application/x-protobuf", "application/json"
Key = tuple[str, tuple[tuple[str, str], ...]]


class _Series:
    """A series of a process, and its last value."""

    def __init__(self, metric: Metric, dims: Dimensions) -> None:
        self.metric, self.dims, self.value, self.start = metric, dims, 0.0, 0
        self.is_new, self.life = False, Life()


class Budget:
    """Seconds of a core that were taken, and are forgotten at the rate that is allowed."""

    def __init__(self, now: float) -> None:
        self._debt, self.seen = 0.0, now

    def is_spent(self, now: float) -> bool:
        """Return whether more has to wait at `now` (monotonic s)."""
        self._debt, self.seen = max(0.0, self._debt - (now - self.seen) / SHARE), now
        return self._debt > MOST_DEBT

    def spend(self, begun: float) -> None:
        """Add the time since `begun`."""
        self._debt += time.monotonic() - begun


class Sender:
    """A process that pushes, and the series that it has pushed."""

    def __init__(self, owner: Owner | None, now: float) -> None:
        self.job = owner.dims() if owner else NO_DIMENSIONS
        self.budget = Budget(now)
        self.series: dict[Key, _Series] = {}
        self.left_out = 0
        """Points of its last request that were left out."""
        self.times: list[Datapoint] = []
        """The last values of the times of its job."""


class OtlpReceiver:
    """Takes requests on the thread of its server; `take` is called on the collector's."""

    def __init__(self, port: int, max_series: int, attributes: Sequence[str], proc: Path, owners: Owners) -> None:
        """Listen on loopback; raise OSError. `attributes`: attributes of the resource that become dimensions."""
        self._most, self._attributes, self._proc, self._owners = max_series, attributes, proc, owners
        self._lock = threading.Lock()
        self._senders: dict[int, Sender] = {}
        """By pid; 0: not known."""
        self._pids: dict[int, tuple[float, int]] = {}
        """When the process of a port was found (monotonic s), and its pid."""
        self._pushers: dict[tuple[str, Dimensions], Sender] = {}
        self._searches = Budget(time.monotonic())
        self.problems: list[str] = []
        """Of the last call of `take`."""
        self.has_times = False
        """The last call of `take` brought times of jobs."""
        self._server = PageServer(("127.0.0.1", port), self._answer, max_body=MAX_BYTES)
        self.port: int = self._server.port

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def take(self, at: int) -> list[Datapoint]:
        """Return what came since the last call."""
        now, self.problems, self.has_times = time.monotonic(), [], False
        with self._lock:
            self._senders = {pid: each for pid, each in self._senders.items() if now - each.budget.seen < STALE}
            live = {id(sender) for sender in self._senders.values()}
            self._pushers = {key: sender for key, sender in self._pushers.items() if id(sender) in live}
            if 0 in self._senders:
                self.problems.append(f"the process that pushes is not known: {PERMISSION}")
            return [point for sender in self._senders.values() for point in self._points(sender, at)]

    def _points(self, sender: Sender, at: int) -> Iterator[Datapoint]:
        times, twice = [], ""
        for series in sender.series.values():
            key, start = (series.metric.name, series.dims), None
            if self._pushers.setdefault(key, sender) is not sender:
                twice = f"two processes push {series.metric.name}: tell them apart by an attribute, such as rank"
                continue
            if series.is_new and series.metric.kind is Kind.COUNTER:
                series.life.take(series.value, at)
            if series.metric.kind is Kind.COUNTER:
                start = min(series.life.start_time or at, at)
            point = series.metric.point(at, series.value, series.dims, start_time=start)
            if series.metric.name in names():
                times.append(point)
                self.has_times |= series.is_new
            elif series.is_new:
                yield point
            series.is_new = False
        sender.times = times
        many = f"{sender.job.get('job', 'a program')} pushes too many series: over {self._most}" * bool(sender.left_out)
        self.problems += [text for text in (twice, many) if text and len(self.problems) < MOST_PROBLEMS]

    def reports(self) -> Reports:
        """Return the times of jobs that each process pushed last; a job's dimensions, by pid."""
        return {pid: (sender.job, sender.times) for pid, sender in self._senders.items() if sender.times}

    def _answer(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if request.path != "/v1/metrics":
            return Response(404, b"Send OTLP metrics to /v1/metrics.\n")
        if request.method != "POST":
            return Response(405, b"Send metrics by POST.\n", (("Allow", "POST"),))
        if kind not in (PROTOBUF, JSON) or coding not in ("identity", "gzip"):
            return Response(415, f"Send {PROTOBUF} or {JSON}, plain or with gzip.\n".encode())
        return self._receive(request, kind, is_gzip=coding == "gzip")

    def _receive(self, request: Request, kind: str, *, is_gzip: bool) -> Response:
        begun, sender = time.monotonic(), self._sender(request.port)
        if sender is None or sender.budget.is_spent(begun):
            return Response(503, b"Too much is pushed; try again later.\n", (("Retry-After", "5"),))
        try:
            body = _unpacked(request.body) if is_gzip else request.body
            if len(body) > MAX_BYTES:
                return Response(413, f"A request may have {MAX_BYTES} bytes, also uncompressed.\n".encode())
            with self._lock:
                sender.left_out = self._keep(
                    sender, (from_json if kind == JSON else from_protobuf)(body, self._attributes)
                )
        except (ValueError, RecursionError, zlib.error) as problem:
            return Response(400, f"This is not a request of OTLP: {type(problem).__name__}.\n".encode())
        finally:
            sender.budget.spend(begun)
        return Response(200, _partial(sender.left_out, self._most, kind), (("Content-Type", kind),))

    def _keep(self, sender: Sender, points: Iterator[PushedPoint]) -> int:
        """Keep the points of a request; return how many are left out."""
        left_out, room = 0, MOST_SERIES - sum(len(each.series) for each in self._senders.values())
        for point in points:
            pairs = {key: value for key, value in point.attributes.items() if key and value}
            key = BAD_WORD.sub("_", point.name)[:200], tuple(sorted(pairs.items()))
            if (series := sender.series.get(key)) is None:
                if len(sender.series) >= self._most or room <= 0 or len(pairs) > MOST_ATTRIBUTES or not point.name:
                    left_out += 1
                    continue
                series, room = sender.series.setdefault(key, _make(point, key[0], pairs, sender.job)), room - 1
            value = SCALES.get(point.unit, ("1", 1.0))[1] * point.value
            if point.is_delta:
                series.value += value
            elif point.start > 0 and point.start != series.start and point.is_monotonic:
                series.value, series.start, series.life = value, point.start, Life(point.start)
            else:
                series.value = value
            series.is_new = True
        return left_out

    def _sender(self, port: int) -> Sender | None:
        """Return the process that sends from a port; None if there are too many."""
        now = time.monotonic()
        when, pid = self._pids.get(port, (0.0, 0))
        if not when or now - when > LOOK:
            self._pids = {each: item for each, item in self._pids.items() if now - item[0] <= LOOK}
            if self._searches.is_spent(now):
                return None
            pid = self._holder(port)
            self._pids[port] = now, pid
            self._searches.spend(now)
        sender = self._senders.get(pid)
        process = self._owners.process(pid) if pid else None
        owner = process.owner if process else None
        if sender is None or (owner and sender.job != owner.dims()):
            if len(self._senders) >= MOST_SENDERS:
                return None
            with self._lock:
                sender = self._senders[pid] = Sender(owner, now)
        return sender

    def _holder(self, port: int) -> int:
        """Return the pid of the process that is connected from a port of loopback to this server; 0 if unknown."""
        ends = {f"{port:04X}".encode(): f"{self.port:04X}".encode()}
        for _, row in tcp_sockets(f"{self._proc}/self/net"):
            (host, _, mine), (other, _, theirs) = row[1].partition(b":"), row[2].partition(b":")
            if row[3] == ESTABLISHED and host == other and ends.get(mine) == theirs:
                uid, target = int(row[7]), f"socket:[{row[9].decode()}]"
                for name in os.listdir(self._proc):  # noqa: PTH208  # no Path for each of a thousand processes
                    with suppress(OSError):
                        is_theirs = name.isdecimal() and os.stat(f"{self._proc}/{name}").st_uid in (uid, 0)  # noqa: PTH116
                        if is_theirs and any(link == target for _, link in open_files(self._proc, int(name))):
                            return int(name)
        return 0


def _make(point: PushedPoint, name: str, pairs: Mapping[str, str], job: Dimensions) -> _Series:
    kind = Kind.COUNTER if point.is_monotonic else Kind.GAUGE
    own = {f"_{key}" if key[0] == "@" else key: value for key, value in pairs.items()}
    unit = SCALES.get(point.unit, ("1", 1.0))[0]
    dims = Dimensions({**own, **job})
    return _Series(Metric(name, kind, unit, "Pushed by a program.", dims=tuple(dims)), dims)


def _unpacked(body: bytes) -> bytes:
    """Return the content of gzip, at most a byte more than a request may have; raise zlib.error or ValueError."""
    unpack = zlib.decompressobj(wbits=31)
    content = unpack.decompress(body, MAX_BYTES + 1)
    if not unpack.eof and len(content) <= MAX_BYTES:
        raise ValueError("the body is incomplete")
    return content


def _partial(left_out: int, most: int, kind: str) -> bytes:
    """Return the body of the answer: ExportMetricsServiceResponse, with partial_success if points were left out."""
    words = f"a process may push {most} series (max_series) of {MOST_ATTRIBUTES} attributes"
    if kind == JSON:
        rest = f'"partialSuccess":{{"rejectedDataPoints":"{left_out}","errorMessage":"{words}"}}' if left_out else ""
        return f"{{{rest}}}".encode()
    return message(1, varint(1 << 3) + varint(left_out) + text(2, words)) if left_out else b""
