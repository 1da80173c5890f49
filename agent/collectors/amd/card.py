"""An AMD GPU in sysfs."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent.collectors.amd.metrics import COUNTERS, HOTSPOT, CardPoints, Readings
from agent.datapoint import Metric
from agent.host import gpu_metrics
from agent.host.drm import CardFiles, cards
from agent.host.procfs import KeptFile, text

AMD: Final = "0x1002"
ABSENT: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.EBUSY, errno.EPERM, errno.EACCES})
"""What amdgpu returns where it has no such reading, or not now: asleep (EBUSY) or in a reset (EPERM)."""
ENERGY_STEP: Final = 15.259e-6
"""Joules: https://rocm.docs.amd.com/projects/rocm_smi_lib rsmi_dev_energy_count_get."""
ENERGY_OFFSETS: Final = {(1, 1): 24, (1, 2): 24, (1, 3): 24, (1, 4): 24, (1, 5): 88, (1, 6): 16, (1, 7): 24}
"""Where energy_accumulator is, by format and content revision: gpu_metrics_v1_* of Linux's kgd_pp_interface.h."""

# Files in device/, and those in its hwmon/hwmonN/; a value is the file's number times the factor.
# https://docs.kernel.org/gpu/amdgpu/thermal.html and https://docs.kernel.org/gpu/amdgpu/driver-misc.html
Spec = tuple[str, Metric, float]
BASIC: Final[tuple[Spec, ...]] = (
    ("gpu_busy_percent", gpu_metrics.UTILIZATION, 1),
    ("mem_info_vram_used", gpu_metrics.MEMORY_USED, 1),
    ("mem_info_vram_total", gpu_metrics.MEMORY_TOTAL, 1),
)
DETAILED: Final[tuple[Spec, ...]] = (("mem_busy_percent", gpu_metrics.MEMORY_ACTIVITY, 1),)
HWMON_BASIC: Final[tuple[Spec, ...]] = (("power1_cap", gpu_metrics.POWER_LIMIT, 1e-6),)
HWMON_DETAILED: Final[tuple[Spec, ...]] = (("pwm1", gpu_metrics.FAN, 100 / 255),)
CLOCKS: Final = (
    ("freq1_input", "pp_dpm_sclk", gpu_metrics.CLOCK_GRAPHICS),
    ("freq2_input", "pp_dpm_mclk", gpu_metrics.CLOCK_MEMORY),
)
"""In the hwmon; else a table in device/, of which one line is marked. An APU's hwmon lacks the memory's clock."""
CURRENT: Final = re.compile(rb"^\w+:\s*(\d+)\s*mhz\s*\*", re.IGNORECASE | re.MULTILINE)
"""`1: 700Mhz *`."""
NORTH_BRIDGE: Final = "vddnb"
"""The label of in1: APUs alone have it, but not MI300A, with VRAM of its own: hwmon_attributes_visible of Linux."""
APU_FORMATS: Final = (2, 3)
"""Of gpu_metrics: kgd_pp_interface.h."""
GTT: Final = (("mem_info_gtt_used", gpu_metrics.MEMORY_USED), ("mem_info_gtt_total", gpu_metrics.MEMORY_TOTAL))

# Metrics that a card should have at a level. COUNTERS are read on the slow path only.
WANTED_BASIC: Final = frozenset({metric for _, metric, _ in (*BASIC, *HWMON_BASIC)}) | {
    gpu_metrics.POWER,
    gpu_metrics.TEMPERATURE,
    gpu_metrics.ECC_UNCORRECTED,
}
WANTED_DETAILED: Final = frozenset({metric for _, metric, _ in (*DETAILED, *HWMON_DETAILED)}) | {
    gpu_metrics.CLOCK_GRAPHICS,
    gpu_metrics.CLOCK_MEMORY,
    gpu_metrics.MEMORY_TEMPERATURE,
    gpu_metrics.ECC_CORRECTED,
    gpu_metrics.ENERGY,
}
VRAM: Final = frozenset({gpu_metrics.MEMORY_USED, gpu_metrics.MEMORY_TOTAL})
FAN: Final = ("pwm1", "fan1_input", "fan1_max")
"""Where the hwmon has none of these, there is no fan."""


def find(sys: Path) -> Iterator[tuple[str, Path]]:
    """Yield the kernel's number and the device's folder of each AMD card, in order; wakes no card."""
    for index, folder in cards(sys, AMD):
        if "DRIVER=radeon" not in text(folder / "device/uevent"):
            yield index, folder / "device"


class Card(CardFiles):
    """One card."""

    expected = ABSENT

    def __init__(self, index: str, device: Path, *, detailed: bool) -> None:
        """Open what there is; raise LookupError where nothing is."""
        super().__init__(index, device)
        self._detailed = detailed
        self.points = CardPoints(self.dims)
        self.total: float | None = None
        """Bytes of memory as last read, or None."""
        self.gaps: frozenset[Metric] = frozenset()
        """Wanted metrics that the last two readings lacked."""
        self._missing: frozenset[Metric] = frozenset()
        self._own: set[Metric] = set()
        self.suspended = False
        self._wanted = WANTED_BASIC | WANTED_DETAILED if detailed else WANTED_BASIC
        self.is_apu = False
        """Whether its VRAM is cut from the machine's memory, of which it uses more (GTT)."""
        self._gtt: list[tuple[KeptFile, Metric]] = []
        self._files = list(self._open())
        if not self._files:
            self.close()
            raise LookupError(device)
        self._ras = self.kept(device / "ras/umc_err_count")
        self._table = self.kept(device / "gpu_metrics") if detailed else None

    def read(self, *, slow: bool) -> Readings | None:
        """Return what can be read now, counters too if `slow`; None where the card sleeps."""
        self.suspended = not self.begin()
        if self.suspended:
            return None
        readings: Readings = {}
        for file, metric, factor in self._files:
            if (value := self.number(file, _number)) is not None:
                readings[metric] = value * factor
        for file, metric in self._gtt:
            value, vram = self.number(file, _number), readings.pop(metric, None)
            if value is not None and vram is not None:
                readings[metric] = vram + value
        answered = bool(readings)
        if answered or self.lost:
            readings[gpu_metrics.STATE] = 1 if answered else 0
        if answered and slow:
            self._read_errors(readings)
            if (steps := self.number(self._table, _energy)) is not None:
                readings[gpu_metrics.ENERGY] = steps * ENERGY_STEP
        self._compare(readings if answered else None, slow=slow)
        return readings

    def complete(self, readings: Readings, further: Readings) -> None:
        """Fill gaps of the readings from a tool's; the total memory is kept once known."""
        readings |= {metric: value for metric, value in further.items() if metric in self.gaps}
        self.total = readings.get(gpu_metrics.MEMORY_TOTAL, self.total)
        if self.total and gpu_metrics.MEMORY_TOTAL in self.gaps:
            readings[gpu_metrics.MEMORY_TOTAL] = self.total

    def _compare(self, readings: Readings | None, *, slow: bool) -> None:
        """Note what is missing; nothing where no file could be read: the card is in a reset, or falls asleep."""
        if readings is None:
            self.gaps = self._missing = frozenset()
            return
        missing = self._wanted - readings.keys()
        if slow:
            for metric in (readings.keys() & COUNTERS) - self._own:
                self._own.add(metric)
                self.points.restart(metric)
        else:
            missing -= COUNTERS - self._missing
        # A counter comes from one source only: another one may have begun at another moment.
        missing -= self._own
        if missing & VRAM:
            missing |= {gpu_metrics.MEMORY_UTILIZATION}
        self.gaps, self._missing = missing & self._missing, missing

    def _open(self) -> Iterator[tuple[KeptFile, Metric, float]]:
        hwmon, labels = self.hwmon, self.temperatures
        power = "power1_average" if (hwmon / "power1_average").exists() else "power1_input"  # MI300 has this one only
        further = [(power, gpu_metrics.POWER, 1e-6), *HWMON_BASIC, *(HWMON_DETAILED if self._detailed else ())]
        if hwmon.is_dir() and not any((hwmon / name).exists() for name in FAN):
            self._wanted -= {gpu_metrics.FAN}
        if chip := labels.get("edge") or labels.get("junction"):  # MI300 has no edge
            further.append((chip, gpu_metrics.TEMPERATURE, 1e-3))
        specs = [(self.device, spec) for spec in (*BASIC, *(DETAILED if self._detailed else ()))]
        if self._detailed:
            for label, metric in ("mem", gpu_metrics.MEMORY_TEMPERATURE), ("junction", HOTSPOT):
                if label in labels:
                    further.append((labels[label], metric, 1e-3))
            for sensor, table, metric in CLOCKS:
                there = (hwmon / sensor).exists()
                specs.append((hwmon, (sensor, metric, 1e-6)) if there else (self.device, (table, metric, 1)))
        self.is_apu = text(hwmon / "in1_label") == NORTH_BRIDGE or self._has_table_of_apu()
        if self.is_apu:
            self._wanted -= VRAM  # a tool would give only the part that is VRAM
            self._gtt = [(file, metric) for name, metric in GTT if (file := self.kept(self.device / name))]
        for folder, (name, metric, factor) in [*specs, *((hwmon, spec) for spec in further)]:
            if file := self.kept(folder / name):
                yield file, metric, factor

    def _has_table_of_apu(self) -> bool:
        """Tell whether gpu_metrics has an APU's format; False for a card that sleeps, which reading would wake."""
        if text(self.device / "power/runtime_status") not in {"", "active"}:
            return False
        with suppress(OSError), (self.device / "gpu_metrics").open("rb") as file:
            return file.read(3)[2:] in {bytes([form]) for form in APU_FORMATS}
        return False

    def _read_errors(self, readings: Readings) -> None:
        """Read the RAS counts of the memory: `ue: 0` and `ce: 0`."""
        data = (self._ras and self.data(self._ras)) or b""
        for key, metric in (b"ue", gpu_metrics.ECC_UNCORRECTED), (b"ce", gpu_metrics.ECC_CORRECTED):
            if found := re.search(rb"^%s:\s*(\d{1,19})\s*$" % key, data, re.MULTILINE):
                readings[metric] = int(found[1])


def _number(data: bytes) -> float | None:
    """Return the number in a file, or in the line of a table of clocks that is marked; raise ValueError."""
    if b":" not in data:
        return float(int(data))
    found = CURRENT.search(data)
    return float(found[1]) if found else None


def _energy(data: bytes) -> int | None:
    """Return the count of energy steps in a gpu_metrics table, or None where it has none; raise struct.error."""
    _, form, content = struct.unpack_from("<HBB", data)
    offset = ENERGY_OFFSETS.get((form, content))
    if offset is None:
        return None
    (value,) = struct.unpack_from("<Q", data, offset)
    return None if value in {0, 0xFFFFFFFFFFFFFFFF} else value
