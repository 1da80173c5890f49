"""Errors and links of PCI Express: GPUs, other accelerators, network cards and NVMe drives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.host.last_values import LastValues
from chipwatch.host.procfs import number, text
from chipwatch.host.rows import FileRow, Folder, Folders

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
TOTAL: Final = re.compile(rb"^TOTAL_ERR_\w+ (\d{1,20})$", re.MULTILINE)
"""The last line of aer_dev_*: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats."""
ROWS: Final = (
    *(
        FileRow(OF_DEVICE, f"aer_dev_{kind}", pattern=TOTAL, dims=Dimensions(kind=kind), total=ERRORS)
        for kind in ("correctable", "nonfatal", "fatal")
    ),
    FileRow(SPEED, "current_link_speed", pattern=re.compile(rb"^(\d+(?:\.\d+)?) GT/s")),
)
WIDTHS: Final = frozenset({1, 2, 4, 8, 12, 16, 32})
"""Other values are not widths: 0 means no link, 63 that the device is gone."""


class Pcie(Folders):
    """All devices of the classes and vendors above."""

    def __init__(self, sys: Path, level: Level, kept: LastValues) -> None:
        """Find the devices under `sys`; an earlier run `kept` their counters."""
        self._widths: dict[Path, int] = {}
        """Lanes that both ends of a link can use, by the device's folder."""
        super().__init__(sys / "bus/pci/devices", "*", self._watched, level, kept=kept)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the values of the rows, and the widths of the links."""
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
                # The other end of the link is the port that the device is below.
                ends = (number(path / "max_link_width") for path in (folder, folder.resolve().parent))
                self._widths[folder] = min((width for width in ends if width in WIDTHS), default=0)
                yield Folder(folder, Dimensions(device=folder.name), ROWS)
