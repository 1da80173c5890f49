"""An Intel GPU in sysfs, as i915 or xe shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from agent.collectors.intel.metrics import Readings
from agent.datapoint import Datapoint
from agent.host import gpu_metrics
from agent.host.drm import SECOND, CardFiles
from agent.host.procfs import KeptFile, text

INTEL: Final = "0x8086"
LEAST: Final = SECOND // 2
"""Nanoseconds; over a shorter time, counters that move in steps would make a rough rate."""
CLOCKS: Final = ("gt/gt0/rps_act_freq_mhz", "gt_act_freq_mhz", "device/tile0/gt0/freq0/act_freq")
"""i915, an older i915, xe: the frequency that the chip really has; 0 while it sleeps."""
LIMITS: Final = ("power1_max", "power1_cap")
ROUGH: Final = 5
"""Percent below 0: idleness is counted in steps, over a time that is measured apart."""


class Card(CardFiles):
    """One card."""

    def __init__(self, index: str, folder: Path) -> None:
        """Open what there is; raise LookupError where nothing is."""
        super().__init__(index, device := folder / "device")
        chip = self.temperatures.get("pkg") or ("temp1_input" if not self.temperatures else "none")
        engines = sorted(path for path in device.glob("tile*/gt*/gtidle/name") if text(path).endswith("-rc"))
        energy, limit = self.kept(self.hwmon / "energy1_input"), self._first(self.hwmon, LIMITS)
        vram = self.kept(self.hwmon / self.temperatures.get("vram", "none"))
        self._files = (
            (gpu_metrics.CLOCK_GRAPHICS, self._first(folder, CLOCKS), 1.0),
            (gpu_metrics.ENERGY, energy, 1e-6),
            (gpu_metrics.POWER_LIMIT, limit, 1e-6),
            (gpu_metrics.TEMPERATURE, self.kept(self.hwmon / chip), 1e-3),
            (gpu_metrics.MEMORY_TEMPERATURE, vram, 1e-3),
        )
        self._energy = energy
        self._idle = [file for path in engines if (file := self.kept(path.parent / "idle_residency_ms"))]
        self._last: dict[KeptFile, tuple[int, float]] = {}
        self._start_time: tuple[int, float] | None = None
        if self.is_empty:
            self.close()
            raise LookupError(folder)

    def read(self, now: int) -> Readings:
        """Return what can be read at `now` (monotonic ns), after `begin`; rates over the time since the last call."""
        readings: Readings = {}
        for metric, file, factor in self._files:
            value = self.number(file)
            if value is None or (value == 0 and metric is gpu_metrics.POWER_LIMIT):
                continue
            if gpu_metrics.possible(metric, value * factor):
                readings[metric] = value * factor
        if self._energy and (watts := self._rate(self._energy, readings.get(gpu_metrics.ENERGY), now)) is not None:
            readings[gpu_metrics.POWER] = watts
        idle = [self._rate(file, self.number(file), now) for file in self._idle]  # ms of idleness in a second
        shares = [100 - rate / 10 for rate in idle if rate is not None]
        if shares and max(shares) >= -ROUGH:
            readings[gpu_metrics.UTILIZATION] = max(0.0, *shares)
        return readings

    def completed(self, readings: Readings, further: Readings) -> Readings:
        """Return the readings, and those of a tool for what sysfs has no file for."""
        own = {gpu_metrics.ENERGY, gpu_metrics.POWER} if self._energy else set()
        own |= {gpu_metrics.UTILIZATION} if self._idle else set()
        return {metric: value for metric, value in further.items() if metric not in own} | readings

    def points(self, at: int, readings: Readings) -> Iterator[Datapoint]:
        """Yield the possible readings, and the share of the power limit."""
        power, limit = readings.get(gpu_metrics.POWER), readings.get(gpu_metrics.POWER_LIMIT)
        if power is not None and limit and (share := gpu_metrics.of_limit(power, limit)) is not None:
            readings[gpu_metrics.POWER_UTILIZATION] = share
        for metric, value in readings.items():
            if not gpu_metrics.possible(metric, value):
                continue
            if metric is gpu_metrics.ENERGY:
                if self._start_time is None or value < self._start_time[1]:  # the driver or the card was reset
                    self._start_time = at, value
                self._start_time = self._start_time[0], value
                yield Datapoint(metric, value, self.dims, at, self._start_time[0])
            else:
                yield Datapoint(metric, value, self.dims, at)

    def _first(self, folder: Path, names: Sequence[str]) -> KeptFile | None:
        return next(filter(None, (self.kept(folder / name) for name in names)), None)

    def _rate(self, file: KeptFile, value: float | None, now: int) -> float | None:
        """Return the increase of a counter in a second, None where it fell or has no earlier reading."""
        then = self._last.get(file)
        if value is None or (then and now - then[0] < LEAST and value >= then[1]):
            return None
        self._last[file] = now, value
        return (value - then[1]) * SECOND / (now - then[0]) if then and value >= then[1] else None
