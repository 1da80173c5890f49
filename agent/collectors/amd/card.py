"""An AMD GPU in sysfs."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from agent.collectors.amd import metrics as m
from agent.collectors.amd.metrics import Readings, Teller
from agent.datapoint import Metric
from agent.drm import cards, text
from agent.procfs import KeptFile

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
    ("gpu_busy_percent", m.UTILIZATION, 1),
    ("mem_info_vram_used", m.MEMORY_USED, 1),
    ("mem_info_vram_total", m.MEMORY_TOTAL, 1),
)
DETAILED: Final[tuple[Spec, ...]] = (("mem_busy_percent", m.MEMORY_ACTIVITY, 1),)
HWMON_BASIC: Final[tuple[Spec, ...]] = (("power1_cap", m.POWER_LIMIT, 1e-6),)
HWMON_DETAILED: Final[tuple[Spec, ...]] = (
    ("freq1_input", m.CLOCK_GRAPHICS, 1e-6),
    ("freq2_input", m.CLOCK_MEMORY, 1e-6),
    ("pwm1", m.FAN, 100 / 255),
)


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
        """Bytes of memory as of the last reading, or None."""
        self.suspended = False
        self.problems: dict[str, str] = {}
        """Of the last reading, by file."""
        self._status = self._kept(device / "power/runtime_status")
        self._files = [(file, metric, factor) for file, metric, factor in self._open()]
        self._ras = self._kept(device / "ras/umc_err_count")
        self._table = self._kept(device / "gpu_metrics") if detailed else None
        if not self._files:
            raise LookupError(device)

    def read(self, *, seldom: bool) -> Readings | None:
        """Return what can be read now, None where the card sleeps: to read a sensor would wake it."""
        self.problems = {}
        self.suspended = bool(self._status and not (self._bytes(self._status) or b"").startswith(b"active"))
        if self.suspended and not self.problems:
            return None
        readings: Readings = {}
        for file, metric, factor in self._files:
            if (value := self._value(file)) is not None:
                readings[metric] = value * factor
        self.total = readings.get(m.MEMORY_TOTAL)
        answered, gone = bool(readings), self.lost
        if answered or gone:
            readings[m.STATE] = 1 if answered else 0
        if answered and seldom:
            self._errors(readings)
            self._energy(readings)
        return readings

    @property
    def lost(self) -> bool:
        """Whether the kernel said, in the last reading, that the card is gone."""
        return "lost" in self.problems

    def close(self) -> None:
        """Close the files."""
        for file in (self._status, self._ras, self._table, *(file for file, *_ in self._files)):
            if file:
                file.close()

    def _open(self) -> Iterator[tuple[KeptFile, Metric, float]]:
        folders = sorted(self.device.glob("hwmon/hwmon*"))
        hwmon = folders[0] if folders else self.device / "hwmon/none"
        power = "power1_average" if (hwmon / "power1_average").exists() else "power1_input"  # MI300 has this one only
        labels = {text(path): path.name.replace("_label", "_input") for path in hwmon.glob("temp*_label")}
        further = [(power, m.POWER, 1e-6), *HWMON_BASIC, *(HWMON_DETAILED if self._detailed else ())]
        if chip := labels.get("edge") or labels.get("junction"):  # MI300 has no edge
            further.append((chip, m.TEMPERATURE, 1e-3))
        if self._detailed and "mem" in labels:
            further.append((labels["mem"], m.MEMORY_TEMPERATURE, 1e-3))
        specs = [(self.device, spec) for spec in (*BASIC, *(DETAILED if self._detailed else ()))]
        for folder, (name, metric, factor) in [*specs, *((hwmon, spec) for spec in further)]:
            if file := self._kept(folder / name):
                yield file, metric, factor

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
        return self._parsed(file, lambda data: float(int(data)))

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
        for key, metric in (b"ue", m.ECC_UNCORRECTED), (b"ce", m.ECC_CORRECTED):
            if found := re.search(rb"^%s:\s*(\d+)\s*$" % key, data, re.MULTILINE):
                readings[metric] = int(found[1])

    def _energy(self, readings: Readings) -> None:
        if self._table and (value := self._parsed(self._table, _energy)) is not None:
            readings[m.ENERGY] = value * ENERGY_STEP


def _energy(data: bytes) -> int | None:
    """Return the count of energy steps in a gpu_metrics table, or None where it has none; raise struct.error."""
    _, form, content = struct.unpack_from("<HBB", data)
    offset = ENERGY_OFFSETS.get((form, content))
    if offset is None:
        return None
    (value,) = struct.unpack_from("<Q", data, offset)
    return None if value in {0, 0xFFFFFFFFFFFFFFFF} else value
