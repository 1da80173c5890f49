"""Temperatures and fans, from hwmon: Documentation/hwmon/sysfs-interface.rst of Linux."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.datapoint import Datapoint, Dimensions, Level, Metric, gauge
from chipwatch.host.procfs import read_small, text

KEYS: Final = ("chip", "sensor", "label")
CPU: Final = gauge("cpu.temperature", "Cel", "Temperature of the hottest sensor of the CPUs.")
TEMPERATURE: Final = gauge("host.temperature", "Cel", "Temperature of a sensor of the host.", Level.DETAILED, KEYS)
FAN: Final = gauge("host.fan.speed", "{rpm}", "Speed of a fan of the host.", Level.DETAILED, KEYS)
METRICS: Final = (CPU, TEMPERATURE, FAN)
CPU_CHIPS: Final = frozenset({"coretemp", "cpu_thermal", "k10temp", "via_cputemp", "zenpower"})
"""The drivers of the sensors in CPUs, by the file `name`."""
INPUT: Final = re.compile(r"((temp|fan)\d+)_input")


class _Sensor(NamedTuple):
    """One file with a value of `metric` times 1 / `factor`."""

    path: Path
    metric: Metric
    factor: int
    dims: Dimensions
    is_cpu: bool


class Sensors:
    """All temperatures and fans; at Level.BASIC only the CPUs'."""

    def __init__(self, sys: Path, level: Level) -> None:
        """Find the sensors under `sys`."""
        chips = sorted((sys / "class/hwmon").glob("hwmon*"))
        names = {chip: _chip_name(chip) for chip in chips}
        often = {name for name, count in Counter(names.values()).items() if count > 1}
        names |= {chip: f"{name}_{text(chip / 'name')}" for chip, name in names.items() if name in often}
        sensors = [sensor for chip in chips for sensor in _sensors(chip, names[chip])]
        self._sensors = [sensor for sensor in sensors if level >= Level.DETAILED or sensor.is_cpu]
        self._level = level

    def __len__(self) -> int:
        return len(self._sensors)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the values; a sensor that cannot be read is left out."""
        hottest = []
        for path, metric, factor, dims, is_cpu in self._sensors:
            try:
                value = int(read_small(path)) / factor
            except (OSError, ValueError, ArithmeticError):  # the chip has no value at present
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
    """Return a name that stays the same after a restart, as in node_exporter: of the device and the folder above it."""
    device = chip / "device"
    parts = device.resolve().parts[-2:] if device.exists() else (text(chip / "name") or chip.name,)
    words = (re.sub(r"[^a-z0-9:_]", "_", part.lower()).strip("_") for part in parts)
    return "_".join(word for word in words if word)
