"""What the watched process tree uses of AMD GPUs: fdinfo of its files, and the account of the compute driver (KFD)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from agent.collectors.amd.card import Card
from agent.datapoint import Datapoint
from agent.host import gpu_metrics
from agent.host.drm import fdinfo, size, text
from agent.host.process_tree import ProcTree

VRAM: Final = ("drm-resident-vram", "drm-memory-vram")
GTT: Final = ("drm-resident-gtt", "drm-memory-gtt")
"""The newer name first: https://docs.kernel.org/gpu/drm-usage-stats.html ."""
ENGINES: Final[tuple[str, ...]] = ("drm-engine-gfx", "drm-engine-compute")


class Where(Protocol):
    """Where the host's trees are, and whom to watch."""

    @property
    def proc(self) -> Path:
        """Its /proc."""

    @property
    def sys(self) -> Path:
        """Its /sys."""


class Client:
    """One use of a card: what fdinfo tells of it."""

    __slots__ = ("busy", "gtt", "key", "pid", "slot", "vram")

    def __init__(self, pid: int, fields: dict[str, str]) -> None:
        """Take what was read; raise KeyError, ValueError where it is no use of a card of AMD's."""
        if fields["drm-driver"] != "amdgpu":
            raise KeyError("drm-driver")
        self.pid, self.slot = pid, fields["drm-pdev"].lower()
        self.key = self.slot, int(fields["drm-client-id"])
        self.vram, self.gtt = (
            next((size(fields[name]) for name in names if name in fields), None) for names in (VRAM, GTT)
        )
        self.busy = {name: int(fields[name].split()[0]) for name in ENGINES if name in fields}


def clients(proc: Path, pids: Iterable[int]) -> Iterator[Client]:
    """Yield what some processes tell of cards of AMD's."""
    for pid, fields in fdinfo(proc, pids):
        with suppress(KeyError, ValueError, IndexError):  # another driver's
            yield Client(pid, fields)


class Share:
    """The tree's share of each card; a use that several processes inherited counts once."""

    def __init__(self, config: Where, tree: ProcTree) -> None:
        """Take the tree."""
        self._config, self._tree, self._clock = config, tree, time.monotonic_ns
        self._busy: dict[tuple[str, int], dict[str, int]] = {}
        self._then = 0
        self._slots = _slots(config.sys)

    def read(self, at: int, cards: Iterable[Card]) -> Iterator[Datapoint]:
        """Yield the share of each card that the tree uses; utilization from the second look on."""
        pids = self._tree.pids() if self._tree.read(rescan=False) else frozenset()
        found = {client.key: client for client in clients(self._config.proc, sorted(pids))}
        now, then, before = self._clock(), self._then, self._busy
        self._then, self._busy = now, {key: client.busy for key, client in found.items()}
        computing = self._computing(pids)
        for card in cards:
            mine = [client for client in found.values() if client.slot == card.slot]
            queues = computing.get(card.slot, {})
            used: dict[int, int] = dict.fromkeys(queues, 0)
            for client in mine:
                if client.vram is not None:
                    gtt = client.gtt or 0 if card.is_apu else 0
                    used[client.pid] = used.get(client.pid, 0) + client.vram + gtt
            # Both accounts may hold the same memory: the larger one of each process is the truer one.
            total = sum(max(value, queues.get(pid, 0)) for pid, value in used.items())
            if used and (card.total is None or total <= card.total):
                yield gpu_metrics.PROCESS_MEMORY_USED.point(at, total, card.teller.dims)
                if card.total:
                    yield gpu_metrics.PROCESS_MEMORY_UTILIZATION.point(at, 100 * total / card.total, card.teller.dims)
            # What runs in queues of the compute driver passes fdinfo by: its engine times would say "idle".
            if not queues and then and (share := _busiest(mine, before, now - then)) is not None:
                yield gpu_metrics.PROCESS_UTILIZATION.point(at, share, card.teller.dims)

    def _computing(self, pids: frozenset[int]) -> dict[str, dict[int, int]]:
        """Return the bytes that each process has by KFD's account, by PCI address; its pids are the machine's."""
        found: dict[str, dict[int, int]] = {}
        for pid in pids:
            folder = self._config.sys / f"class/kfd/kfd/proc/{pid}"
            for number, slot in self._slots.items() if folder.is_dir() else ():
                value = text(folder / f"vram_{number}")
                if value.isdecimal():
                    found.setdefault(slot, {})[pid] = found.get(slot, {}).get(pid, 0) + int(value)
        return {slot: used for slot, used in found.items() if any(used.values())} if found else found


def _slots(sys: Path) -> dict[str, str]:
    """Return the PCI address of each of KFD's devices, by its number."""
    found = {}
    for node in (sys / "class/kfd/kfd/topology/nodes").glob("*"):
        number = text(node / "gpu_id")
        facts = dict(re.findall(r"^(\w+) (\d+)$", text(node / "properties"), re.MULTILINE))
        if number not in ("", "0") and (place := facts.get("location_id")):
            where = int(place)
            found[number] = (
                f"{int(facts.get('domain', 0)):04x}:{where >> 8 & 255:02x}:{where >> 3 & 31:02x}.{where & 7}"
            )
    return found


def _busiest(mine: Iterable[Client], before: dict[tuple[str, int], dict[str, int]], passed: int) -> float | None:
    """Return the share of the time that the busier of the engines for kernels worked for us, or None."""
    sums: dict[str, int] = {}
    for client in mine:
        if last := before.get(client.key):
            for name, busy in client.busy.items():
                if name in last:  # a counter that went back is another use, and only a base
                    sums[name] = sums.get(name, 0) + max(0, busy - last[name])
    return min(100.0, 100 * max(sums.values()) / passed) if sums and passed > 0 else None
