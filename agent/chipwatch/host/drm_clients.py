"""Finds how much of a graphics card each process uses, from the fdinfo files of cards that it has open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint
from chipwatch.host.gpu_metrics import PROCESS_MEMORY_USED, PROCESS_MEMORY_UTILIZATION, PROCESS_UTILIZATION
from chipwatch.host.open_devices import open_files
from chipwatch.host.process_tree import ProcTree, Where
from chipwatch.host.procfs import count

if TYPE_CHECKING:
    from chipwatch.host.drm import CardFiles

MOST_MEMORY: Final = 1 << 50
"""A number that no process reaches, whatever the unit: then the value is wrong."""
UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(words: str) -> int:
    """Return the bytes of a text such as `12 KiB`; raise ValueError or KeyError if it is malformed or below 0."""
    value, _, unit = words.partition(" ")
    if (number := count(value)) is None or number >= MOST_MEMORY:
        raise ValueError(words)
    return number * UNITS[unit]


def fdinfo(proc: Path, pids: Iterable[int]) -> Iterator[tuple[int, dict[str, str]]]:
    """
    Yield the pid and the fields of each card's file that the processes have open. Only root sees other users' files.

    https://docs.kernel.org/gpu/drm-usage-stats.html
    """
    for pid in pids:
        for number, file in open_files(proc, pid):
            if file.startswith("/dev/dri/"):
                with suppress(OSError):  # the file was closed in the meantime
                    lines = Path(f"{proc}/{pid}/fdinfo/{number}").read_text(errors="replace").splitlines()
                    yield pid, {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


class Engine(NamedTuple):
    """The use of one kind of engine by a client."""

    busy: int
    """Busy time in ns; in cycles if `total` is known."""
    total: int | None = None
    """All cycles of the engine, busy or not."""
    engines: int = 1
    """Number of engines of this kind."""


class DrmClient(NamedTuple):
    """A DRM client: one use of a card by a process, from fdinfo."""

    pid: int
    slot: str
    """PCI address of the card."""
    number: int
    """The kernel's id of the client."""
    memory: int | None
    """Bytes of the card's own memory; None if it has none."""
    gtt: int
    """Bytes of the machine's memory that an AMD card uses."""
    engines: dict[str, Engine]
    """The engines that run kernels, by kind."""


Parser = Callable[[int, dict[str, str]], DrmClient]
"""Function that makes a client of a pid and its fields; raises KeyError, ValueError or IndexError for other drivers."""


def clients(proc: Path, pids: Iterable[int], parse: Parser) -> dict[tuple[str, int], DrmClient]:
    """Return the clients of processes by PCI address and number, so that one that a child inherited counts once."""
    by_number = {}
    for pid, fields in fdinfo(proc, pids):
        with suppress(KeyError, ValueError, IndexError):
            client = parse(pid, fields)
            by_number[client.slot, client.number] = client
    return by_number


class TreeClients:
    """The use of cards by a process and its descendants: https://docs.kernel.org/gpu/drm-usage-stats.html ."""

    def __init__(self, config: Where, pid: int, parse: Parser) -> None:
        """Take the first process of the tree, `pid`; raise ProcessLookupError if there is none."""
        self._proc, self._tree = config.proc, ProcTree(config, pid, detailed=False)
        self._parse, self.clock = parse, time.monotonic_ns
        self.pids: frozenset[int] = frozenset()
        self._clients: dict[tuple[str, int], DrmClient] = {}
        self._before: dict[tuple[str, int], DrmClient] = {}
        self._read_at = self._passed = 0

    def read(self) -> None:
        """Read all clients."""
        self.pids = self._tree.pids() if self._tree.read(rescan=False) else frozenset()
        current = clients(self._proc, sorted(self.pids), self._parse)
        now = self.clock()
        self._before, self._clients = self._clients, current
        self._read_at, self._passed = now, now - self._read_at

    def points(self, at: int, cards: Iterable[CardFiles]) -> Iterator[Datapoint]:
        """Read all clients, and yield the tree's share of each card; of the utilization from the second reading on."""
        self.read()
        for card in cards:
            queues = self.queues(card.slot)
            used: dict[int, int] = dict.fromkeys(queues, 0)
            for client in self.on_card(card.slot):
                if client.memory is not None:
                    used[client.pid] = used.get(client.pid, 0) + client.memory + (client.gtt if card.is_apu else 0)
            # fdinfo and a compute driver may count the same memory, so take the larger number for each process.
            total = sum(max(value, queues.get(pid, 0)) for pid, value in used.items())
            if used and (card.total is None or total <= card.total):
                yield PROCESS_MEMORY_USED.point(at, total, card.dims)
                if card.total:
                    yield PROCESS_MEMORY_UTILIZATION.point(at, 100 * total / card.total, card.dims)
            # The engine times of fdinfo leave out work in the queues, so a share of 0 would be false.
            if not queues and (share := self.utilization(card.slot)) is not None:
                yield PROCESS_UTILIZATION.point(at, share, card.dims)

    def queues(self, slot: str) -> Mapping[int, int]:
        """Return the bytes that a compute driver counts for the tree's processes on a card, by pid."""
        del slot
        return {}

    def on_card(self, slot: str) -> list[DrmClient]:
        """Return the clients of a card."""
        return [client for client in self._clients.values() if client.slot == slot]

    def utilization(self, slot: str) -> float | None:
        """Return the share of time (%) for which the busiest kind of engine worked for the tree; None if unknown."""
        shares: dict[str, float] = {}
        for client in self.on_card(slot):
            for name, share in busy_shares(client, self._before.get((slot, client.number)), self._passed).items():
                shares[name] = shares.get(name, 0.0) + share
        return min(100.0, 100 * max(shares.values())) if shares else None


def busy_shares(client: DrmClient, before: DrmClient | None, passed: int) -> dict[str, float]:
    """Return the share (0 to 1) of the `passed` ns for which a client used each kind of engine; {} if unknown."""
    shares = {}
    for name, engine in client.engines.items():
        then = before.engines.get(name) if before else None
        if then is None or engine.busy < then.busy:  # a new client, or one with the same number
            continue
        total = passed
        if engine.total is not None:
            total = engine.total - (engine.total if then.total is None else then.total)
        if total > 0 and engine.engines > 0:
            shares[name] = (engine.busy - then.busy) / total / engine.engines
    return shares
