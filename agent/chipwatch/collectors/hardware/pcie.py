"""Errors and links of PCI Express: GPUs, other accelerators, network cards and NVMe drives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import LastValues
from chipwatch.host.procfs import number, text

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
METRICS: Final = (ERRORS, OF_DEVICE, DEGRADED, WIDTH, EXPECTED, SPEED)
CLASSES: Final = ("0x0108", "0x02", "0x03", "0x12")
"""NVMe, network, display, processing accelerator (PCI Code and ID Assignment Specification)."""
VENDORS: Final = frozenset({"0x1ae0", "0x1d0f"})
"""Google and Amazon, whose accelerators have other classes."""
KINDS: Final = ("correctable", "nonfatal", "fatal")
TOTAL: Final = re.compile(r"^TOTAL_ERR_\w+ (\d{1,20})$", re.MULTILINE)
"""The last line of aer_dev_*: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats."""
WIDTHS: Final = frozenset({1, 2, 4, 8, 12, 16, 32})
"""Other values are not widths: 0 means no link, 63 that the device is gone."""
RATE: Final = re.compile(r"(\d+(?:\.\d+)?) GT/s")


class _Device:
    """One device that we watch."""

    def __init__(self, folder: Path, kept: LastValues) -> None:
        self.counters = Counters(kept=kept, device=folder)
        self._folder, self.dims = folder, Dimensions(device=folder.name)
        # The other end of the link: the port that the device is below.
        widths = (number(path / "max_link_width") for path in (folder, folder.resolve().parent))
        self._expected = min((width for width in widths if width in WIDTHS), default=None)

    def errors(self) -> dict[str, int]:
        """Return the errors by kind; none where the kernel does not count them."""
        totals = {kind: TOTAL.search(text(self._folder / f"aer_dev_{kind}")) for kind in KINDS}
        return {kind: int(total[1]) for kind, total in totals.items() if total}

    def link(self) -> tuple[int, int] | None:
        """Return the lanes in use and the lanes that both ends can use, None without a link."""
        width = number(self._folder / "current_link_width")
        return (width, self._expected) if width in WIDTHS and self._expected else None

    def speed(self) -> float | None:
        """Return the speed in GT/s, None without a link."""
        rate = RATE.match(text(self._folder / "current_link_speed"))
        return float(rate[1]) if rate else None


class Pcie:
    """All devices of the classes and vendors above."""

    def __init__(self, sys: Path, level: Level, kept: LastValues) -> None:
        """Find the devices under `sys`; an earlier run `kept` their counters."""
        self._folder, self._level = sys / "bus/pci/devices", level
        self._counters, self._kept = Counters(), kept
        self._devices: dict[str, _Device | None] = {}
        self._find()

    def __len__(self) -> int:
        return sum(device is not None for device in self._devices.values())

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the sums, and at Level.DETAILED the readings of each device."""
        self._find()
        devices = {name: device for name, device in self._devices.items() if device}
        errors = {name: device.errors() for name, device in devices.items()}
        for kind in KINDS:
            if members := {name: counts[kind] for name, counts in errors.items() if kind in counts}:
                yield self._counters.total(ERRORS, at, members, Dimensions(kind=kind))
        links = {name: link for name, device in devices.items() if (link := device.link())}
        if links:
            yield DEGRADED.point(at, sum(width < expected for width, expected in links.values()))
        if self._level >= Level.DETAILED:
            for name, device in devices.items():
                for kind, count in errors[name].items():
                    yield device.counters.point(OF_DEVICE, at, count, device.dims | {"kind": kind})
                if name in links:
                    yield WIDTH.point(at, links[name][0], device.dims)
                    yield EXPECTED.point(at, links[name][1], device.dims)
                if speed := device.speed():
                    yield SPEED.point(at, speed, device.dims)

    def _find(self) -> None:
        """Note the devices on the bus; None stands for one that we do not watch."""
        try:
            folders = {folder.name: folder for folder in sorted(self._folder.iterdir())}
        except OSError:
            folders = {}
        devices = self._devices
        self._devices = {
            name: devices[name] if name in devices else self._watched(folder) for name, folder in folders.items()
        }

    def _watched(self, folder: Path) -> _Device | None:
        is_ours = text(folder / "class").startswith(CLASSES) or text(folder / "vendor") in VENDORS
        has_files = any((folder / name).exists() for name in ("aer_dev_fatal", "current_link_width"))
        return _Device(folder, self._kept) if is_ours and has_files else None
