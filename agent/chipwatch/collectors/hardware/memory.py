"""Errors of the memory, from EDAC: Documentation/admin-guide/RAS of Linux."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chipwatch.datapoint import Datapoint, Dimensions, Level, counter
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import LastValues
from chipwatch.host.procfs import number, text

ERRORS: Final = counter("memory.errors", "{error}", "Errors of the memory, all controllers.", dims=("kind",))
OF_DIMM: Final = counter(
    "memory.dimm.errors", "{error}", "Errors of one memory module.", Level.DETAILED, ("controller", "dimm", "kind")
)
METRICS: Final = (ERRORS, OF_DIMM)
KINDS: Final = {"corrected": "ce", "uncorrected": "ue"}


class Memory:
    """The controllers and their modules."""

    def __init__(self, sys: Path, level: Level, kept: LastValues) -> None:
        """Find the controllers under `sys`; an earlier run `kept` their counters."""
        self._controllers = sorted((sys / "devices/system/edac/mc").glob("mc[0-9]*"))
        self._counters, self._kept = Counters(), kept
        self._dimms = [] if level < Level.DETAILED else list(self._find())

    def _find(self) -> Iterator[tuple[Path, Dimensions, Counters]]:
        """Yield the files with the errors of a module, their dimensions and counters."""
        for controller in self._controllers:
            folders = sorted(path for glob in ("dimm[0-9]*", "rank[0-9]*") for path in controller.glob(glob))
            labels = Counter(text(folder / "dimm_label") for folder in folders)
            for folder in folders:
                label = text(folder / "dimm_label")
                counters = Counters(kept=self._kept, device=folder)
                name = label if label and labels[label] == 1 else folder.name
                for kind, short in KINDS.items():
                    dims = Dimensions(controller=controller.name, dimm=name, kind=kind)
                    yield folder / f"dimm_{short}_count", dims, counters

    def __len__(self) -> int:
        return len(self._controllers)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the sums, then the counts of the modules."""
        for kind, short in KINDS.items():
            counts = {path.name: number(path / f"{short}_count") for path in self._controllers}
            if readable := {name: count for name, count in counts.items() if count is not None}:
                yield self._counters.total(ERRORS, at, readable, Dimensions(kind=kind))
        for path, dims, counters in self._dimms:
            if (count := number(path)) is not None:
                yield counters.point(OF_DIMM, at, count, dims)
