"""Asks many nodes at once: pages by HTTP, agents by ssh. A bad node loses only its line."""

from __future__ import annotations

import random
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from math import inf
from pathlib import Path
from queue import SimpleQueue
from shlex import quote
from typing import Any, Final, NamedTuple

import msgspec

from chipwatch.base.redaction import one_line
from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import ConfigError, Refused, Retryable, os_text
from chipwatch.host.exposition import ExpositionReader, ScrapeResponse
from chipwatch.host.supervised_process import SupervisedProcess
from chipwatch.net.address import is_loopback
from chipwatch.net.faults import read_secret
from chipwatch.net.http_client import ClientTls, HttpClient
from chipwatch.show.fleet.hosts import NodeAddress
from chipwatch.show.fleet.node import WAITING, FleetNode, believed, short, summarise
from chipwatch.show.fleet.page import NodePageReader, points_of

TIMEOUT: Final = 3.0
"""Seconds in which a node must accept the connection and answer completely."""
MAX_LINES: Final = 50_000
"""Most lines of a page: a longer one would delay the other nodes."""
AT_ONCE, STAY, RETRIES_AT_ONCE = 128, 8, 32
"""
Most simultaneous requests: until each node has answered or failed, afterwards, and to nodes that failed.

These must not delay the others. Few threads take less CPU time than many.
"""
MAX_KEPT: Final = 600
"""Most nodes with which connections stay open: a process may usually open 1024 files."""
MAX_PAUSE: Final = 30.0
"""Longest pause (s) before a node that failed is asked again."""
STARTS: Final = 16
"""Most ssh programs that connect at the same time."""
MAX_SERIES: Final = 100_000
TEXT: Final = "text/plain;version=0.0.4"
OPENMETRICS: Final = f"application/openmetrics-text;version=1.0.0,{TEXT};q=0.5"
"""OpenMetrics has the start times of counters."""
LOOK: Final = 0.1
"""Seconds between two looks for nodes to ask: several nodes together take less CPU time."""
MAX_BODY: Final = 8 << 20
"""Most bytes of a page."""
SSH: Final = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")


class Access(NamedTuple):
    """Access to nodes: a secret, certificates, and the program to run at the other end of ssh."""

    token_file: Path | None = None
    """File with a bearer token."""
    password_file: Path | None = None
    """File with USER:PASSWORD."""
    ca_file: Path | None = None
    remote: str = "chipwatch"

    def headers(self, host: str, *, secure: bool) -> dict[str, str]:
        """Return the header with the secret, if any; raise ConfigError, also if it would travel unencrypted."""
        if (file := self.token_file or self.password_file) is None:
            return {}
        if not (secure or is_loopback(host)):
            raise ConfigError(f"{file} is sent by https only, and {host} is asked by http")
        try:
            secret = read_secret(file)
        except ValueError as fault:
            raise ConfigError(str(fault)) from None
        text = f"Bearer {secret}" if self.token_file else f"Basic {b64encode(secret.encode()).decode()}"
        return {"Authorization": text}


class FollowedNode:
    """A node, its last line, and the state for its next request."""

    def __init__(self, address: NodeAddress) -> None:
        self.address, self.line = address, FleetNode(address.name, verdict=WAITING)
        self.failures, self.asked, self.page = 0, False, 0
        """Consecutive failures; True once it has answered or failed; hash of the last page."""
        self.due, self.begun = 0.0, inf
        """Times of the next request and of the present one (monotonic seconds); infinity if there is none."""

    def fail(self, why: str) -> None:
        """Replace the line by a failure; only its jobs and users stay."""
        line, self.failures, self.page = self.line, self.failures + 1, 0
        self.line = FleetNode(line.node, one_line(why, 200), line.seen, jobs=line.jobs, users=line.users)
        self.asked = True

    def take(self, line: FleetNode) -> None:
        """Replace the line by a new one."""
        self.failures, self.line, self.asked = 0, line, True


PageQueue = SimpleQueue[tuple[FollowedNode, float] | None]
"""Nodes to ask now, with the times at which they were due; None ends a thread."""


class Poller:
    """Asks all nodes every `interval` seconds on daemon threads; calls `wake` about once per interval."""

    def __init__(
        self, addresses: Sequence[NodeAddress], access: Access, interval: float, wake: Callable[[], None], by: str = ""
    ) -> None:
        """`by`: the label by which nodes are grouped, or ""."""
        self.access, self.interval, self._wake, self.trouble, self._by, self.hour = access, interval, wake, "", by, ()
        self._nodes = [FollowedNode(address) for address in addresses]
        self.labels = {each.name: [each.partition] for each in addresses if each.partition and by == "partition"}
        """Node -> the values of the label."""
        self._clients: dict[FollowedNode, HttpClient] = {}
        """Nodes with a page -> the client for it."""
        self._reader, self._reading = NodePageReader(), threading.Lock()
        self._queues: tuple[PageQueue, ...] = SimpleQueue(), SimpleQueue()
        """For nodes that answered, and for those that failed, which must not delay the others."""
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, name="fleet", daemon=True)]

    def start(self) -> None:
        """Check secrets and certificates, then start asking; raise ConfigError."""
        pages = [node for node in self._nodes if node.address.scheme != "ssh"]
        for node in pages:  # the first request comes at once, the others are spread over the interval
            self.access.headers(node.address.host, secure=node.address.scheme == "https")
            node.due = time.monotonic() - self.interval * random.random()  # noqa: S311
        tls = ClientTls(ca_option="--ca-file")
        if any(node.address.scheme == "https" for node in pages):
            try:
                tls = tls._replace(context=ssl.create_default_context(cafile=self.access.ca_file))
            except OSError as problem:
                raise ConfigError(f"--ca-file {self.access.ca_file}: {os_text(problem)}") from problem
        self._clients = {node: client_of(node.address, tls) for node in pages}
        self._threads += [
            threading.Thread(target=self._work, args=(queue,), name="page", daemon=True)
            for queue, most in zip(self._queues, (AT_ONCE, RETRIES_AT_ONCE), strict=True) for _ in pages[:most]
        ]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop asking, end the ssh programs, and close the connections."""
        self._stop.set()
        for queue in self._queues:
            for _ in self._threads:
                queue.put(None)
        deadline = time.monotonic() + 2 * TIMEOUT
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for client in self._clients.values():
            client.close()

    def lines(self) -> list[FleetNode]:
        """Return the last line of each node."""
        return [node.line for node in self._nodes]

    def address(self, name: str) -> NodeAddress:
        """Return the address of the node with this name."""
        return next(node.address for node in self._nodes if node.address.name == name)

    @property
    def is_complete(self) -> bool:
        """True once each node has answered or failed."""
        return all(node.asked for node in self._nodes)

    def _run(self) -> None:
        words = f"top --json --every {self.interval:g}"
        start = partial(SupervisedProcess, timeout=5 * self.interval + TIMEOUT, name="ssh", exact=True)
        by_ssh = (node for node in self._nodes if node.address.scheme == "ssh")
        programs = {node: start(ssh_command(node.address, self.access, words)) for node in by_ssh}
        due, was_complete, waiting = 0.0, False, [*programs]
        try:
            while not self._stop.wait(LOOK):
                now = time.monotonic()
                for node in self._clients:
                    if node.due <= now:
                        self._queues[node.failures > 0].put((node, node.due))
                        node.due = inf
                    elif now - node.begun > 2 * TIMEOUT and not node.asked:  # its name server does not answer
                        node.fail(f"no complete answer in {TIMEOUT:g} s")
                self._tend(programs, waiting)
                if now >= due or was_complete != self.is_complete:
                    surplus = 0 if was_complete or not self.is_complete else len(self._clients) - STAY
                    for _ in range(min(surplus, AT_ONCE - STAY)):
                        self._queues[0].put(None)
                    due, was_complete = now + self.interval, self.is_complete
                    self._wake()
        finally:
            for program in programs.values():
                program.close()

    # -- pages

    def _work(self, queue: PageQueue) -> None:
        """Ask the nodes of a queue, one after another, until the end."""
        while (got := queue.get()) and not self._stop.is_set():
            node, due = got
            node.begun, client = time.monotonic(), self._clients[node]
            try:
                self._take(node, body_of(client, node.address, self.access))
            except (ConfigError, Refused, Retryable) as problem:
                node.fail(str(problem))
            if len(self._clients) > MAX_KEPT:
                client.close()
            pause = min(self.interval * 2 ** min(node.failures, 6), max(MAX_PAUSE, self.interval))
            node.due, node.begun = max(due + pause, time.monotonic()), inf

    def _take(self, node: FollowedNode, body: bytes) -> None:
        now, page = time.time_ns() / 1e9, hash(body)
        if body and page == node.page:
            node.take(msgspec.structs.replace(node.line, seen=now))
            return
        if len(body) > MAX_LINES and body.count(b"\n") > MAX_LINES:
            raise Retryable(f"its page has more than {MAX_LINES:,} lines")
        with self._reading:
            if not (seen := self._reader.read(body)):
                raise Retryable("its page has no metrics that are known here")
            if values := {short(item.dims[self._by]): 1 for item in seen if self._by in item.dims}:
                self.labels[node.address.name] = [*values]
            node.page = page
            node.take(summarise(node.address.name, seen, now))

    # -- ssh

    def _tend(self, programs: Mapping[FollowedNode, SupervisedProcess], waiting: list[FollowedNode]) -> None:
        """Start the programs that may connect now, and read all others."""
        connecting = sum(not node.asked for node in programs if node not in waiting)
        for node in [waiting.pop(0) for _ in range(min(len(waiting), STARTS - connecting))]:
            try:
                programs[node].start(time.monotonic())
            except OSError as problem:
                node.fail(f"ssh cannot be started: {problem.strerror}")
        for node in programs.keys() - waiting:
            self._read(node, programs[node])

    @staticmethod
    def _read(node: FollowedNode, program: SupervisedProcess) -> None:
        texts = [text for text in program.lines(time.monotonic()) if text.startswith(b"{")]  # others greet a login
        for text in texts[-1:]:
            try:
                (line,) = msgspec.json.decode(text, type=dict[str, list[FleetNode]])["nodes"]
            except (msgspec.DecodeError, LookupError, ValueError, RecursionError):
                node.fail("its chipwatch has another version")
                continue
            line = believed(line, node.address.name)
            line.seen = time.time_ns() / 1e9
            if line.error:
                node.fail(line.error)
            else:
                node.take(line)
        for why in program.problems():
            node.fail(why)


def ssh_command(address: NodeAddress, access: Access, words: str, *options: str) -> list[str]:
    """Return the ssh command that runs chipwatch on a node with the arguments `words`."""
    port = ["-p", str(address.port)] if address.port else []
    return [*SSH, *options, *port, "--", address.host, f"{quote(access.remote)} {words}"]


def client_of(address: NodeAddress, tls: ClientTls) -> HttpClient:
    """Return a client for the page of a node."""
    _, scheme, host, port, path, _ = address
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"
    return HttpClient(url, timeout=TIMEOUT, max_bytes=MAX_BODY, tls=tls, direct=True)


def body_of(client: HttpClient, address: NodeAddress, access: Access, accept: str = TEXT) -> bytes:
    """Return the page of a node; raise Retryable, Refused or ConfigError."""
    headers = {"Accept": accept, "User-Agent": "chipwatch"}
    answer = client.request("GET", "", None, headers | access.headers(address.host, secure=address.scheme == "https"))
    if answer.status != 200:
        words = answer.body[:100].decode(errors="replace").strip().partition("\n")[0]
        is_text = words and words.isprintable() and words[0] != "<"
        raise Retryable(f"status {answer.status}{f': {words}' if is_text else ''}")
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Retryable("the answer is compressed, which was not asked for")
    return answer.body


def page_of(address: NodeAddress, access: Access) -> Callable[[], Sequence[Datapoint]]:
    """Return a function that reads the page of a node, translated to our metrics; it raises what `body_of` raises."""
    client = client_of(address, ClientTls(ca_file=access.ca_file, ca_option="--ca-file"))
    reader = ExpositionReader(MAX_SERIES, lambda labels: labels)

    def read() -> Sequence[Datapoint]:
        with closing(client):
            body = body_of(client, address, access, OPENMETRICS)
        points, _ = reader.read(ScrapeResponse(body, body.endswith(b"# EOF\n"), whole=True), time.time_ns())
        if not (known := [*points_of(points)]):
            raise Retryable("its page has no metrics that are known here")
        return known

    return read


def complete(source: Any, timeout: float) -> list[FleetNode]:
    """Wait until each node has answered or failed, at most `timeout` seconds; return the lines, worst first."""
    deadline = time.monotonic() + timeout
    while not source.is_complete and time.monotonic() < deadline:
        time.sleep(0.02)
    lines = [FleetNode(line.node, "no answer yet") if line.verdict == WAITING else line for line in source.lines()]
    return sorted(lines, key=lambda node: node.place)
