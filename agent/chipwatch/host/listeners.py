"""Finds the TCP sockets on which processes listen, also in other network namespaces."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.host.open_devices import open_files
from chipwatch.host.procfs import link, tcp_sockets

LISTENS: Final = b"0A"
"""TCP_LISTEN of include/net/tcp_states.h."""
LITTLE: Final = sys.byteorder == "little"
ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared, not bound


class Listener(NamedTuple):
    """A TCP socket on which a process listens."""

    pid: int
    host: str
    port: int
    is_here: bool
    """True if it is in the agent's own network namespace, so that the agent can connect to it."""


def listeners(proc: Path, ports: Mapping[int, Collection[int]]) -> Iterator[Listener]:
    """Yield the sockets on which processes listen; `ports` has the ports to look for, by pid. Others' may be hidden."""
    here = link("/proc/self/ns/net")
    tables: dict[str, dict[str, tuple[str, int]]] = {}
    for pid, wanted in ports.items():
        network = link(f"{proc}/{pid}/ns/net")
        if network not in tables:
            tables[network] = dict(_listening(f"{proc}/{pid}/net"))
        if at_port := {target: address for target, address in tables[network].items() if address[1] in wanted}:
            for target in {target for _, target in open_files(proc, pid)} & at_port.keys():
                yield Listener(pid, *at_port[target], network == here)


def _listening(folder: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield each listening socket of a network namespace: its link in /proc/PID/fd, and its address."""
    for table, fields in tcp_sockets(folder):
        if fields[3] == LISTENS:
            address, _, port = fields[1].partition(b":")
            raw = bytes.fromhex(address.decode())  # 32-bit words in the byte order of the machine
            words = b"".join(raw[n : n + 4][::-1] if LITTLE else raw[n : n + 4] for n in range(0, len(raw), 4))
            host = socket.inet_ntop(socket.AF_INET if table == "tcp" else socket.AF_INET6, words)
            yield f"socket:[{fields[9].decode()}]", (ANY.get(host, host), int(port, 16))
