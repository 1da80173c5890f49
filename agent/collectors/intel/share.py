"""What the watched process tree uses of Intel GPUs, by fdinfo: https://docs.kernel.org/gpu/drm-usage-stats.html ."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from agent.collectors.intel.card import Card
from agent.datapoint import Datapoint
from agent.host import gpu_metrics
from agent.host.drm import fdinfo, size
from agent.host.process_tree import ProcTree

KERNELS: Final = re.compile(r"drm-(engine|cycles)-(render|compute|rcs|ccs)")
RESIDENT: Final = re.compile(r"drm-resident-(vram|local)\d+")


class Client(NamedTuple):
    """One use of a card."""

    slot: str
    number: int
    memory: int | None
    """Bytes; None on a chip without memory of its own."""
    engines: dict[str, tuple[int, int | None, int]]
    """By engine: busy ns and None (i915), or busy cycles and all cycles (xe); and how many such engines there are."""


def client(fields: dict[str, str]) -> Client:
    """Parse an fdinfo; raise KeyError, ValueError where it is no use of a card of Intel's."""
    if fields["drm-driver"] not in {"i915", "xe"}:
        raise KeyError("drm-driver")
    sizes = [size(value) for name, value in fields.items() if RESIDENT.fullmatch(name)]
    engines = {}
    for name, value in fields.items():
        if found := KERNELS.fullmatch(name):
            kind, engine = found.groups()
            whole = int(fields[f"drm-total-cycles-{engine}"]) if kind == "cycles" else None
            engines[engine] = int(value.split()[0]), whole, int(fields.get(f"drm-engine-capacity-{engine}", "1"))
    memory = sum(sizes) if sizes else None
    return Client(fields["drm-pdev"].lower(), int(fields["drm-client-id"]), memory, engines)


def clients(proc: Path, pids: Iterable[int]) -> Iterator[Client]:
    """Yield what some processes tell of cards of Intel's."""
    for _, fields in fdinfo(proc, pids):
        with suppress(KeyError, ValueError, IndexError):  # another driver's
            yield client(fields)


class Share:
    """The tree's share of each card; a use that several processes inherited counts once."""

    def __init__(self, proc: Path, tree: ProcTree) -> None:
        """Take the tree."""
        self._proc, self._tree, self._clock = proc, tree, time.monotonic_ns
        self._before: dict[tuple[str, int], Client] = {}
        self._then = 0

    def read(self, at: int, cards: Iterable[Card]) -> Iterator[Datapoint]:
        """Yield the share of each card that the tree uses; utilization from the second look on."""
        pids = self._tree.pids() if self._tree.read(rescan=False) else frozenset()
        found = {(one.slot, one.number): one for one in clients(self._proc, sorted(pids))}
        now, then, before = self._clock(), self._then, self._before
        self._then, self._before = now, found
        for card in cards:
            mine = [(one, before.get(key)) for key, one in found.items() if one.slot == card.slot]
            memory = [one.memory for one, _ in mine if one.memory is not None]
            if memory:
                yield gpu_metrics.PROCESS_MEMORY_USED.point(at, sum(memory), card.dims)
            shares: dict[str, float] = {}
            for one, last in mine:
                for engine, share in _shares(one, last, now - then):
                    shares[engine] = shares.get(engine, 0) + share
            if shares:
                yield gpu_metrics.PROCESS_UTILIZATION.point(at, min(100.0, 100 * max(shares.values())), card.dims)


def _shares(one: Client, last: Client | None, passed: int) -> Iterator[tuple[str, float]]:
    """Yield what part of the time each engine for kernels worked for one use; nothing where a counter went back."""
    for engine, (busy, whole, engines) in one.engines.items():
        busy_then, whole_then, _ = last.engines.get(engine, (busy + 1, None, 1)) if last else (busy + 1, None, 1)
        time = passed if whole is None else whole - (whole_then if whole_then is not None else whole)
        if busy >= busy_then and time > 0 and engines > 0:
            yield engine, (busy - busy_then) / time / engines
