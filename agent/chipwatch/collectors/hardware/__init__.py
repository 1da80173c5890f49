"""Health of the host's hardware: sensors, throttling and energy of the CPUs, errors of memory and PCI Express."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.collectors.hardware import pcie, processor
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, counter, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.host.counters import Counters
from chipwatch.host.gpu_metrics import MOST
from chipwatch.host.last_values import LastValues, inode
from chipwatch.host.pace import Clock, Pace
from chipwatch.host.procfs import close_all, number, read_small, text

KEYS: Final = ("chip", "sensor", "label")
CPU: Final = gauge("cpu.temperature", "Cel", "Temperature of the hottest sensor of the CPUs.")
TEMPERATURE: Final = gauge("host.temperature", "Cel", "Temperature of a sensor of the host.", Level.DETAILED, KEYS)
FAN: Final = gauge("host.fan.speed", "{rpm}", "Speed of a fan of the host.", Level.DETAILED, KEYS)
CPU_CHIPS: Final = frozenset({"coretemp", "cpu_thermal", "k10temp", "via_cputemp", "zenpower"})
"""The drivers of the sensors in CPUs, by the file `name`."""
COLDEST: Final = -100.0
"""Degrees below which a temperature is not a reading."""
INPUT: Final = re.compile(r"((temp|fan)\d+)_input")
MEMORY_ERRORS: Final = counter("memory.errors", "{error}", "Errors of the memory, all controllers.", dims=("kind",))
OF_DIMM: Final = counter(
    "memory.dimm.errors", "{error}", "Errors of one memory module.", Level.DETAILED, ("controller", "dimm", "kind")
)
KINDS: Final = {"corrected": "ce", "uncorrected": "ue"}


class _Sensor(NamedTuple):
    """One file with a value of `metric` times 1 / `factor`."""

    path: Path
    metric: Metric
    factor: int
    dims: Dimensions
    is_cpu: bool


class Sensors:
    """Temperatures and fans, from hwmon (Documentation/hwmon/sysfs-interface.rst); at Level.BASIC only the CPUs'."""

    def __init__(self, sys: Path, level: Level) -> None:
        """Find the sensors under `sys`."""
        self._folder, self._level = sys / "class/hwmon", level
        self._chips: dict[Path, int] = {}
        """The inode of each chip's folder: a driver that is loaded again takes any number."""
        self._sensors: list[_Sensor] = []
        self._find()

    def _find(self) -> None:
        """Find the sensors, again if there are other chips."""
        chips = {chip: inode(chip) for chip in sorted(self._folder.glob("hwmon*"))}
        if chips == self._chips:
            return
        self._chips = chips
        names = {chip: _chip_name(chip) for chip in chips}
        often = {name for name, count in Counter(names.values()).items() if count > 1}
        names |= {chip: f"{name}_{text(chip / 'name')}" for chip, name in names.items() if name in often}
        sensors = [sensor for chip in chips for sensor in _sensors(chip, names[chip])]
        self._sensors = [sensor for sensor in sensors if self._level >= Level.DETAILED or sensor.is_cpu]

    def __len__(self) -> int:
        return len(self._sensors)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the values; a sensor that cannot be read is left out."""
        self._find()
        hottest = []
        for path, metric, factor, dims, is_cpu in self._sensors:
            try:
                value = int(read_small(path)) / factor
            except (OSError, ValueError, ArithmeticError):  # the chip has no value at present
                continue
            if metric is TEMPERATURE and not COLDEST <= value <= MOST["Cel"]:
                continue
            if is_cpu and metric is TEMPERATURE:
                hottest.append(value)
            if self._level >= Level.DETAILED:
                yield metric.point(at, value, dims)
        if hottest:
            yield CPU.point(at, max(hottest))


def _sensors(chip: Path, name: str) -> Iterator[_Sensor]:
    is_cpu = text(chip / "name") in CPU_CHIPS
    folder = chip if any(chip.glob("*_input")) else chip / "device"  # where drivers had the files before Linux 3.15
    for path in sorted(folder.glob("*_input")):
        if match := INPUT.fullmatch(path.name):
            label = text(folder / f"{match[1]}_label") or match[1]
            dims = Dimensions(chip=name, sensor=match[1], label=label)
            metric, factor = (TEMPERATURE, 1000) if match[2] == "temp" else (FAN, 1)
            yield _Sensor(path, metric, factor, dims, is_cpu)


def _chip_name(chip: Path) -> str:
    """Return a name that outlives a restart, as node_exporter makes it of the device and the folder above it."""
    device = chip / "device"
    parts = device.resolve().parts[-2:] if device.exists() else (text(chip / "name") or chip.name,)
    words = (re.sub(r"[^a-z0-9:_]", "_", part.lower()).strip("_") for part in parts)
    return "_".join(word for word in words if word)


class Memory:
    """Errors of the memory controllers and their modules, from EDAC: Documentation/admin-guide/RAS of Linux."""

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
                yield self._counters.total(MEMORY_ERRORS, at, readable, Dimensions(kind=kind))
        for path, dims, counters in self._dimms:
            if (count := number(path)) is not None:
                yield counters.point(OF_DIMM, at, count, dims)


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
        self._parts: dict[str, _Part] = {}
        self._kept: LastValues | None = None

    def open(self) -> None:
        """Find the hardware; raise Unavailable if there is nothing to read, as on most virtual machines."""
        if sys.platform != "linux":
            raise Unavailable("the hardware's health is read on Linux only")
        self.close()
        folder, kept = self._config.sys, LastValues(self.state, "hardware", self._config.proc)
        parts: dict[str, _Part] = {
            "sensor": Sensors(folder, self.level),
            "CPU package": processor.Throttling(folder, kept),
            "memory controller": Memory(folder, self.level, kept),
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
        """Return how much there is of each kind."""
        return ", ".join(f"{len(part)} {name}{'s' * (len(part) != 1)}" for name, part in self._parts.items())

    def close(self) -> None:
        """Keep the counters; no file stays open."""
        close_all(self._kept)


_Part = Sensors | processor.Throttling | processor.Energy | Memory | pcie.Pcie
