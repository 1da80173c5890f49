"""Measures the use of AMD GPUs by processes, from fdinfo and the compute driver (KFD)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from chipwatch.host.drm_clients import DrmClient, Engine, TreeClients, size
from chipwatch.host.process_tree import Where
from chipwatch.host.procfs import number, text

VRAM: Final = ("drm-resident-vram", "drm-memory-vram")
GTT: Final = ("drm-resident-gtt", "drm-memory-gtt")
"""Names of a field, the newer one first: https://docs.kernel.org/gpu/drm-usage-stats.html ."""
MAX_PROCESSES: Final = 4096
"""Most processes of KFD that are read."""
GpuKey = TypeVar("GpuKey", str, "KfdNode")
ENGINES: Final[tuple[str, ...]] = ("drm-engine-gfx", "drm-engine-compute")


def parse_client(pid: int, fields: dict[str, str]) -> DrmClient:
    """Parse an fdinfo; raise KeyError or ValueError if it does not belong to amdgpu."""
    if fields["drm-driver"] != "amdgpu":
        raise KeyError("drm-driver")
    vram, gtt = (next((size(fields[name]) for name in names if name in fields), None) for names in (VRAM, GTT))
    engines = {name: Engine(int(fields[name].split()[0])) for name in ENGINES if name in fields}
    return DrmClient(pid, fields["drm-pdev"].lower(), int(fields["drm-client-id"]), vram, gtt or 0, engines)


class AmdShare(TreeClients):
    """The share of the watched process tree in each card."""

    def __init__(self, config: Where, pid: int) -> None:
        super().__init__(config, pid, parse_client)
        self._sys, self._slots = config.sys, {n: node.slot for n, node in find_nodes(config.sys).items()}
        self._used_by: Mapping[str, Mapping[int, int]] = {}

    def read(self) -> None:
        super().read()
        self._used_by = computing(self._sys, self._slots, self.pids)

    def queues(self, slot: str) -> Mapping[int, int]:
        return self._used_by.get(slot, {})


def computing(sys: Path, gpus: Mapping[str, GpuKey], pids: Iterable[int] | None = None) -> dict[GpuKey, dict[int, int]]:
    """
    Return GPU -> the host's PID -> bytes that KFD counts for the process; `pids`: None for all processes.

    `gpus`: number of a KFD device -> its GPU: a PCI address, or a KfdNode to keep partitions apart.
    """
    sizes: dict[GpuKey, dict[int, int]] = {}
    processes = sys / "class/kfd/kfd/proc"
    if pids is None:
        pids = [int(path.name) for path in islice(processes.glob("[0-9]*"), MAX_PROCESSES) if path.name.isdecimal()]
    for pid in pids:
        folder = processes / str(pid)
        for node, gpu in gpus.items() if folder.is_dir() else ():
            if (used := number(folder / f"vram_{node}")) is not None:
                sizes.setdefault(gpu, {})[pid] = sizes.get(gpu, {}).get(pid, 0) + used
    return {gpu: sizes_at for gpu, sizes_at in sizes.items() if any(sizes_at.values())}


def occupied(sys: Path, gpus: Mapping[str, GpuKey], gpu: GpuKey, pids: Iterable[int]) -> dict[int, int]:
    """
    Return PID -> compute units of `gpu` that the process uses now; {} on older kernels and some cards.

    For each answer the kernel reads registers of the card.
    https://git.kernel.org/torvalds/c/f2fa07b39fafb2a5f49c71a504862c5efa57d03e
    """
    units: dict[int, int] = {}
    for pid in pids:
        for node in (node for node, other in gpus.items() if other == gpu):
            if (used := number(sys / f"class/kfd/kfd/proc/{pid}/stats_{node}/cu_occupancy")) is not None:
                units[pid] = units.get(pid, 0) + used
    return units


class KfdNode(NamedTuple):
    """A device of KFD: a card, or a partition of one."""

    slot: str
    """Its PCI address."""
    partition: int
    """Its number in the card, bits 28 to 31 of location_id: kfd_topology_add_device of Linux 6.6 and later."""
    name: str
    """Name of the device that the kernel created for the partition, such as amdgpu_xcp_1."""


def find_nodes(sys: Path) -> dict[str, KfdNode]:
    """Return number -> device of KFD."""
    nodes = {}
    for node in sorted((sys / "class/kfd/kfd/topology/nodes").glob("*"), key=lambda path: (len(path.name), path)):
        gpu_id = number(node / "gpu_id")
        facts = dict(re.findall(r"^(\w+) (\d+)$", text(node / "properties"), re.MULTILINE))
        if gpu_id and "location_id" in facts:
            location = int(facts["location_id"])
            bus, device, function = location >> 8 & 255, location >> 3 & 31, location & 7
            slot = f"{int(facts.get('domain', 0)):04x}:{bus:02x}:{device:02x}.{function}"
            render = sys / f"class/drm/renderD{facts.get('drm_render_minor', '')}/device"
            nodes[str(gpu_id)] = KfdNode(slot, location >> 28, render.resolve().name)
    return nodes
