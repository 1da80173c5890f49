"""
A fake RAS service of NCCL: answers as versions 2.24 to 2.30 do.

The forms are in src/ras/client_support.cc of github.com/NVIDIA/nccl at the tags v2.24.3-1, v2.26.2-1, v2.28.3-1,
v2.28.7-1 and v2.29.7-1. JSON of 2.28.7 and 2.28.9 lacks a comma after `nvml_dev` of a missing rank.
"""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

OPERATIONS = "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"


@dataclass
class FakeRank:
    """One rank as RAS sees it; `state`: ok, unresponsive, dead, gone (answers, and has left), init or finalize."""

    rank: int
    host: str = "172.16.64.210"
    pid: int = 0
    gpu: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    state: str = "ok"
    error: int = 0

    @property
    def is_missing(self):
        return self.state in ("unresponsive", "dead", "gone")


def ranks(number, per_node=8, launched=6650, **more):
    """Return healthy ranks; `launched` of AllReduce."""
    return [
        FakeRank(n, f"172.16.{64 + n // per_node // 200}.{n // per_node % 200}", 400_000 + n, n % per_node,
                 {"AllReduce": launched}, **more)
        for n in range(number)
    ]  # fmt: skip


def render(version: str, communicators: Sequence[Sequence[FakeRank]]) -> str:
    """Return the report of a version."""
    number = tuple(map(int, version.split(".")))
    return "".join(_json(version, number, communicators) if number >= (2, 28, 7) else _as_text(version, communicators))


def _json(version, number, communicators):
    yield f'{{\n  "nccl_version": "{version}",\n  "cuda_runtime_version": 13000,\n  "cuda_driver_version": 13000,\n'
    yield f'  "timestamp": "2026-11-19 13:06:53",\n  "communicators_count": {len(communicators)},\n'
    yield '  "communicators": [\n'
    for n, members in enumerate(communicators):
        present, missing = [r for r in members if not r.is_missing], [r for r in members if r.is_missing]
        yield "" if not n else ",\n"
        yield f'    {{\n      "hash": "0x{0xAE94423C + n:x}",\n      "secondary_hash": "0xb7e7:0xb8{n:x}",\n'
        yield f'      "size": {len(members)},\n      "ranks_count": {len(present)},\n'
        yield f'      "missing_ranks_count": {len(missing)},\n      "ranks": [\n'
        for k, one in enumerate(present):
            yield "" if not k else ",\n"
            yield "        {\n" + _who(one) + ",\n"
            ends = "true" if one.state == "finalize" else "false"
            yield f'          "status": {{\n            "init_state": {7 if one.state == "init" else 0},\n'
            yield f'            "async_error": {one.error},\n            "finalize_called": {ends},\n'
            yield '            "destroy_flag": false,\n            "abort_flag": false\n          },\n'
            counts = ",\n".join(f'            "{op}": {one.counts.get(op, 0)}' for op in OPERATIONS)
            yield f'          "collective_counts": {{\n{counts}\n          }}\n        }}'
        yield '\n      ],\n      "missing_ranks": [\n'
        for k, one in enumerate(missing):
            yield "" if not k else ",\n"
            yield "        {\n" + _who(one) + ("\n" if number < (2, 29) else ",\n")
            unresponsive, dead = (str(is_so).lower() for is_so in (one.state != "gone", one.state == "dead"))
            yield f'          "status": {{\n            "unresponsive": {unresponsive},\n'
            yield f'            "considered_dead": {dead}\n          }}\n        }}'
        yield "\n      ]\n    }"
    yield '\n  ],\n  "ras": {\n    "collection_time_sec": 0.004,\n    "timeouts_count": 0\n  }\n}\n'


def _who(one):
    return (
        f'          "rank": {one.rank},\n          "host": "{one.host}",\n          "pid": {one.pid},\n'
        f'          "cuda_dev": {one.gpu},\n          "nvml_dev": {one.gpu}'
    )


def _as_text(version, communicators):
    minor = int(version.split(".")[1])
    everybody = {(one.host, one.pid): one for members in communicators for one in members}.values()
    nodes = {one.host for one in everybody}
    yield f"NCCL version {version} compiled with CUDA 12.8\nCUDA runtime version 12080, driver version 12080\n\n"
    yield "Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n"
    yield "(total)   per node  per process    (total)  (total)\n"
    each = len(everybody) // max(1, len(nodes))
    yield f"{len(nodes):7d}  {each:9d}  {1:11d}  {len(everybody):9d}  {len(everybody):7d}\n"
    yield "\nCommunicators... (0.00s)\n=============\n\n"
    yield "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    yield "    #  in group  per comm  per node  per comm  in group\n"
    yield from (_row(n, members) for n, members in enumerate(communicators))
    yield "\nErrors\n======\n\n"
    yield from _processes(everybody)
    for n, members in enumerate(communicators):
        yield from _errors(f"#{n}-0 ({0xCF264AF53EDBE986 + n:016x})", members, minor)
    yield "Warnings\n========\n\n"
    for n, members in enumerate(communicators):
        if _differ(members):
            yield f"#{n}-0 ({0xCF264AF53EDBE986 + n:016x}) MISMATCH\n"
            yield from _mismatch(members, minor)
            yield "\n"


def _row(n, members):
    states = {one.state for one in members}
    status = "FINALIZE" if "finalize" in states else "INIT" if "init" in states else "RUNNING"
    errors = "INCOMPLETE" if states & {"unresponsive", "dead"} else "MISMATCH" if _differ(members) else "OK"
    hosts = Counter(one.host for one in members).values()
    per_node = f"{min(hosts)}-{max(hosts)}" if min(hosts) < max(hosts) else str(max(hosts))
    numbers = f"{n:5d}  {1:8d}  {len(hosts):8d}  {per_node:>8}  {len(members):8d}  {len(members):8d}"
    return f"{numbers}  {status:>8}  {errors:>6}\n"


def _processes(everybody):
    for word, about in (("unresponsive", "INCOMPLETE"), ("dead", "DEAD")):
        lost = [one for one in everybody if one.state == word]
        if not lost:
            continue
        plural = "es" if len(lost) > 1 else ""
        yield f"{about}\n"
        if word == "dead":
            are = "es are" if plural else " is"
            yield f"  {len(lost)} job process{are} considered dead (unreachable via the RAS network)\n"
        else:
            yield f"  Missing communicator data from {len(lost)} job process{plural}\n"
        for one in lost if len(lost) <= 10 else ():
            yield f"  Process {one.pid} on node {one.host} managing GPU {one.gpu}\n"
        yield "\n"


def _errors(name, members, minor):
    lost = [one for one in members if one.state in ("unresponsive", "dead")]
    if lost:
        s = "s" if len(lost) > 1 else ""
        yield f"{name} INCOMPLETE\n  Missing communicator data from {len(lost)} rank{s}\n"
        if minor < 26 and len(lost) <= 10:
            yield f"  The missing rank{s}: {','.join(str(one.rank) for one in lost)}\n"
        for one in lost if minor >= 26 and len(lost) <= 10 else ():
            yield f"  Rank {one.rank} -- {_place(one)}\n"
        yield "\n"
    if wrong := [one for one in members if one.error]:
        s = "s" if len(wrong) > 1 else ""
        yield f"{name} ERROR\n  Asynchronous error{s} on {len(wrong)} rank{s}\n"
        for one in wrong:
            yield f"  Rank {one.rank} reported System error -- {_place(one)}\n"
        yield "\n"


def _mismatch(members, minor):
    words = {"ok": "RUNNING", "init": "INIT", "finalize": "FINALIZE", "gone": "NOCOMM" if minor >= 26 else "UNKNOWN"}
    if len({words.get(one.state) for one in members} - {None}) > 1:
        yield "  Communicator ranks have different status\n"
        yield from _grouped(members, lambda one: words[one.state], "have status {}", "has status {}")
    present = [one for one in members if not one.is_missing]
    for operation in OPERATIONS if minor >= 26 else ("collective",):

        def launched(one, operation=operation):
            return one.counts.get(operation, 0) if minor >= 26 else sum(one.counts.values())

        if len({launched(one) for one in present}) > 1:
            yield f"  Communicator ranks have different {operation} operation counts\n"
            words = "have launched up to operation {}", "has launched up to operation {}"
            yield from _grouped(present, launched, *words)


def _differ(members):
    present = [one for one in members if not one.is_missing]
    return (
        len({str(sorted(one.counts.items())) for one in present}) > 1
        or len({one.state for one in members} - {"unresponsive", "dead"}) > 1
    )


def _place(one):
    return f"GPU {one.gpu} managed by process {one.pid} on node {one.host}"


def _grouped(members: Iterable[FakeRank], key: Callable[[FakeRank], object], many: str, single: str):
    """Yield the groups of ranks, the largest first; the members of small ones by name."""
    groups: dict[object, list[FakeRank]] = {}
    for one in members:
        groups.setdefault(key(one), []).append(one)
    total = sum(map(len, groups.values()))
    for value, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        if len(group) > 1:
            word = many.format(value) if value != 0 else "have not launched any operations"
            yield f"  {len(group)} ranks {word}\n"
            for one in group if len(group) <= min(10, total * 0.25) else ():
                yield f"  Rank {one.rank} -- {_place(one)}\n"
        else:
            word = single.format(value) if value != 0 else "has not launched any operations"
            yield f"  Rank {group[0].rank} {word} -- {_place(group[0])}\n"


class FakeRas:
    """A RAS service on loopback: `answer()` returns the report, or bytes to send as they are."""

    def __init__(self, answer, *, has_json=True, port=0, stream=None):
        self.answer, self.has_json, self.stream = answer, has_json, stream
        self.asked = 0
        self.open = self.most_open = 0
        self.socket = socket.create_server(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        for _ in count():
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        self.asked += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            with connection, contextlib.suppress(OSError):
                self._speak(connection)
        finally:
            self.open -= 1

    def _speak(self, connection):
        lines = connection.makefile("rb")
        while line := lines.readline(1000).decode().strip().lower():
            if line.startswith("set format "):
                connection.sendall(b"OK\n" if self.has_json else f"ERROR: Unknown command {line}\n".encode())
            elif line.startswith("timeout "):
                connection.sendall(b"OK\n")
            elif line in ("status", "verbose status"):
                if self.stream:
                    self.stream(connection)
                else:
                    answer = self.answer()
                    connection.sendall(answer if isinstance(answer, bytes) else answer.encode())
                return
            else:
                connection.sendall(f"ERROR: Unknown command {line}\n".encode())

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
