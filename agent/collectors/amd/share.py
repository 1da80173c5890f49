"""What the watched process tree uses of AMD GPUs, by fdinfo and by the compute driver (KFD)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from agent.collectors.amd.card import Card
from agent.datapoint import Datapoint
from agent.host import gpu_metrics
from agent.host.drm import Client, Engine, TreeClients, size
from agent.host.process_tree import ProcTree
from agent.host.procfs import text

VRAM: Final = ("drm-resident-vram", "drm-memory-vram")
GTT: Final = ("drm-resident-gtt", "drm-memory-gtt")
"""The newer name first: https://docs.kernel.org/gpu/drm-usage-stats.html ."""
ENGINES: Final[tuple[str, ...]] = ("drm-engine-gfx", "drm-engine-compute")


class Where(Protocol):
    """Where the host's files are."""

    @property
    def proc(self) -> Path:
        """Its /proc."""

    @property
    def sys(self) -> Path:
        """Its /sys."""


def client(pid: int, fields: dict[str, str]) -> Client:
    """Parse an fdinfo; raise KeyError, ValueError where it is no use of an AMD card."""
    if fields["drm-driver"] != "amdgpu":
        raise KeyError("drm-driver")
    vram, gtt = (next((size(fields[name]) for name in names if name in fields), None) for names in (VRAM, GTT))
    engines = {name: Engine(int(fields[name].split()[0])) for name in ENGINES if name in fields}
    return Client(pid, fields["drm-pdev"].lower(), int(fields["drm-client-id"]), vram, gtt or 0, engines)


class Share:
    """The tree's share of each card."""

    def __init__(self, config: Where, tree: ProcTree) -> None:
        """Take the tree."""
        self._sys, self.clients = config.sys, TreeClients(config.proc, tree, client)
        self._slots = _slots(config.sys)

    def read(self, at: int, cards: Iterable[Card]) -> Iterator[Datapoint]:
        """Yield the share of each card that the tree uses; utilization from the second reading on."""
        self.clients.read()
        computing = self._computing(self.clients.pids)
        for card in cards:
            queues = computing.get(card.slot, {})
            used: dict[int, int] = dict.fromkeys(queues, 0)
            for one in self.clients.of(card.slot):
                if one.memory is not None:
                    used[one.pid] = used.get(one.pid, 0) + one.memory + (one.gtt if card.is_apu else 0)
            # fdinfo and KFD may count the same memory: the larger number of each process is nearer the truth.
            total = sum(max(value, queues.get(pid, 0)) for pid, value in used.items())
            if used and (card.total is None or total <= card.total):
                yield gpu_metrics.PROCESS_MEMORY_USED.point(at, total, card.dims)
                if card.total:
                    yield gpu_metrics.PROCESS_MEMORY_UTILIZATION.point(at, 100 * total / card.total, card.dims)
            # Work in KFD's queues is not in fdinfo, whose engine times would read "idle".
            if not queues and (share := self.clients.utilization(card.slot)) is not None:
                yield gpu_metrics.PROCESS_UTILIZATION.point(at, share, card.dims)

    def _computing(self, pids: frozenset[int]) -> dict[str, dict[int, int]]:
        """Return the bytes that KFD counts for each process, by PCI address and pid (of the machine)."""
        found: dict[str, dict[int, int]] = {}
        for pid in pids:
            folder = self._sys / f"class/kfd/kfd/proc/{pid}"
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
