"""Health of the host's hardware: sensors, throttling and energy of the CPUs, errors of memory and PCI Express."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.collector import Collector
from chipwatch.collectors.hardware import pcie, processor, sensors
from chipwatch.datapoint import Datapoint, Dimensions, Level, counter
from chipwatch.errors import Unavailable
from chipwatch.host.counters import Counters
from chipwatch.host.pace import Clock, Pace
from chipwatch.host.procfs import boot_time, number, text

MEMORY_ERRORS: Final = counter("memory.errors", "{error}", "Errors of the memory, all controllers.", dims=("kind",))
DIMM_ERRORS: Final = counter(
    "memory.dimm.errors", "{error}", "Errors of one memory module.", Level.DETAILED, ("controller", "dimm", "kind")
)
MEMORY_METRICS: Final = (MEMORY_ERRORS, DIMM_ERRORS)
ERROR_FILES: Final = {"corrected": "ce", "uncorrected": "ue"}


class Memory:
    """Errors of the memory controllers and their modules, from EDAC: Documentation/admin-guide/RAS of Linux."""

    def __init__(self, sys: Path, level: Level, start_time: int | None) -> None:
        """Find the controllers under `sys`; their counters were zero at `start_time`."""
        self._controllers = sorted((sys / "devices/system/edac/mc").glob("mc[0-9]*"))
        self._counters = Counters(start_time)
        self._dimms = [] if level < Level.DETAILED else list(self._find())

    def _find(self) -> Iterator[tuple[Path, Dimensions]]:
        """Yield the files with the errors of a module, and their dimensions."""
        for controller in self._controllers:
            folders = sorted(path for glob in ("dimm[0-9]*", "rank[0-9]*") for path in controller.glob(glob))
            labels = Counter(text(folder / "dimm_label") for folder in folders)
            for folder in folders:
                label = text(folder / "dimm_label")
                name = label if label and labels[label] == 1 else folder.name
                for kind, short in ERROR_FILES.items():
                    dims = Dimensions(controller=controller.name, dimm=name, kind=kind)
                    yield folder / f"dimm_{short}_count", dims

    def __len__(self) -> int:
        return len(self._controllers)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the sums, then the counts of the modules."""
        for kind, short in ERROR_FILES.items():
            counts = {path.name: number(path / f"{short}_count") for path in self._controllers}
            if readable := {name: count for name, count in counts.items() if count is not None}:
                yield self._counters.total(MEMORY_ERRORS, at, readable, Dimensions(kind=kind))
        for path, dims in self._dimms:
            if (count := number(path)) is not None:
                yield self._counters.point(DIMM_ERRORS, at, count, dims)


class HardwareCollector(Collector):
    """Reads sysfs, at a separate interval; some sensors answer slowly."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The options of [collectors.hardware]."""

        every: float = 15.0
        """Seconds between two readings, at least."""
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")

    metrics = (*sensors.METRICS, *processor.METRICS, *MEMORY_METRICS, *pcie.METRICS)
    level: Level = Level.ALL

    def __init__(self, config: Config, clock: Clock = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._pace = Pace(config.every, clock)
        self._parts: dict[str, _Part] = {}

    def open(self) -> None:
        if sys.platform != "linux":
            raise Unavailable("the hardware's health is read on Linux only")
        folder, boot = self._config.sys, boot_time(self._config.proc)
        parts: dict[str, _Part] = {
            "sensor": sensors.Sensors(folder, self.level),
            "CPU package": processor.Throttling(folder, boot),
            "memory controller": Memory(folder, self.level, boot),
            "PCIe device": pcie.Pcie(folder, self.level, boot),
        }
        if self.level >= Level.DETAILED:
            parts["energy counter"] = processor.Energy(folder)
        self._parts = {name: part for name, part in parts.items() if len(part)}
        self._pace = Pace(self._config.every, self._clock)
        if not self._parts:
            raise Unavailable(f"no sensor, memory controller or PCIe link in {folder}")

    def collect(self, at: int) -> Iterator[Datapoint]:
        if self._pace.is_due():
            for part in self._parts.values():
                yield from part.points(at)

    def describe(self) -> str:
        return ", ".join(f"{len(part)} {name}{'s' * (len(part) != 1)}" for name, part in self._parts.items())


_Part = sensors.Sensors | processor.Throttling | processor.Energy | Memory | pcie.Pcie
