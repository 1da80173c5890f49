"""Health of the host's hardware: sensors, throttling and energy of the CPUs, errors of memory and PCI Express."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from chipwatch.collector import Collector
from chipwatch.collectors.hardware import memory, pcie, processor, sensors
from chipwatch.datapoint import Datapoint, Level
from chipwatch.errors import Unavailable
from chipwatch.host.pace import Clock, Pace
from chipwatch.host.procfs import boot_time


class HardwareCollector(Collector):
    """Reads sysfs, at a separate interval; some sensors answer slowly."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The options of [collectors.hardware]."""

        every: float = 15.0
        """Seconds between two readings, at least."""
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")

    metrics = (*sensors.METRICS, *processor.METRICS, *memory.METRICS, *pcie.METRICS)
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
            "memory controller": memory.Memory(folder, self.level, boot),
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


_Part = sensors.Sensors | processor.Throttling | processor.Energy | memory.Memory | pcie.Pcie
