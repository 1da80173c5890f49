"""An AMD GPU in sysfs."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent.collectors.amd.metrics import COUNTERS, HOTSPOT, Readings, Teller
from agent.datapoint import Metric
from agent.host import gpu_metrics
from agent.host.drm import cards, text
from agent.host.procfs import KeptFile

AMD: Final = "0x1002"
GONE: Final = frozenset({errno.ENODEV, errno.ENOENT, errno.ENXIO})
ABSENT: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.EBUSY, errno.EPERM, errno.EACCES})
"""What amdgpu answers where it has no such reading, or not now: asleep (EBUSY) or in a reset (EPERM)."""
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

# What the catalogue asks of a card at a level, and of what it is made; read now and then: SELDOM.
ASKED_BASIC: Final = frozenset({metric for _, metric, _ in (*BASIC, *HWMON_BASIC)}) | {
    gpu_metrics.POWER,
    gpu_metrics.TEMPERATURE,
    gpu_metrics.ECC_UNCORRECTED,
}
ASKED_DETAILED: Final = frozenset({metric for _, metric, _ in (*DETAILED, *HWMON_DETAILED)}) | {
    gpu_metrics.CLOCK_GRAPHICS,
    gpu_metrics.CLOCK_MEMORY,
    gpu_metrics.MEMORY_TEMPERATURE,
    gpu_metrics.ECC_CORRECTED,
    gpu_metrics.ENERGY,
}
SELDOM: Final = COUNTERS
VRAM: Final = frozenset({gpu_metrics.MEMORY_USED, gpu_metrics.MEMORY_TOTAL})
FAN: Final = ("pwm1", "fan1_input", "fan1_max")
"""Where the hwmon shows none of these, there is no fan."""


def find(sys: Path) -> Iterator[tuple[str, Path]]:
    """Yield the kernel's number and the device's folder of each card of AMD's, in that order; nothing is woken."""
    for index, folder in cards(sys, AMD):
        if "DRIVER=radeon" not in text(folder / "device/uevent"):
            yield index, folder / "device"


class Card:
    """One card, whose files are kept open."""

    def __init__(self, index: str, device: Path, *, detailed: bool) -> None:
        """Open what there is; raise LookupError where nothing is."""
        self.index, self.device, self._detailed = index, device, detailed
        self.teller = Teller(index)
        slot = re.search(r"^PCI_SLOT_NAME=(.+)$", text(device / "uevent"), re.MULTILINE)
        self.slot = slot[1].lower() if slot else ""
        """PCI address."""
        self.total: float | None = None
        """Bytes of memory as they were last told, or None."""
        self.gaps: frozenset[Metric] = frozenset()
        """What is asked, and was not read in the last two readings."""
        self._missing: frozenset[Metric] = frozenset()
        self._own: set[Metric] = set()
        self.suspended = False
        self.problems: dict[str, str] = {}
        """Of the last reading, by file."""
        self._status = self._kept(device / "power/runtime_status")
        self._asked = ASKED_BASIC | ASKED_DETAILED if detailed else ASKED_BASIC
        self.is_apu = False
        """Whether its VRAM is cut from the machine's memory, of which it uses more (GTT)."""
        self._gtt: list[tuple[KeptFile, Metric]] = []
        self._files = [(file, metric, factor) for file, metric, factor in self._open()]
        self._ras = self._kept(device / "ras/umc_err_count")
        self._table = self._kept(device / "gpu_metrics") if detailed else None
        if not self._files:
            raise LookupError(device)

    def read(self, *, seldom: bool) -> Readings | None:
        """Return what can be read now, None where the card sleeps: to read a sensor would wake it."""
        self.problems = {}
        status = self._bytes(self._status) if self._status else b"active"
        self.suspended = not self.problems and not (status or b"").startswith(b"active")
        if self.suspended:
            return None
        readings: Readings = {}
        for file, metric, factor in self._files:
            if (value := self._value(file)) is not None:
                readings[metric] = value * factor
        for file, metric in self._gtt:
            value, vram = self._value(file), readings.pop(metric, None)
            if value is not None and vram is not None:
                readings[metric] = vram + value
        answered, gone = bool(readings), self.lost
        if answered or gone:
            readings[gpu_metrics.STATE] = 1 if answered else 0
        if answered and seldom:
            self._errors(readings)
            self._energy(readings)
        self._compare(readings if answered else None, seldom=seldom)
        return readings

    def complete(self, readings: Readings, told: Readings) -> None:
        """Put what a tool told into gaps of the readings; the size of the memory once for all."""
        readings |= {metric: value for metric, value in told.items() if metric in self.gaps}
        self.total = readings.get(gpu_metrics.MEMORY_TOTAL, self.total)
        if self.total and gpu_metrics.MEMORY_TOTAL in self.gaps:
            readings[gpu_metrics.MEMORY_TOTAL] = self.total

    @property
    def lost(self) -> bool:
        """Whether the kernel said, in the last reading, that the card is gone."""
        return "lost" in self.problems

    def close(self) -> None:
        """Close the files."""
        kept = *(file for file, _ in self._gtt), *(file for file, *_ in self._files)
        for file in (self._status, self._ras, self._table, *kept):
            if file:
                file.close()

    def _compare(self, readings: Readings | None, *, seldom: bool) -> None:
        """Note what is missing; nothing where the card did not answer at all: it is in a reset, or falls asleep."""
        if readings is None:
            self.gaps = self._missing = frozenset()
            return
        missing = self._asked - readings.keys()
        if seldom:
            for metric in (readings.keys() & COUNTERS) - self._own:
                self._own.add(metric)
                self.teller.renew(metric)
        else:
            missing -= SELDOM - self._missing
        # A counter is one source's or the other's, never both in turn: they need not begin at the same moment.
        missing -= self._own
        if missing & VRAM:
            missing |= {gpu_metrics.MEMORY_UTILIZATION}
        self.gaps, self._missing = missing & self._missing, missing

    def _open(self) -> Iterator[tuple[KeptFile, Metric, float]]:
        folders = sorted(self.device.glob("hwmon/hwmon*"))
        hwmon = folders[0] if folders else self.device / "hwmon/none"
        power = "power1_average" if (hwmon / "power1_average").exists() else "power1_input"  # MI300 has this one only
        labels = {text(path): path.name.replace("_label", "_input") for path in hwmon.glob("temp*_label")}
        further = [(power, gpu_metrics.POWER, 1e-6), *HWMON_BASIC, *(HWMON_DETAILED if self._detailed else ())]
        if folders and not any((hwmon / name).exists() for name in FAN):
            self._asked -= {gpu_metrics.FAN}
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
            self._asked -= VRAM  # of which a tool would tell the part alone
            self._gtt = [(file, metric) for name, metric in GTT if (file := self._kept(self.device / name))]
        for folder, (name, metric, factor) in [*specs, *((hwmon, spec) for spec in further)]:
            if file := self._kept(folder / name):
                yield file, metric, factor

    def _has_table_of_apu(self) -> bool:
        """Tell whether gpu_metrics has the format of an APU's; not of a card that sleeps, which it would wake."""
        if text(self.device / "power/runtime_status") not in {"", "active"}:
            return False
        with suppress(OSError), (self.device / "gpu_metrics").open("rb") as file:
            return file.read(3)[2:] in {bytes([form]) for form in APU_FORMATS}
        return False

    @staticmethod
    def _kept(path: Path) -> KeptFile | None:
        try:
            return KeptFile(path)
        except OSError:  # absent, or not for us
            return None

    def _bytes(self, file: KeptFile) -> bytes | None:
        try:
            return file.read()
        except OSError as error:
            if error.errno not in ABSENT:
                name = file.path.name
                what = "the card is lost" if error.errno in GONE else f"{name}: {error.strerror}"
                self.problems["lost" if error.errno in GONE else name] = f"gpu {self.index}: {what}"
            return None

    def _value(self, file: KeptFile) -> float | None:
        return self._parsed(file, _number)

    def _parsed(self, file: KeptFile, parse: Callable[[bytes], float | None]) -> float | None:
        if (data := self._bytes(file)) is None:
            return None
        try:
            return parse(data)
        except (ValueError, OverflowError, struct.error):
            if data.strip().lower() not in {b"", b"n/a"}:
                self.problems[file.path.name] = f"gpu {self.index}: {file.path.name}: {data[:40]!r} is not understood"
            return None

    def _errors(self, readings: Readings) -> None:
        """Read the RAS account of the memory: `ue: 0` and `ce: 0`."""
        data = (self._ras and self._bytes(self._ras)) or b""
        for key, metric in (b"ue", gpu_metrics.ECC_UNCORRECTED), (b"ce", gpu_metrics.ECC_CORRECTED):
            if found := re.search(rb"^%s:\s*(\d{1,19})\s*$" % key, data, re.MULTILINE):
                readings[metric] = int(found[1])

    def _energy(self, readings: Readings) -> None:
        if self._table and (value := self._parsed(self._table, _energy)) is not None:
            readings[gpu_metrics.ENERGY] = value * ENERGY_STEP


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
