"""An Intel GPU in sysfs, as i915 or xe shows it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.collectors.intel.metrics import Readings
from agent.datapoint import Datapoint, Dimensions, Level
from agent.host import gpu_metrics
from agent.host.drm import text
from agent.host.procfs import KeptFile

INTEL: Final = "0x8086"
SECOND: Final = 1_000_000_000
LEAST: Final = SECOND // 2
"""Over a shorter time counters that move in steps would make a rough rate."""
GONE: Final = frozenset({errno.ENODEV, errno.ENOENT, errno.ENXIO})
CLOCKS: Final = ("gt/gt0/rps_act_freq_mhz", "gt_act_freq_mhz", "device/tile0/gt0/freq0/act_freq")
"""i915, an older i915, xe: the frequency that the chip really has; 0 while it sleeps."""
LIMITS: Final = ("power1_max", "power1_cap")
ROUGH: Final = 5
"""Percent below 0: idleness is counted in steps, over a time that is measured apart."""


class Card:
    """One card, whose files are kept open."""

    def __init__(self, index: str, folder: Path) -> None:
        """Open what there is; raise LookupError where nothing is."""
        self.index, self.dims = index, Dimensions(gpu=index)
        device = folder / "device"
        slot = re.search(r"^PCI_SLOT_NAME=(.+)$", text(device / "uevent"), re.MULTILINE)
        self.slot = slot[1].lower() if slot else ""
        """PCI address."""
        self.problems: list[str] = []
        """Of the last reading."""
        self.lost = False
        """Whether the kernel said, in the last reading, that the card is gone."""
        hwmon = next(iter(sorted(device.glob("hwmon/hwmon*"))), device / "hwmon/none")
        labels = {text(path): path.name.replace("_label", "_input") for path in hwmon.glob("temp*_label")}
        chip = labels.get("pkg") or ("temp1_input" if not labels else "none")
        engines = [path.parent for path in device.glob("tile*/gt*/gtidle/name") if text(path).endswith("-rc")]
        self._status = _kept(device / "power/runtime_status")
        self._clock = next(filter(None, (_kept(folder / name) for name in CLOCKS)), None)
        self._energy = _kept(hwmon / "energy1_input")
        self._limit = next(filter(None, (_kept(hwmon / name) for name in LIMITS)), None)
        self._chip, self._vram = _kept(hwmon / chip), _kept(hwmon / labels.get("vram", "none"))
        self._idle = [file for path in sorted(engines) if (file := _kept(path / "idle_residency_ms"))]
        self._last: dict[KeptFile, tuple[int, float]] = {}
        self._start_time: tuple[int, float] | None = None
        if not any(self._all()):
            raise LookupError(folder)

    def asleep(self) -> bool:
        """Tell whether the card sleeps: to read a sensor, or to run a tool, would wake it."""
        try:
            return bool(self._status) and not (self._status and self._status.read().startswith(b"active"))
        except OSError:
            return False  # which the sensors will tell

    def read(self, now: int) -> Readings:
        """Return what can be read at `now` (monotonic ns); rates over the time since the last reading."""
        self.problems, self.lost = [], False
        readings: Readings = {}
        found = (
            (gpu_metrics.CLOCK_GRAPHICS, self._value(self._clock), 1.0),
            (gpu_metrics.ENERGY, self._value(self._energy), 1e-6),
            (gpu_metrics.POWER_LIMIT, self._value(self._limit) or None, 1e-6),
            (gpu_metrics.TEMPERATURE, self._value(self._chip), 1e-3),
            (gpu_metrics.MEMORY_TEMPERATURE, self._value(self._vram), 1e-3),
        )
        for metric, value, factor in found:
            if value is not None and gpu_metrics.possible(metric, value * factor):
                readings[metric] = value * factor
        if self._energy and (watts := self._rate(self._energy, readings.get(gpu_metrics.ENERGY), now)) is not None:
            readings[gpu_metrics.POWER] = watts
        idle = [self._rate(file, self._value(file), now) for file in self._idle]  # ms of idleness in a second
        shares = [100 - rate / 10 for rate in idle if rate is not None]
        if shares and max(shares) >= -ROUGH:
            readings[gpu_metrics.UTILIZATION] = max(0.0, *shares)
        return readings

    def completed(self, readings: Readings, further: Readings) -> Readings:
        """Return the readings, with those of a tool for what sysfs has no file for."""
        own = {gpu_metrics.ENERGY, gpu_metrics.POWER} if self._energy else set()
        own |= {gpu_metrics.UTILIZATION} if self._idle else set()
        return {metric: value for metric, value in further.items() if metric not in own} | readings

    def points(self, at: int, readings: Readings) -> Iterator[Datapoint]:
        """Yield readings, as far as they can be true, and the share of the power limit."""
        power, limit = readings.get(gpu_metrics.POWER), readings.get(gpu_metrics.POWER_LIMIT)
        if power is not None and limit and (share := gpu_metrics.of_limit(power, limit)) is not None:
            readings[gpu_metrics.POWER_UTILIZATION] = share
        for metric, value in readings.items():
            if not gpu_metrics.possible(metric, value):
                continue
            if metric is gpu_metrics.ENERGY:
                if self._start_time is None or value < self._start_time[1]:  # the driver, or the card, began anew
                    self._start_time = at, value
                self._start_time = self._start_time[0], value
                yield Datapoint(metric, value, self.dims, at, self._start_time[0])
            else:
                yield Datapoint(metric, value, self.dims, at)

    def close(self) -> None:
        """Close the files."""
        for file in (self._status, *self._all()):
            if file:
                file.close()

    def _all(self) -> list[KeptFile | None]:
        return [self._clock, self._energy, self._limit, self._chip, self._vram, *self._idle]

    def _value(self, file: KeptFile | None) -> float | None:
        if file is None:
            return None
        try:
            return float(int(file.read()))
        except OSError as error:
            if error.errno in GONE:
                self.lost = True
                self.problems = [f"gpu {self.index}: the card is lost"]
        except (ValueError, OverflowError):
            self.problems.append(f"gpu {self.index}: {file.path.name} holds no number")
        return None

    def _rate(self, file: KeptFile, value: float | None, now: int) -> float | None:
        """Return by how much a counter rises in a second, or None: it went back, or there is no reading before it."""
        then = self._last.get(file)
        if value is None or (then and now - then[0] < LEAST and value >= then[1]):
            return None
        self._last[file] = now, value
        return (value - then[1]) * SECOND / (now - then[0]) if then and value >= then[1] else None


def _kept(path: Path) -> KeptFile | None:
    try:
        return KeptFile(path)
    except OSError:  # absent, or not for us
        return None


def wanted(level: Level, points: Iterator[Datapoint]) -> Iterator[Datapoint]:
    """Yield the points that are wanted."""
    return (point for point in points if point.metric.level <= level)
