"""Collects the health of the host: sensors, CPU throttling and energy, errors of memory and PCI Express, failures."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import RiseEvidence
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.counters import Counters
from chipwatch.host.failures import Failure, counted, file_of, read, sentence
from chipwatch.host.last_values import LastValues
from chipwatch.host.procfs import close_all, number, text
from chipwatch.host.rows import FileRow, Folder, Folders, each

FAILURES: Final = gauge("node.failures", "{failure}", "Failures in so many days, by kind.", dims=("days", "kind"))
KEYS: Final = ("chip", "sensor", "label")
CPU: Final = gauge("cpu.temperature", "Cel", "Temperature of the hottest sensor of the CPUs.")
TEMPERATURE: Final = gauge("host.temperature", "Cel", "Temperature of a sensor of the host.", Level.DETAILED, KEYS)
FAN: Final = gauge("host.fan.speed", "{rpm}", "Speed of a fan of the host.", Level.DETAILED, KEYS)
CPU_CHIPS: Final = frozenset({"coretemp", "cpu_thermal", "k10temp", "via_cputemp", "zenpower"})
"""Drivers of sensors in CPUs, as the file `name` has them."""
INPUT: Final = re.compile(r"((temp|fan)\d+)_input")
MEMORY_ERRORS: Final = counter("memory.errors", "{error}", "Errors of the memory, all controllers.", dims=("kind",))
OF_DIMM: Final = counter(
    "memory.dimm.errors", "{error}", "Errors of one memory module.", Level.DETAILED, ("controller", "dimm", "kind")
)
CORRECTED, UNCORRECTED = Dimensions(kind="corrected"), Dimensions(kind="uncorrected")
CONTROLLER: Final = (
    FileRow(MEMORY_ERRORS, "ce_count", dims=CORRECTED, total=MEMORY_ERRORS),
    FileRow(MEMORY_ERRORS, "ue_count", dims=UNCORRECTED, total=MEMORY_ERRORS),
)
MODULE: Final = (FileRow(OF_DIMM, "dimm_ce_count", dims=CORRECTED), FileRow(OF_DIMM, "dimm_ue_count", dims=UNCORRECTED))
"""Files of EDAC for one memory module: Documentation/admin-guide/RAS of Linux."""

# fmt: off
EVENTS: Final = counter(
    "cpu.throttle.events", "{event}", "How often a CPU package was throttled for its temperature.", dims=("package",))
THROTTLED: Final = counter(
    "cpu.throttled", "s", "Time for which a package was throttled for its temperature.", Level.DETAILED, ("package",))
ENERGY: Final = counter("cpu.energy", "J", "Energy that a part of the CPUs took.", Level.DETAILED, ("domain",))
# fmt: on
CPU_METRICS: Final = (EVENTS, THROTTLED, ENERGY)
PACKAGE: Final = (
    FileRow(EVENTS, "thermal_throttle/package_throttle_count"),
    FileRow(THROTTLED, "thermal_throttle/package_throttle_total_time_ms", 1e-3),
)
"""Files below a CPU, only of Intel: Documentation/ABI/testing/sysfs-devices-system-cpu."""
DOMAIN: Final = re.compile(r"intel-rapl:\d+(:\d+)?")
"""Matches a domain of RAPL, also on AMD; intel-rapl-mmio would repeat some."""

DEVICE: Final = ("device",)
# fmt: off
ERRORS: Final = counter("pcie.errors", "{error}", "Errors that the devices reported, all devices.", dims=("kind",))
OF_DEVICE: Final = counter(
    "pcie.device.errors", "{error}", "Errors that one device reported.", Level.DETAILED, ("device", "kind"))
DEGRADED: Final = gauge("pcie.links.degraded", "{link}", "Links that are narrower than both of their ends can be.")
WIDTH: Final = gauge("pcie.link.width", "{lane}", "Lanes of the link.", Level.DETAILED, DEVICE)
EXPECTED: Final = gauge(
    "pcie.link.width.expected", "{lane}", "Lanes that both ends of the link can use.", Level.DETAILED, DEVICE)
SPEED: Final = gauge(
    "pcie.link.speed", "GT/s", "Speed of the link; many devices lower it when idle.", Level.DETAILED, DEVICE)
# fmt: on
PCIE_METRICS: Final = (ERRORS, OF_DEVICE, DEGRADED, WIDTH, EXPECTED, SPEED)
CLASSES: Final = ("0x0108", "0x02", "0x03", "0x12")
"""PCI classes that are read: NVMe, network, display, accelerator (PCI Code and ID Assignment Specification)."""
VENDORS: Final = frozenset({"0x1ae0", "0x1d0f"})
"""PCI vendors that are read: Google and Amazon, whose accelerators have other classes."""
TOTAL: Final = re.compile(rb"^TOTAL_ERR_\w+ (\d{1,20})$", re.MULTILINE)
"""Matches the last line of aer_dev_*: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats."""
PCIE_ROWS: Final = (
    *(
        FileRow(OF_DEVICE, f"aer_dev_{kind}", pattern=TOTAL, dims=Dimensions(kind=kind), total=ERRORS)
        for kind in ("correctable", "nonfatal", "fatal")
    ),
    FileRow(SPEED, "current_link_speed", pattern=re.compile(rb"^(\d+(?:\.\d+)?) GT/s")),
)
WIDTHS: Final = frozenset({1, 2, 4, 8, 12, 16, 32})
"""Possible widths. Of other values, 0 means no link, and 63 that the device is gone."""


class Pcie(Folders):
    """The PCI Express devices of the classes and vendors above: errors, speed and width of links."""

    def __init__(self, sys: Path, level: Level, kept: LastValues) -> None:
        """Find the devices under `sys`; `kept`: their counters from an earlier run."""
        self._widths: dict[Path, int] = {}
        """Folder of a device -> lanes that both ends of its link can use."""
        super().__init__(sys / "bus/pci/devices", "*", self._watched, level, kept=kept)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the values of all rows, and the widths of links."""
        yield from super().points(at)
        narrow = []
        for device in self:
            width, expected = number(device.path / "current_link_width"), self._widths[device.path]
            if width in WIDTHS and expected:
                narrow.append(width < expected)
                if self.level >= Level.DETAILED:
                    yield WIDTH.point(at, width, device.dims)
                    yield EXPECTED.point(at, expected, device.dims)
        if narrow:
            yield DEGRADED.point(at, sum(narrow))

    def _watched(self, folders: Sequence[Path]) -> Iterator[Folder]:
        for folder in folders:
            is_ours = text(folder / "class").startswith(CLASSES) or text(folder / "vendor") in VENDORS
            if is_ours and any((folder / name).exists() for name in ("aer_dev_fatal", "current_link_width")):
                # The parent folder is the port at the other end of the link.
                ends = (number(path / "max_link_width") for path in (folder, folder.resolve().parent))
                self._widths[folder] = min((width for width in ends if width in WIDTHS), default=0)
                yield Folder(folder, Dimensions(device=folder.name), PCIE_ROWS)


def packages(cpus: Sequence[Path]) -> Iterator[Folder]:
    """Yield a folder for each CPU package, that of its first CPU: all its CPUs have the same counts."""
    named = {text(cpu / "topology/physical_package_id") or "0": cpu for cpu in reversed(cpus)}
    for name, cpu in sorted(named.items()):
        if (cpu / "thermal_throttle").is_dir():
            yield Folder(cpu, Dimensions(package=name), PACKAGE)


class Energy:
    """Energy of CPUs by RAPL (Documentation/power/powercap/powercap.rst). Its counts wrap; only root may read them."""

    def __init__(self, sys: Path) -> None:
        """Find the domains under `sys`."""
        self._counters = Counters()
        self._domains: dict[Path, Dimensions] = {}
        self._last: dict[Path, tuple[int, int]] = {}
        """Folder of a domain -> its last count, and the sum that its wraps add."""
        for folder in sorted((sys / "class/powercap").glob("intel-rapl:*")):
            if DOMAIN.fullmatch(folder.name):
                parents = folder.name.split(":")[:-1]
                above = text(folder.parent / ":".join(parents) / "name") if len(parents) > 1 else ""
                names = (above, text(folder / "name") or folder.name)
                self._domains[folder] = Dimensions(domain="-".join(name for name in names if name))

    def __len__(self) -> int:
        return len(self._domains)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the energy since the first reading, for domains that can be read."""
        for folder, dims in self._domains.items():
            if (count := number(folder / "energy_uj")) is not None:
                last, wrapped = self._last.get(folder, (count, 0))
                if count < last:  # the count has wrapped, or restarted at 0
                    most = number(folder / "max_energy_range_uj") or 0
                    wrapped = wrapped + most if 0 < count - last + most < most / 2 else 0
                self._last[folder] = count, wrapped
                point = self._counters.total(ENERGY, at, {"uj": count + wrapped}, dims)
                yield point._replace(value=point.value / 1e6)


def sensors(chips: Sequence[Path]) -> Iterator[Folder]:
    """Yield a folder for each temperature and fan of hwmon: Documentation/hwmon/sysfs-interface.rst."""
    names = {chip: _chip_name(chip) for chip in chips}
    often = {name for name, count in Counter(names.values()).items() if count > 1}
    for chip, name in names.items():
        driver = text(chip / "name")
        total = CPU if driver in CPU_CHIPS else None
        folder = chip if any(chip.glob("*_input")) else chip / "device"  # the latter before Linux 3.15
        for match in (INPUT.fullmatch(path.name) for path in sorted(folder.glob("*_input"))):
            if match:
                row = (
                    FileRow(TEMPERATURE, match[0], 1e-3, total=total) if match[2] == "temp" else FileRow(FAN, match[0])
                )
                label = text(folder / f"{match[1]}_label") or match[1]
                chip_name = f"{name}_{driver}" if name in often else name
                yield Folder(folder, Dimensions(chip=chip_name, sensor=match[1], label=label), [row])


def _chip_name(chip: Path) -> str:
    """Return a name that stays the same after a restart: as in node_exporter, from the device and its parent folder."""
    device = chip / "device"
    parts = device.resolve().parts[-2:] if device.exists() else (text(chip / "name") or chip.name,)
    words = (re.sub(r"[^a-z0-9:_]", "_", part.lower()).strip("_") for part in parts)
    return "_".join(word for word in words if word)


def modules(folders: Sequence[Path]) -> Iterator[Folder]:
    """Yield a folder for each memory module; a label that is not unique within its controller is not used."""
    labels = {folder: text(folder / "dimm_label") for folder in folders}
    often = Counter((folder.parent, label) for folder, label in labels.items())
    for folder, label in labels.items():
        name = label if label and often[folder.parent, label] == 1 else folder.name
        yield Folder(folder, Dimensions(controller=folder.parent.name, dimm=name), MODULE)


class HardwareCollector(Collector):
    """Reads sysfs at the longer interval `every`, because some sensors answer slowly."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Options under [collectors.hardware]."""

        every: float = 15.0
        """Seconds between two readings, at least."""
        root: Path = Path("/")
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")

    metrics = (CPU, TEMPERATURE, FAN, MEMORY_ERRORS, OF_DIMM, *CPU_METRICS, *PCIE_METRICS, FAILURES)
    knows = (RiseEvidence,)
    needs = Needs(level=True, state=True)

    def __init__(self, config: Config) -> None:
        self._config, self.every = config, config.every
        self._parts: dict[str, Folders | Energy] = {}
        self._kept: LastValues | None = None
        self._past: Path | None = None
        self._failed: dict[Dimensions, list[Failure]] = {}
        """The failures of the last reading, by the dimensions of their count; none for a count that has ended."""

    def open(self, given: Given) -> None:
        """Find the hardware; raise Unavailable if there is nothing to read, as on most virtual machines."""
        self._level = given.level
        if sys.platform != "linux":
            raise Unavailable("the hardware's health is read on Linux only")
        self.close()
        folder, kept = self._config.sys, LastValues(given.state, "hardware", self._config.proc)
        memory = folder / "devices/system/edac/mc"
        parts: dict[str, Folders | Energy] = {
            "sensor": Folders(folder / "class/hwmon", "hwmon*", sensors, self._level),
            "CPU package": Folders(folder / "devices/system/cpu", "cpu[0-9]*", packages, self._level, kept=kept),
            "memory controller": Folders(memory, "mc[0-9]*", each("controller", CONTROLLER), self._level),
            "": Folders(memory, "mc[0-9]*/[dr]*[0-9]", modules, self._level, kept=kept),
            "PCIe device": Pcie(folder, self._level, kept),
        }
        if self._level >= Level.DETAILED:
            parts["energy counter"] = Energy(folder)
        self._kept = kept
        self._parts = {name: part for name, part in parts.items() if len(part)}
        self._past = file_of(given.state, self._config.root, folder) if given.state else None
        if not (self._parts or (self._past and read(self._past))):
            raise Unavailable(f"no sensor, memory controller or PCIe link in {folder}")

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield the readings; unreadable ones are left out."""
        if self._kept:
            for part in self._parts.values():
                yield from part.points(at)
            self._kept.save(at)
            self._failed = {key: [] for key in self._failed} | dict(counted(self._past, at) if self._past else ())
            yield from (FAILURES.point(at, len(found), dims) for dims, found in self._failed.items())

    def facts(self) -> Iterable[RiseEvidence]:
        """Yield a sentence about the failures that each count has."""
        return (RiseEvidence(dims, 0, sentence(found)) for dims, found in self._failed.items() if found)

    def describe(self) -> str:
        """Return the number of devices of each kind; memory modules count as parts of their controller."""
        return ", ".join(f"{len(part)} {name}{'s' * (len(part) != 1)}" for name, part in self._parts.items() if name)

    def close(self) -> None:
        """Save the counters."""
        close_all(self._kept)
