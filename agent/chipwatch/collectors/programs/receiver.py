"""Receives OTLP metrics over HTTP on loopback, from the processes of jobs, with bounds for each of them."""

from __future__ import annotations

import json
import os
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from chipwatch.collectors.programs.otlp import MALFORMED, decoded, page_of
from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint
from chipwatch.contract.owner import Owner
from chipwatch.host.job_times import JobProgram, SeriesKey
from chipwatch.host.open_devices import open_files
from chipwatch.host.owners import PERMISSION, Owners
from chipwatch.host.procfs import tcp_sockets
from chipwatch.net.page_server import PageServer, Request, Response

MAX_BYTES: Final = 1 << 19
"""Bytes of a request, also uncompressed."""
MOST_SENDERS: Final = 32
MOST_REQUESTS: Final = 8
"""Requests of a process that are kept until the next reading; sums are cumulative, so nothing is lost of others."""
MOST_KEPT: Final = 8 * MAX_BYTES
"""Bytes of these requests as pages, in which the attributes of the resource stand at each point."""
MOST_PROBLEMS: Final = 5
SHARE, SEARCHES = 50, 5
"""After a request with more CPU time than SHORT its process waits so many times as long; after a search the next."""
SHORT: Final = 0.02
STALE: Final = 300.0
"""Seconds without a request after which a process is forgotten."""
LOOK: Final = 30.0
"""Seconds for which a port belongs to the process that was found."""
ESTABLISHED: Final = b"01"
PROTOBUF, JSON = "application/x-protobuf", "application/json"


class Sender(JobProgram):
    """A program that pushes, and its requests that are not read yet, as pages."""

    def __init__(self, owner: Owner | None, max_series: int, now: float) -> None:
        super().__init__(owner.dims() if owner else NO_DIMENSIONS, max_series, all_series=True)
        self.seen, self.due, self.pages = now, 0.0, list[bytes]()

    def keep(self, page: bytes) -> None:
        """Keep a page, and forget the oldest ones above the limits."""
        self.pages.append(page)
        while len(self.pages) > MOST_REQUESTS or sum(map(len, self.pages)) > MOST_KEPT:
            del self.pages[0]


class OtlpReceiver:
    """Takes requests on the thread of its server; `take` is called on the collector's."""

    def __init__(self, port: int, max_series: int, attributes: Sequence[str], proc: Path, owners: Owners) -> None:
        """Listen on loopback; raise OSError. `attributes`: attributes of the resource that become dimensions."""
        self._most, self._attributes, self._proc, self._owners = max_series, attributes, proc, owners
        self._lock = threading.Lock()
        self.senders: dict[int, Sender] = {}
        """By pid; 0: not known."""
        self._pids: dict[int, tuple[float, int]] = {}
        """When the process of a port was found (monotonic s), and its pid."""
        self._pushers: dict[SeriesKey, Sender] = {}
        self._due = 0.0
        """When the next process may be searched for (monotonic s)."""
        self.problems: list[str] = []
        """Of the last call of `take`."""
        self._server = PageServer(("127.0.0.1", port), self._answer, max_body=MAX_BYTES)
        self.port: int = self._server.port

    def close(self) -> None:
        """Stop listening."""
        self._server.close()

    def take(self, at: int) -> list[Datapoint]:
        """Return what came since the last call."""
        now, self.problems = time.monotonic(), list[str]()
        with self._lock:
            self.senders = {pid: each for pid, each in self.senders.items() if now - each.seen < STALE}
            senders = [*self.senders.values()]
            self._pushers = {key: sender for key, sender in self._pushers.items() if sender in senders}
            if 0 in self.senders:
                self.problems.append(f"the process that pushes is not known: {PERMISSION}")
        return [point for sender in senders for point in self._points(sender, at)]

    def _points(self, sender: Sender, at: int) -> list[Datapoint]:
        points, problems = dict[SeriesKey, Datapoint](), set[str]()
        with self._lock:
            pages, sender.pages = sender.pages, []
        for page in pages:
            new, more = sender.read(page, at)
            points |= new
            problems |= {f"what {sender.job.get('job', 'a program')} pushes: {text}" for text in more}
        for key in [*points]:
            if self._pushers.setdefault(key, sender) is not sender:
                del points[key]
                problems.add(f"two processes push {key[0]}: tell them apart by an attribute, such as rank")
        self.problems = [*self.problems, *problems][:MOST_PROBLEMS]
        return [*points.values()]

    def _answer(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if request.path != "/v1/metrics" or request.method != "POST":
            return Response(404, b"Send OTLP metrics to /v1/metrics by POST.\n")
        if kind not in (PROTOBUF, JSON) or coding not in ("identity", "gzip"):
            return Response(415, f"Send {PROTOBUF} or {JSON}, plain or with gzip.\n".encode())
        return self._receive(request, kind, is_gzip=coding == "gzip")

    def _receive(self, request: Request, kind: str, *, is_gzip: bool) -> Response:
        now, sender, begun = time.monotonic(), self._sender(request.port), time.thread_time()
        if sender is None or now < sender.due:
            return Response(503, b"Too much is pushed; try again later.\n", (("Retry-After", "5"),))
        try:
            body = _unpacked(request.body) if is_gzip else request.body
            if len(body) > MAX_BYTES:
                return Response(413, f"A request may have {MAX_BYTES} bytes, also uncompressed.\n".encode())
            lines = page_of(json.loads(body) if kind == JSON else decoded(body), self._attributes)
            page = b"".join(_bounded(lines))
            with self._lock:
                sender.keep(page)
        except (*MALFORMED, zlib.error) as problem:
            return Response(400, f"This is not a request of OTLP: {type(problem).__name__}.\n".encode())
        finally:
            sender.seen, sender.due = now, _pause(begun, SHARE)
        return Response(200, b"{}" if kind == JSON else b"", (("Content-Type", kind),))

    def _sender(self, port: int) -> Sender | None:
        """Return the process that sends from a port; None if there are too many."""
        now = time.monotonic()
        when, pid = self._pids.get(port, (0.0, 0))
        if not when or now - when > LOOK:
            self._pids = {each: item for each, item in self._pids.items() if now - item[0] <= LOOK}
            if now < self._due:
                return None
            begun = time.thread_time()
            self._pids[port] = now, (pid := self._holder(port))
            self._due = _pause(begun, SEARCHES)
        sender = self.senders.get(pid)
        process = self._owners.process(pid) if pid else None
        owner = process.owner if process else None
        if sender is None or (owner and sender.job != owner.dims()):
            with self._lock:
                if len(self.senders) >= MOST_SENDERS:  # those that have ended make room
                    here = {*os.listdir(self._proc)}  # noqa: PTH208  # no Path for each of a thousand processes
                    self.senders = {at: each for at, each in self.senders.items() if each.pages or str(at) in here}
                if len(self.senders) >= MOST_SENDERS:
                    return None
                sender = self.senders[pid] = Sender(owner, self._most, now)
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


def _pause(begun: float, times: int) -> float:
    """Return when more may be done (monotonic s), after something that began at this CPU time of the thread."""
    took = time.thread_time() - begun
    return time.monotonic() + times * took if took > SHORT else 0.0


def _bounded(lines: Iterable[str]) -> Iterator[bytes]:
    """Yield lines as bytes; raise ValueError for more than MOST_KEPT."""
    left = MOST_KEPT
    for line in lines:
        data = f"{line}\n".encode()
        if (left := left - len(data)) < 0:
            raise ValueError("names and attributes are too long")
        yield data


def _unpacked(body: bytes) -> bytes:
    """Return the content of gzip, at most a byte more than a request may have; raise zlib.error or ValueError."""
    unpack = zlib.decompressobj(wbits=31)
    content = unpack.decompress(body, MAX_BYTES + 1)
    if not unpack.eof and len(content) <= MAX_BYTES:
        raise ValueError("the body is incomplete")
    return content
