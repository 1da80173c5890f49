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
from chipwatch.host.last_values import LastValues
from chipwatch.host.pace import Clock, Pace


class HardwareCollector(Collector):
    """Reads sysfs at a longer interval, `every`; some sensors answer slowly."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Options under [collectors.hardware]."""

        every: float = 15.0
        """Seconds between two readings, at least."""
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")

    metrics = (*sensors.METRICS, *processor.METRICS, *memory.METRICS, *pcie.METRICS)
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
            "sensor": sensors.Sensors(folder, self.level),
            "CPU package": processor.Throttling(folder, kept),
            "memory controller": memory.Memory(folder, self.level, kept),
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
        if self._kept:
            self._kept.close()


_Part = sensors.Sensors | processor.Throttling | processor.Energy | memory.Memory | pcie.Pcie
