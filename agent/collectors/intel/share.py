"""The use of Intel GPUs by the watched process tree: https://docs.kernel.org/gpu/drm-usage-stats.html ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from agent.collectors.intel.card import Card
from agent.datapoint import Datapoint
from agent.host import gpu_metrics
from agent.host.drm import Client, Engine, TreeClients, size

ENGINES: Final = re.compile(r"drm-(engine|cycles)-(render|compute|rcs|ccs)")
RESIDENT: Final = re.compile(r"drm-resident-(vram|local)\d+")


def client(pid: int, fields: dict[str, str]) -> Client:
    """Parse an fdinfo of i915 (busy ns) or xe (busy and all cycles); raise KeyError, ValueError if it is neither."""
    if fields["drm-driver"] not in {"i915", "xe"}:
        raise KeyError("drm-driver")
    sizes = [size(value) for name, value in fields.items() if RESIDENT.fullmatch(name)]
    engines = {}
    for name, value in fields.items():
        if found := ENGINES.fullmatch(name):
            kind, engine = found.groups()
            total = int(fields[f"drm-total-cycles-{engine}"]) if kind == "cycles" else None
            engines[engine] = Engine(
                int(value.split()[0]), total, int(fields.get(f"drm-engine-capacity-{engine}", "1"))
            )
    memory = sum(sizes) if sizes else None
    return Client(pid, fields["drm-pdev"].lower(), int(fields["drm-client-id"]), memory, 0, engines)


class Share(TreeClients):
    """The tree's share of each card."""

    def points(self, at: int, cards: Iterable[Card]) -> Iterator[Datapoint]:
        """Yield the share of each card that the tree uses; utilization from the second reading on."""
        self.read()
        for card in cards:
            memory = [one.memory for one in self.of(card.slot) if one.memory is not None]
            if memory:
                yield gpu_metrics.PROCESS_MEMORY_USED.point(at, sum(memory), card.dims)
            if (share := self.utilization(card.slot)) is not None:
                yield gpu_metrics.PROCESS_UTILIZATION.point(at, share, card.dims)
