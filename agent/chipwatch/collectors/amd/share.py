"""The use of AMD GPUs by the watched process tree, from fdinfo and the compute driver (KFD)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from chipwatch.collectors.amd.card import AmdCard
from chipwatch.contract.datapoint import Datapoint
from chipwatch.host import gpu_metrics
from chipwatch.host.drm import DrmClient, Engine, TreeClients, size
from chipwatch.host.process_tree import Where
from chipwatch.host.procfs import text

VRAM: Final = ("drm-resident-vram", "drm-memory-vram")
GTT: Final = ("drm-resident-gtt", "drm-memory-gtt")
"""The newer name first: https://docs.kernel.org/gpu/drm-usage-stats.html ."""
MAX_PROCESSES: Final = 4096
"""Processes of KFD that are read."""
ENGINES: Final[tuple[str, ...]] = ("drm-engine-gfx", "drm-engine-compute")


def parse_client(pid: int, fields: dict[str, str]) -> DrmClient:
    """Parse an fdinfo; raise KeyError, ValueError if it is not one of amdgpu."""
    if fields["drm-driver"] != "amdgpu":
        raise KeyError("drm-driver")
    vram, gtt = (next((size(fields[name]) for name in names if name in fields), None) for names in (VRAM, GTT))
    engines = {name: Engine(int(fields[name].split()[0])) for name in ENGINES if name in fields}
    return DrmClient(pid, fields["drm-pdev"].lower(), int(fields["drm-client-id"]), vram, gtt or 0, engines)


class AmdShare(TreeClients):
    """The tree's share of each card."""

    def __init__(self, config: Where, pid: int) -> None:
        super().__init__(config, pid, parse_client)
        self._sys, self._slots = config.sys, find_slots(config.sys)

    def points(self, at: int, cards: Iterable[AmdCard]) -> Iterator[Datapoint]:
        self.read()
        used_by = computing(self._sys, self._slots, self.pids)
        for card in cards:
            queues = used_by.get(card.slot, {})
            used: dict[int, int] = dict.fromkeys(queues, 0)
            for client in self.on_card(card.slot):
                if client.memory is not None:
                    used[client.pid] = used.get(client.pid, 0) + client.memory + (client.gtt if card.is_apu else 0)
            # fdinfo and KFD may count the same memory: take the larger number of each process.
            total = sum(max(value, queues.get(pid, 0)) for pid, value in used.items())
            if used and (card.total is None or total <= card.total):
                yield gpu_metrics.PROCESS_MEMORY_USED.point(at, total, card.dims)
                if card.total:
                    yield gpu_metrics.PROCESS_MEMORY_UTILIZATION.point(at, 100 * total / card.total, card.dims)
            # The engine times of fdinfo do not include work in KFD's queues: a share of 0 would be false.
            if not queues and (share := self.utilization(card.slot)) is not None:
                yield gpu_metrics.PROCESS_UTILIZATION.point(at, share, card.dims)


def computing(sys: Path, slots: Mapping[str, str], pids: Iterable[int] | None = None) -> dict[str, dict[int, int]]:
    """Return the bytes that KFD counts for each process, by PCI address and the host's pid; None: of all processes."""
    sizes: dict[str, dict[int, int]] = {}
    processes = sys / "class/kfd/kfd/proc"
    if pids is None:
        pids = [int(path.name) for path in islice(processes.glob("[0-9]*"), MAX_PROCESSES) if path.name.isdecimal()]
    for pid in pids:
        folder = processes / str(pid)
        for number, slot in slots.items() if folder.is_dir() else ():
            value = text(folder / f"vram_{number}")
            if value.isdecimal():
                sizes.setdefault(slot, {})[pid] = sizes.get(slot, {}).get(pid, 0) + int(value)
    return {slot: used for slot, used in sizes.items() if any(used.values())}


def occupied(sys: Path, slots: Mapping[str, str], slot: str, pids: Iterable[int]) -> dict[int, int]:
    """
    Return the compute units of a card that each process uses now, by KFD; {} on older kernels and some cards.

    Parts of a card that has several are added. The kernel reads the registers of the card for each answer.
    https://git.kernel.org/torvalds/c/f2fa07b39fafb2a5f49c71a504862c5efa57d03e
    """
    units: dict[int, int] = {}
    for pid in pids:
        for number in (number for number, place in slots.items() if place == slot):
            value = text(sys / f"class/kfd/kfd/proc/{pid}/stats_{number}/cu_occupancy")
            if value.isdecimal():
                units[pid] = units.get(pid, 0) + int(value)
    return units


def find_slots(sys: Path) -> dict[str, str]:
    """Return the PCI address of each of KFD's devices, by its number."""
    slots = {}
    for node in (sys / "class/kfd/kfd/topology/nodes").glob("*"):
        number = text(node / "gpu_id")
        facts = dict(re.findall(r"^(\w+) (\d+)$", text(node / "properties"), re.MULTILINE))
        if number not in ("", "0") and "location_id" in facts:
            location = int(facts["location_id"])
            bus, device, function = location >> 8 & 255, location >> 3 & 31, location & 7
            slots[number] = f"{int(facts.get('domain', 0)):04x}:{bus:02x}:{device:02x}.{function}"
    return slots
