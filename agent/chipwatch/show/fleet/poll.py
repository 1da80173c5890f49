"""Asks many nodes at once on one thread: pages by HTTP, agents by ssh. A bad node loses only its line."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Final, NamedTuple

import msgspec

from chipwatch.base.redaction import one_line
from chipwatch.contract.errors import ConfigError, os_text
from chipwatch.host.supervised_process import SupervisedProcess
from chipwatch.net.address import is_loopback
from chipwatch.net.faults import read_secret
from chipwatch.show.fleet.hosts import NodeAddress
from chipwatch.show.fleet.link import NOT_HTTP, BadAnswer, PageLink
from chipwatch.show.fleet.node import WAITING, FleetNode, believed, summarise
from chipwatch.show.fleet.page import NodePageReader

TIMEOUT: Final = 3.0
"""Seconds in which a node must accept the connection and answer completely."""
MAX_LINES: Final = 50_000
"""Most lines of a page: a longer one would delay the other nodes."""
SLOTS: Final = 20
"""Moments in an interval at which nodes are asked: several nodes together take less CPU time."""
AT_ONCE, RETRIES_AT_ONCE = 128, 32
"""Most simultaneous requests: to nodes that answer, and to nodes that failed, which must not delay the others."""
MAX_KEPT: Final = 600
"""Most nodes with which connections stay open: a process may usually open 1024 files."""
MAX_PAUSE: Final = 30.0
"""Longest pause (s) before a node that failed is asked again."""
MAX_THREADS: Final = 256
"""Most threads of the process: a look-up of a name may hang for minutes."""
STARTS: Final = 16
"""Most ssh programs that connect at the same time."""
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
        file = self.token_file or self.password_file
        if file is None:
            return {}
        if not (secure or is_loopback(host)):
            raise ConfigError(f"{file} is sent by https only, and {host} is asked by http")
        try:
            secret = read_secret(file)
        except ValueError as fault:
            raise ConfigError(str(fault)) from None
        text = f"Bearer {secret}" if self.token_file else f"Basic {b64encode(secret.encode()).decode()}"
        return {"Authorization": text}


class DaemonThreads(Executor):
    """Starts a daemon thread for each call: asyncio's own threads would delay the end of the process."""

    def submit(self, fn: Any, /, *args: Any, **options: Any) -> Future[Any]:
        if threading.active_count() > MAX_THREADS:
            raise OSError("too many names wait for a name server")
        future: Future[Any] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **options))
                except OSError as problem:
                    future.set_exception(problem)

        threading.Thread(target=call, name="names", daemon=True).start()
        return future


class FollowedNode:
    """A node, its last line, and the state for its next request."""

    def __init__(self, address: NodeAddress) -> None:
        self.address, self.line = address, FleetNode(address.name, verdict=WAITING)
        self.failures = 0
        self.asked = False
        self.page = 0
        """Hash of the last page."""
        self.link: PageLink | None = None
        self.places: Sequence[str] = ()
        """The IP addresses of its name; empty until they are looked up."""

    def fail(self, why: str) -> None:
        """Replace the line by a failure; only its jobs and users stay."""
        self.failures += 1
        self.page = 0
        line = self.line
        self.line = FleetNode(line.node, one_line(why, 200), line.seen, jobs=line.jobs, users=line.users)
        self.asked = True

    def take(self, line: FleetNode) -> None:
        """Replace the line by a new one."""
        self.failures, self.line, self.asked = 0, line, True


class Poller:
    """Asks all nodes every `interval` seconds on a daemon thread; calls `wake` about once per interval."""

    def __init__(
        self, addresses: Sequence[NodeAddress], access: Access, interval: float, wake: Callable[[], None]
    ) -> None:
        self.access, self.interval, self._wake, self.trouble = access, interval, wake, ""
        self._nodes = [FollowedNode(address) for address in addresses]
        self._reader = NodePageReader()
        self._context: ssl.SSLContext | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="fleet", daemon=True)

    def start(self) -> None:
        """Check secrets and certificates, then start asking; raise ConfigError."""
        pages = [node.address for node in self._nodes if node.address.scheme != "ssh"]
        for address in pages:
            self.access.headers(address.host, secure=address.scheme == "https")
        if any(address.scheme == "https" for address in pages):
            try:
                self._context = ssl.create_default_context(cafile=self.access.ca_file)
            except OSError as problem:
                raise ConfigError(f"--ca-file {self.access.ca_file}: {os_text(problem)}") from problem
        self._thread.start()

    def close(self) -> None:
        """Stop asking, and end the ssh programs."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2 * TIMEOUT)

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

    async def _run(self) -> None:
        self._good, self._bad = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(RETRIES_AT_ONCE)
        by_ssh = [node for node in self._nodes if node.address.scheme == "ssh"]
        due, was_complete = 0.0, False
        async with asyncio.TaskGroup() as group:  # a bug in a task ends the thread, which the screen shows
            tasks = [group.create_task(self._follow(node)) for node in self._nodes if node.address.scheme != "ssh"]
            tasks += [group.create_task(self._follow_by_ssh(by_ssh))] if by_ssh else []
            while not self._stop.is_set():
                if time.monotonic() >= due or was_complete != self.is_complete:
                    due, was_complete = time.monotonic() + self.interval, self.is_complete
                    self._wake()
                await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
        for node in self._nodes:
            _close(node)
        await asyncio.sleep(0)  # lets asyncio close the connections

    # -- pages

    async def _follow(self, node: FollowedNode) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() - self.interval * random.random()  # noqa: S311  # spreads the requests over the interval
        slot = self.interval / SLOTS
        while True:
            async with self._bad if node.failures else self._good:
                try:
                    async with asyncio.timeout(TIMEOUT):
                        body = await self._ask(node)
                    self._take(node, body)
                except TimeoutError:
                    self._lose(node, f"no complete answer in {TIMEOUT:g} s")
                except (OSError, ConfigError, BadAnswer) as problem:
                    self._lose(node, os_text(problem))
                except ValueError:
                    self._lose(node, NOT_HTTP)
            if len(self._nodes) > MAX_KEPT:
                _close(node)
            pause = min(self.interval * 2 ** min(node.failures, 6), max(MAX_PAUSE, self.interval))
            due = round(max(due + pause, loop.time()) / slot) * slot
            await asyncio.sleep(due - loop.time())

    def _take(self, node: FollowedNode, body: bytes) -> None:
        now, page = time.time_ns() / 1e9, hash(body)
        if page == node.page:
            node.take(msgspec.structs.replace(node.line, seen=now))
            return
        if len(body) > MAX_LINES and body.count(b"\n") > MAX_LINES:
            raise BadAnswer(f"its page has more than {MAX_LINES:,} lines")
        seen = self._reader.read(body)
        if not seen:
            raise BadAnswer("its page has no metrics that are known here")
        node.page = page
        node.take(summarise(node.address.name, seen, now))

    @staticmethod
    def _lose(node: FollowedNode, why: str) -> None:
        _close(node)
        node.places = ()
        node.fail(why)

    async def _ask(self, node: FollowedNode) -> bytes:
        """Return the page of a node; raise OSError, TimeoutError, BadAnswer or ConfigError."""
        _, scheme, host, port, path = node.address
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        secrets = self.access.headers(host, secure=scheme == "https")
        lines = (f"GET {path} HTTP/1.1", f"Host: {place}", "Accept: text/plain;version=0.0.4", "User-Agent: chipwatch")
        request = "\r\n".join((*lines, *(f"{key}: {text}" for key, text in secrets.items()), "", "")).encode()
        if node.link and node.link.is_open:
            try:
                return await node.link.ask(request)
            except ConnectionError:  # the other side has closed the open connection
                _close(node)
        node.link = await self._connect(node)
        return await node.link.ask(request)

    async def _connect(self, node: FollowedNode) -> PageLink:
        loop, address = asyncio.get_running_loop(), node.address
        context, name = (self._context, address.host) if address.scheme == "https" else (None, None)
        look = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
        if not node.places:
            node.places = [str(row[4][0]) for row in await loop.run_in_executor(DaemonThreads(), look)]
        problem: OSError = OSError("no address")
        for place in node.places:
            try:
                _, link = await loop.create_connection(PageLink, place, address.port, ssl=context, server_hostname=name)
            except ssl.SSLCertVerificationError as fault:
                hint = "" if "mismatch" in fault.verify_message else "; set --ca-file"  # no file helps a wrong name
                raise BadAnswer(f"its certificate is not trusted: {fault.verify_message}{hint}") from None
            except OSError as fault:  # asyncio's text is hard to read
                problem = OSError(fault.errno, os.strerror(fault.errno)) if fault.errno else fault
            else:
                return link
        raise problem

    # -- ssh

    async def _follow_by_ssh(self, nodes: Sequence[FollowedNode]) -> None:
        words, timeout = f"top --json --every {self.interval:g}", 5 * self.interval + TIMEOUT
        commands = {node: ssh_command(node.address, self.access, words) for node in nodes}
        programs = {node: SupervisedProcess(command, timeout=timeout, name="ssh", exact=True)
                    for node, command in commands.items()}  # fmt: skip
        waiting = [*programs]
        try:
            while True:
                connecting = sum(not node.asked for node in programs if node not in waiting)
                for node in [waiting.pop(0) for _ in range(min(len(waiting), STARTS - connecting))]:
                    try:
                        programs[node].start(time.monotonic())
                    except OSError as problem:
                        node.fail(f"ssh cannot be started: {problem.strerror}")
                for node, program in programs.items():
                    if node not in waiting:
                        self._read(node, program)
                        await asyncio.sleep(0)
                await asyncio.sleep(min(0.5, self.interval))
        finally:
            for program in programs.values():
                program.close()

    @staticmethod
    def _read(node: FollowedNode, program: SupervisedProcess) -> None:
        texts = [text for text in program.lines(time.monotonic()) if text.startswith(b"{")]  # others greet a login
        for text in texts[-1:]:
            try:
                (line,) = msgspec.json.decode(text, type=dict[str, list[FleetNode]])["nodes"]
            except (msgspec.DecodeError, LookupError, ValueError):
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


def _close(node: FollowedNode) -> None:
    link, node.link = node.link, None
    if link:
        link.close()


def complete(source: Any, timeout: float) -> list[FleetNode]:
    """Wait until each node has answered or failed, at most `timeout` seconds; return the lines, worst first."""
    deadline = time.monotonic() + timeout
    while not source.is_complete and time.monotonic() < deadline:
        time.sleep(0.02)
    lines: list[FleetNode] = source.lines()
    lines = [FleetNode(line.node, "no answer yet") if line.verdict == WAITING else line for line in lines]
    return sorted(lines, key=lambda node: node.place)
