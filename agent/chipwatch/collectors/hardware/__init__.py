"""Health of the host's hardware: sensors, throttling and energy of the CPUs, errors of memory and PCI Express."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.collectors.hardware import pcie, processor
from chipwatch.collectors.hardware.processor import packages
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.host.last_values import LastValues
from chipwatch.host.pace import Clock, Pace
from chipwatch.host.procfs import close_all, text
from chipwatch.host.rows import FileRow, Folder, Folders, each

KEYS: Final = ("chip", "sensor", "label")
CPU: Final = gauge("cpu.temperature", "Cel", "Temperature of the hottest sensor of the CPUs.")
TEMPERATURE: Final = gauge("host.temperature", "Cel", "Temperature of a sensor of the host.", Level.DETAILED, KEYS)
FAN: Final = gauge("host.fan.speed", "{rpm}", "Speed of a fan of the host.", Level.DETAILED, KEYS)
CPU_CHIPS: Final = frozenset({"coretemp", "cpu_thermal", "k10temp", "via_cputemp", "zenpower"})
"""The drivers of the sensors in CPUs, by the file `name`."""
INPUT: Final = re.compile(r"((temp|fan)\d+)_input")
MEMORY_ERRORS: Final = counter("memory.errors", "{error}", "Errors of the memory, all controllers.", dims=("kind",))
OF_DIMM: Final = counter(
    "memory.dimm.errors", "{error}", "Errors of one memory module.", Level.DETAILED, ("controller", "dimm", "kind")
)
CORRECTED, UNCORRECTED = Dimensions(kind="corrected"), Dimensions(kind="uncorrected")
CONTROLLER: Final = (
    FileRow(MEMORY_ERRORS, "ce_count", dims=CORRECTED, total=MEMORY_ERRORS),
    FileRow(MEMORY_ERRORS, "ue_count", dims=UNCORRECTED, total=MEMORY_ERRORS),
)
MODULE: Final = (
    FileRow(OF_DIMM, "dimm_ce_count", dims=CORRECTED),
    FileRow(OF_DIMM, "dimm_ue_count", dims=UNCORRECTED),
)
"""EDAC: Documentation/admin-guide/RAS of Linux."""


def sensors(chips: Sequence[Path]) -> Iterator[Folder]:
    """Yield the temperatures and fans of hwmon: Documentation/hwmon/sysfs-interface.rst."""
    names = {chip: _chip_name(chip) for chip in chips}
    often = {name for name, count in Counter(names.values()).items() if count > 1}
    for chip, name in names.items():
        driver = text(chip / "name")
        total = CPU if driver in CPU_CHIPS else None
        folder = chip if any(chip.glob("*_input")) else chip / "device"  # where drivers had them before Linux 3.15
        for match in (INPUT.fullmatch(path.name) for path in sorted(folder.glob("*_input"))):
            if match:
                row = (
                    FileRow(TEMPERATURE, match[0], 1e-3, total=total) if match[2] == "temp" else FileRow(FAN, match[0])
                )
                label = text(folder / f"{match[1]}_label") or match[1]
                chip_name = f"{name}_{driver}" if name in often else name
                yield Folder(folder, Dimensions(chip=chip_name, sensor=match[1], label=label), [row])


def _chip_name(chip: Path) -> str:
    """Return a name that outlives a restart, as node_exporter makes it of the device and the folder above it."""
    device = chip / "device"
    parts = device.resolve().parts[-2:] if device.exists() else (text(chip / "name") or chip.name,)
    words = (re.sub(r"[^a-z0-9:_]", "_", part.lower()).strip("_") for part in parts)
    return "_".join(word for word in words if word)


def modules(folders: Sequence[Path]) -> Iterator[Folder]:
    """Yield the memory modules of the controllers; a label that several of a controller have names none."""
    labels = {folder: text(folder / "dimm_label") for folder in folders}
    often = Counter((folder.parent, label) for folder, label in labels.items())
    for folder, label in labels.items():
        name = label if label and often[folder.parent, label] == 1 else folder.name
        yield Folder(folder, Dimensions(controller=folder.parent.name, dimm=name), MODULE)


class HardwareCollector(Collector):
    """Reads sysfs at a longer interval, `every`; some sensors answer slowly."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Options under [collectors.hardware]."""

        every: float = 15.0
        """Seconds between two readings, at least."""
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")

    metrics = (CPU, TEMPERATURE, FAN, MEMORY_ERRORS, OF_DIMM, *processor.METRICS, *pcie.METRICS)
    level: Level = Level.ALL
    state: Path | None = None

    def __init__(self, config: Config, clock: Clock = time.monotonic) -> None:
        """Take the configuration, and a monotonic clock (s)."""
        self._config, self._clock = config, clock
        self._pace = Pace(config.every, clock)
        self._parts: dict[str, Folders | processor.Energy] = {}
        self._kept: LastValues | None = None

    def open(self) -> None:
        """Find the hardware; raise Unavailable if there is nothing to read, as on most virtual machines."""
        if sys.platform != "linux":
            raise Unavailable("the hardware's health is read on Linux only")
        self.close()
        folder, kept = self._config.sys, LastValues(self.state, "hardware", self._config.proc)
        memory = folder / "devices/system/edac/mc"
        parts: dict[str, Folders | processor.Energy] = {
            "sensor": Folders(folder / "class/hwmon", "hwmon*", sensors, self.level),
            "CPU package": Folders(folder / "devices/system/cpu", "cpu[0-9]*", packages, self.level, kept=kept),
            "memory controller": Folders(memory, "mc[0-9]*", each("controller", CONTROLLER), self.level),
            "": Folders(memory, "mc[0-9]*/[dr]*[0-9]", modules, self.level, kept=kept),
            "PCIe device": pcie.Pcie(folder, self.level, kept),
        }
        if self.level >= Level.DETAILED:
            parts["energy counter"] = processor.Energy(folder)
        self._kept = kept
        self._parts = {name: part for name, part in parts.items() if len(part)}
        self._pace = Pace(self._config.every, self._clock)
        if not self._parts:
            raise Unavailable(f"no sensor, memory controller or PCIe link in {folder}")

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield the readings if they are due; what cannot be read is absent."""
        if self._kept and self._pace.is_due():
            for part in self._parts.values():
                yield from part.points(at)
            self._kept.save(at)

    def describe(self) -> str:
        """Return how much there is of each kind; modules are parts of a controller."""
        return ", ".join(f"{len(part)} {name}{'s' * (len(part) != 1)}" for name, part in self._parts.items() if name)

    def close(self) -> None:
        """Keep the counters; no file stays open."""
        close_all(self._kept)
