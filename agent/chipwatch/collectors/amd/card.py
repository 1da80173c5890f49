"""An AMD GPU in sysfs."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chipwatch.collectors.amd.metrics import METRICS as CHIP_METRICS
from chipwatch.collectors.amd.metrics import RAS_ERRORS
from chipwatch.contract.datapoint import Datapoint, Level, Metric, gauge
from chipwatch.host import gpu_metrics
from chipwatch.host.drm import CardFiles, cards
from chipwatch.host.gpu_metrics import COUNTERS, Readings
from chipwatch.host.procfs import KeptFile, text

if TYPE_CHECKING:
    from chipwatch.collectors.amd.table import Values

HOTSPOT: Final = gauge(
    "gpu.hotspot.temperature", "Cel", "Temperature of the hottest place of the chip.", Level.DETAILED, gpu_metrics.KEYS
)
METRICS: Final[tuple[Metric, ...]] = (*gpu_metrics.FAMILY, HOTSPOT, *CHIP_METRICS)
AMD: Final = "0x1002"
EXPECTED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.EBUSY, errno.EPERM, errno.EACCES})
"""Errors of amdgpu where it has no such reading, or not now: asleep (EBUSY) or in a reset (EPERM)."""
ENERGY_STEP: Final = 15.259e-6
"""Joules: https://rocm.docs.amd.com/projects/rocm_smi_lib rsmi_dev_energy_count_get."""
CURRENT: Final = re.compile(rb"^\w+:\s*(\d+)\s*mhz\s*\*", re.IGNORECASE | re.MULTILINE)
"""`1: 700Mhz *`."""
ERRORS: Final = re.compile(rb"^(ue|ce):\s*(\d{1,19})\s*$", re.MULTILINE)
"""The RAS counts of the memory: `ue: 0` and `ce: 0`."""
NORTH_BRIDGE: Final = "vddnb"
"""The label of in1: only APUs have it, but not MI300A, which has separate VRAM: hwmon_attributes_visible of Linux."""
APU_FORMATS: Final = (b"\2", b"\3")
"""Format revisions of gpu_metrics on APUs: kgd_pp_interface.h."""
FILES: Final = (
    ("gpu_busy_percent", gpu_metrics.UTILIZATION, 1),
    ("mem_info_vram_used", gpu_metrics.MEMORY_USED, 1),
    ("mem_info_vram_total", gpu_metrics.MEMORY_TOTAL, 1),
    ("mem_busy_percent", gpu_metrics.MEMORY_ACTIVITY, 1),
    ("{hwmon}/power1_average", gpu_metrics.POWER, 1e-6),
    ("{hwmon}/power1_input", gpu_metrics.POWER, 1e-6),  # MI300 has this one only
    ("{hwmon}/power1_cap", gpu_metrics.POWER_LIMIT, 1e-6),
    ("{hwmon}/pwm1", gpu_metrics.FAN, 100 / 255),
    ("{hwmon}/{edge}", gpu_metrics.TEMPERATURE, 1e-3),
    ("{hwmon}/{junction}", gpu_metrics.TEMPERATURE, 1e-3),  # MI300 has no edge
    ("{hwmon}/{junction}", HOTSPOT, 1e-3),
    ("{hwmon}/{mem}", gpu_metrics.MEMORY_TEMPERATURE, 1e-3),
    ("{hwmon}/freq1_input", gpu_metrics.CLOCK_GRAPHICS, 1e-6),
    ("pp_dpm_sclk", gpu_metrics.CLOCK_GRAPHICS, 1),  # a table, of which one line is marked
    ("{hwmon}/freq2_input", gpu_metrics.CLOCK_MEMORY, 1e-6),  # an APU has none
    ("pp_dpm_mclk", gpu_metrics.CLOCK_MEMORY, 1),
)
"""
File in device/, metric, factor of the file's number; of several files of a metric, the first one that exists is read.

https://docs.kernel.org/gpu/amdgpu/thermal.html and https://docs.kernel.org/gpu/amdgpu/driver-misc.html
"""
GTT: Final = (("mem_info_gtt_used", gpu_metrics.MEMORY_USED), ("mem_info_gtt_total", gpu_metrics.MEMORY_TOTAL))
VRAM: Final = frozenset({gpu_metrics.MEMORY_USED, gpu_metrics.MEMORY_TOTAL})
LIMITS: Final = frozenset({gpu_metrics.MEMORY_TOTAL, gpu_metrics.POWER_LIMIT})
"""Read at every level: shares are computed from them."""
WANTED: Final = COUNTERS | {metric for _, metric, _ in FILES if metric is not HOTSPOT}
"""Metrics that a card should have."""
FAN: Final = ("pwm1", "fan1_input", "fan1_max")
"""A hwmon without these files has no fan."""


def find(sys: Path) -> Iterator[tuple[str, Path]]:
    """Yield the kernel's number and the device's folder of each AMD card, in order; wakes no card."""
    for index, folder in cards(sys, AMD):
        if "DRIVER=radeon" not in text(folder / "device/uevent"):
            yield index, folder / "device"


class AmdCard(CardFiles):
    """One card."""

    expected = EXPECTED

    def __init__(self, index: str, device: Path, level: Level) -> None:
        """Open the files of `level`; raise LookupError if there is none."""
        super().__init__(index, device)
        self.total: float | None = None
        """Bytes of memory as last read, or None."""
        self.gaps: frozenset[Metric] = frozenset()
        """Wanted metrics that the last two readings lacked."""
        self._missing: frozenset[Metric] = frozenset()
        self._own: set[Metric] = set()
        self._wanted = frozenset(metric for metric in WANTED if metric.level <= level or metric in LIMITS)
        if self.hwmon.is_dir() and not any((self.hwmon / name).exists() for name in FAN):
            self._wanted -= {gpu_metrics.FAN}
        self._files = list(self._open(level))
        if not self._files:
            self.close()
            raise LookupError(device)
        self._ras = self.kept(device / "ras/umc_err_count")
        from chipwatch.collectors.amd.chip import Chip  # noqa: PLC0415  only where there is a card

        self._table, self.chip = self.kept(device / "gpu_metrics"), Chip(device)
        self._values: Values = {}
        self._slow, self._now, self._level = False, 0, level
        folder = device / "ras"
        blocks = sorted(folder.glob("*_err_count")) if level >= RAS_ERRORS.level else []
        self._blocks = {path.name[: -len("_err_count")]: file for path in blocks if (file := self.kept(path))}
        self.begin()
        form = self.data(self._table) if self._table and not self.suspended else None
        self.is_apu = text(self.hwmon / "in1_label") == NORTH_BRIDGE or (form or b"")[2:3] in APU_FORMATS
        """True if its VRAM is a part of the machine's memory; it uses more of that (GTT)."""
        self._gtt: list[tuple[KeptFile, Metric]] = []
        self._marks: Readings = {gpu_metrics.UNIFIED: 1} if self.is_apu else {}
        if self.is_apu:
            self._wanted -= VRAM  # a tool would return only the part that is VRAM
            self._gtt = [(file, metric) for name, metric in GTT if (file := self.kept(device / name))]

    def read(self, now: int, *, slow: bool) -> Readings | None:
        self._values, self._slow, self._now = {}, slow, now
        if not self.begin():
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
            readings |= {gpu_metrics.STATE: 1, **self._marks} if answered else {gpu_metrics.STATE: 0}
        if answered:
            self._decode(slow=slow)
        if answered and slow:
            readings |= self._rare()
        self._compare(readings if answered else None, slow=slow)
        if self.chip.partitions(self._values) > 1 and "busy" in self._values:
            readings.pop(gpu_metrics.UTILIZATION, None)  # its parts have it
        return readings

    def _rare(self) -> Readings:
        """Return the readings of the slow path."""
        self.chip.read_modes()
        errors = ERRORS.findall((self._ras and self.data(self._ras)) or b"")
        kinds = {b"ue": gpu_metrics.ECC_UNCORRECTED, b"ce": gpu_metrics.ECC_CORRECTED}
        readings: Readings = {kinds[kind]: int(count) for kind, count in errors}
        if steps := self._values.get("energy", [None])[0]:
            readings[gpu_metrics.ENERGY] = steps * ENERGY_STEP
        return readings

    def _decode(self, *, slow: bool) -> None:
        """Read the table of metrics where it is wanted: on the slow path, or in each tick for the partitions."""
        if self._table and (self.chip.is_divided or (slow and self._level >= gpu_metrics.ENERGY.level)):
            with suppress(struct.error):  # it ends early
                self._values = self.chip.decode(self.data(self._table) or b"")

    def further(self, at: int) -> Iterator[Datapoint]:
        yield from self.chip.busy(at, self.dims, self._values)
        if self._slow and self._values:
            yield from self.chip.points(at, self._now, self.dims, self._values)
            for block, file in self._blocks.items():
                yield from self.chip.errors(at, self.dims, block, self.data(file) or b"")

    def complete(self, readings: Readings, from_tool: Readings) -> Readings:
        """Fill gaps with the readings of a tool; keep the total memory once it is known."""
        readings |= {metric: value for metric, value in from_tool.items() if metric in self.gaps}
        self.total = readings.get(gpu_metrics.MEMORY_TOTAL, self.total)
        if self.total and gpu_metrics.MEMORY_TOTAL in self.gaps:
            readings[gpu_metrics.MEMORY_TOTAL] = self.total
        if not (readings.get(gpu_metrics.POWER) or readings.get(gpu_metrics.POWER_LIMIT)):
            readings.pop(gpu_metrics.POWER, None)  # 0 of the second die of a package, which has no limit
        return readings

    def _compare(self, readings: Readings | None, *, slow: bool) -> None:
        """Find the missing metrics; none if no file could be read: the card is in a reset, or falls asleep."""
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

    def _open(self, level: Level) -> Iterator[tuple[KeptFile, Metric, float]]:
        labels = dict.fromkeys(("edge", "junction", "mem"), "none") | self.temperatures
        names = labels | {"hwmon": str(self.hwmon.relative_to(self.device))}
        opened = set()
        for name, metric, factor in FILES:
            wanted = metric not in opened and (metric.level <= level or metric in LIMITS)
            if wanted and (file := self.kept(self.device / name.format_map(names))):
                opened.add(metric)
                yield file, metric, factor


def _number(data: bytes) -> float | None:
    """Return the number in a file, or in the marked line of a table of clocks; raise ValueError."""
    if b":" not in data:
        return float(int(data))
    found = CURRENT.search(data)
    return float(found[1]) if found else None
