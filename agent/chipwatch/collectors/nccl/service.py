"""Finds the RAS services of NCCL by their sockets, asks each, and compares its answers over time."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from chipwatch.collectors.nccl.ras import BEHIND, FAILED, MISSING, Group, Key, RasAnswer, UnreadableAnswer, parse
from chipwatch.contract.errors import os_text
from chipwatch.contract.owner import JobCollectives, Owner, Rank
from chipwatch.host.open_devices import open_files
from chipwatch.host.pace import Backoff
from chipwatch.host.procfs import link, tcp_sockets

LISTENS: Final = b"0A"
"""TCP_LISTEN of include/net/tcp_states.h."""
ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared, not bound


def listeners(proc: Path, ports: Mapping[int, int]) -> Iterator[tuple[int, tuple[str, int], bool]]:
    """
    Yield the sockets on which processes listen: pid, host and port, and whether the agent can connect to it.

    It can if the socket is in its own network namespace. `ports` has the port to look for, by pid. Sockets of other
    users may be hidden.
    """
    here = link("/proc/self/ns/net")
    tables: dict[str, dict[str, tuple[str, int]]] = {}
    for pid, port in ports.items():
        network = link(f"{proc}/{pid}/ns/net")
        if network not in tables:
            tables[network] = dict(_listening(f"{proc}/{pid}/net"))
        if at_port := {target: address for target, address in tables[network].items() if address[1] == port}:
            for target in {target for _, target in open_files(proc, pid)} & at_port.keys():
                yield pid, at_port[target], network == here


def _listening(folder: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield each listening socket of a network namespace: its link in /proc/PID/fd, and its address."""
    for table, fields in tcp_sockets(folder):
        if fields[3] == LISTENS:
            address, _, port = fields[1].partition(b":")  # 32-bit words in the byte order of the machine
            words = b"".join(struct.pack("=I", int(address[n : n + 8], 16)) for n in range(0, len(address), 8))
            host = socket.inet_ntop(socket.AF_INET if table == "tcp" else socket.AF_INET6, words)
            yield f"socket:[{fields[9].decode()}]", (ANY.get(host, host), int(port, 16))


QUESTION: Final = b"set format json\nverbose status\n"
"""Commands to RAS. NCCL before 2.28.7 ignores the format, and answers in text: rasClientEventLoop."""
TIMEOUT: Final = 10.0
"""Seconds for a complete answer; RAS waits 5 s for processes that do not answer."""
CONNECT: Final = 2.0
MAX_BYTES: Final = 1 << 26
"""Most bytes of an answer; 10,000 ranks have 5.4 MB for each communicator of all ranks."""
SHARE: Final = 30
"""Factor: the next question waits this many times the duration of an answer, so the service stays mostly free."""
LASTING: Final = 25.0
"""Seconds for which a rank must be behind or missing to be reported, because ranks go on while RAS asks them."""


def value_of(environ: bytes, name: str) -> str:
    """Return the value of a variable in an environment; "" if it has none."""
    return os.fsdecode((b"\0" + environ).partition(f"\0{name}=".encode())[2].partition(b"\0")[0])


def port_of(environ: bytes, default: int) -> int:
    """Return the port of RAS from the environment of a process; `default` if it has none."""
    number = value_of(environ, "NCCL_RAS_ADDR").rpartition(":")[2]
    return int(number) if number.isdecimal() and len(number) < 6 else default


def start_of(environ: bytes) -> str:
    """Return the start of the paths of a process's dumps, as torch/csrc/distributed/c10d/FlightRecorder.cpp does."""
    start = value_of(environ, "TORCH_FR_DUMP_TEMP_FILE") or value_of(environ, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    return start if start.startswith("/") else ""


class RasService:
    """One RAS service, its last answer, and the state to compare the next one."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.jobs: dict[int, Owner] = {}
        """The processes that listen on this address, by PID, and their jobs."""
        self.due = 0.0
        self.moment = 0.0
        """Time of the last answer (monotonic s)."""
        self.start = 0
        """Time of the first answer (ns since the epoch)."""
        self.facts: JobCollectives | None = None
        self._backoff = Backoff()
        self._launched: dict[str, int] = {}
        self._total = 0.0
        self._since: dict[Key, float] = {}
        """Group of ranks -> time (monotonic s) since which it is behind or missing."""

    def ask(self, clock: Callable[[], float], at: int, every: float) -> None:
        """Ask the service, and take its answer; `at`: time (ns since the epoch), `every`: the usual interval (s)."""
        begun = clock()
        try:
            answer = self._answer()
        except (OSError, ValueError) as problem:
            self.fail(problem, clock())
        else:
            self.take(answer, clock() - begun, clock(), at, every)

    def _answer(self) -> RasAnswer:
        """Return a complete answer; raise OSError or ValueError."""
        answer, deadline = bytearray(), time.monotonic() + TIMEOUT
        with socket.create_connection((self.host, self.port), CONNECT) as connection:
            connection.settimeout(TIMEOUT)
            connection.sendall(QUESTION)
            while data := connection.recv(1 << 16):
                answer += data
                if time.monotonic() > deadline:
                    raise TimeoutError
                if len(answer) > MAX_BYTES:
                    raise UnreadableAnswer(f"the answer has over {MAX_BYTES >> 20} MiB")
        return parse(answer, self.jobs if self.is_shared else ())

    @property
    def is_shared(self) -> bool:
        """True if several jobs listen on this address (SO_REUSEPORT); the kernel then chooses which one answers."""
        return len({owner.key for owner in self.jobs.values()}) > 1

    def fail(self, problem: Exception, now: float) -> None:
        """Record why there is no answer; postpone the next question."""
        self.due = now + self._backoff.fail(now)
        why = f"no answer in {TIMEOUT:g} s" if isinstance(problem, TimeoutError) else os_text(problem)
        self._say(f"NCCL's RAS at {self.host}:{self.port}: {why}")

    def _say(self, problem: str) -> None:
        self.facts = JobCollectives(next(iter(self.jobs.values())), problem=problem)

    def take(self, answer: RasAnswer, took: float, now: float, at: int, every: float) -> None:
        """Compare an answer with earlier ones; `took`: its duration (s), `every`: the usual interval (s)."""
        self._backoff.succeed()
        self.moment, self.start = now, self.start or at
        self._since = {key: self._since.get(key, now) for key in answer.groups}
        self.due = now + max(every / 2 if self._since else every, SHARE * took)
        self._total += sum(max(0, most - self._launched.get(name, most)) for name, most in answer.launched.items())
        self._launched = answer.launched
        owners = {self.jobs[pid].key: self.jobs[pid] for pid in answer.pids or self.jobs}
        if len(owners) > 1:
            self._say(f"{len(owners)} jobs share {self.host}:{self.port}, and the answer does not say whose it is")
            return
        lasting = {key: group for key, group in answer.groups.items() if now - self._since[key] >= LASTING}
        largest = {key[1]: group for key, group in sorted(lasting.items(), key=lambda item: item[1].number)}
        lost, wrong = (largest.get(kind, Group()) for kind in (MISSING, FAILED))
        ranks, count, lag = _first({key: group for key, group in lasting.items() if key[1] == BEHIND}, answer)
        launched = self._total if answer.launched and not self.is_shared else None
        self.facts = JobCollectives(
            next(iter(owners.values())), answer.devices, launched, ranks, count, lag,
            lost.ranks, lost.number, answer.dead, wrong.ranks,
        )  # fmt: skip


def _first(behind: Mapping[Key, Group], answer: RasAnswer) -> tuple[list[Rank], int, str]:
    """
    Return the ranks that others wait for, their number, and a sentence on how far they are behind.

    A rank that is behind in one communicator but ahead in another one only waits for others, so it does not count.
    """
    ahead = {name: answer.ahead.get(name, Group()) for name, *_ in behind}
    waiting = {rank._replace(rank=-1) for group in ahead.values() for rank in group.ranks}
    causes: dict[Rank, tuple[int, Rank, str]] = {}
    for (name, _, operation, value), group in behind.items():
        size = ahead[name].number
        where = f" in a communicator of {size} ranks" if size else ""
        lag = f"{operation} {value} of {answer.most[name, operation]}{where}"
        for rank in group.ranks:
            place = rank._replace(rank=-1) if rank.host else rank
            causes[place] = max(causes.get(place, (-1, rank, "")), (size, rank, lag))
    chosen = [cause for place, cause in causes.items() if place not in waiting] or [*causes.values()]
    unnamed = [group.number for group in behind.values() if group.number > len(group.ranks)]
    return [rank for _, rank, _ in chosen], max(len(chosen), min(unnamed, default=0)), chosen[0][2] if chosen else ""
