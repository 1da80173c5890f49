"""
Reads metrics that neuron-monitor lacks from sysfs: power, repairable ECC errors, links and hardware errors.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-sysfs-user-guide.html
A write to a counter would clear it, so files are opened read-only. Driver 2.31 (SDK 2.33) moved files to folders
that we do not know: a file that is not at its old path is searched by name. This was not tried with that driver.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from chipwatch.collectors.neuron import metrics
from chipwatch.collectors.neuron.schema import INDEX, LARGEST
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import LastValues
from chipwatch.host.pace import Pace
from chipwatch.host.procfs import close_all, count, number, open_kept, text
from chipwatch.host.supervised_process import quoted

DEVICES: Final = "devices/virtual/neuron_device"
POWER: Final = "stats/power/utilization"
REPAIRABLE: Final = "stats/hardware/mem_ecc_repairable_uncorrected"
MOVED: Final = (2, 31)
"""First version of the driver with moved files; older versions may lack the files."""
DEPTH: Final = 5
"""Levels of folders below a device in which a file is searched."""
ERRORS: Final = {
    "hw_error": "hardware", "hw_collectives_error": "collectives", "hw_hbm_ue_error": "hbm",
    "hw_repairable_hbm_ue_error": "hbm_repairable", "hw_nc_ue_error": "core", "hw_dma_abort_error": "dma",
}  # fmt: skip
"""Folder in stats/status of a core -> kind of error: status_counter_nodes_info_tbl of neuron_sysfs_metrics.c."""
CLASS: Final = "class/neuron_device"
SIZES: Final = (4, 2)
"""Instances of an UltraServer; one with four has server_id_4 and node_id_4: npe_class_*_show_data of the driver."""
RARE: Final = 60.0
"""Seconds between two readings of cores: a machine may have 128, with hundreds of files."""
VALID: Final = b"POWER_STATUS_VALID"
NO_DATA: Final = b"POWER_STATUS_NO_DATA"
STALE: Final = 180
"""Seconds after which a mean is too old; the driver computes one every minute."""


class _Device:
    def __init__(self, folder: Path, index: str, kept: LastValues) -> None:
        self._folder, self._dims = folder, Dimensions(neuron_device=index)
        self._power, self._repairable = (open_kept(find_file(folder, path)) for path in (POWER, REPAIRABLE))
        self.lacks = [path for path, file in ((POWER, self._power), (REPAIRABLE, self._repairable)) if not file]
        self._counters = Counters(kept=kept, device=folder)

    def points(self, at: int, report: Callable[[str], None]) -> Iterator[Datapoint]:
        """Yield the readings of every tick; raise OSError if the device is gone."""
        if self._power and (share := _power(self._power.read(), at, report)) is not None:
            yield metrics.POWER.point(at, share, self._dims)
        if self._repairable:
            if (events := count(self._repairable.read())) is not None and events < LARGEST:
                yield self._counters.point(metrics.ECC_REPAIRABLE, at, events, self._dims)
            else:
                report(f"{REPAIRABLE}: not a count")

    def rare(self, at: int) -> Iterator[Datapoint]:
        """Yield the readings that rarely change; an absent file gives none."""
        if (linked := self._folder / "connected_devices").is_file():
            yield metrics.LINKS.point(at, len(re.findall(r"\d+", text(linked))), self._dims)
        for name, kind in ERRORS.items():
            files = self._folder.glob(f"neuron_core*/stats/status/{name}/total")
            counts = {file.parts[-5]: errors for file in files if (errors := number(file)) is not None}
            if counts:
                yield self._counters.total(metrics.ERRORS_OF_DEVICE, at, counts, self._dims | {"error": kind})

    def close(self) -> None:
        close_all(self._power, self._repairable)


class Devices:
    """All devices in sysfs; there may be none."""

    def __init__(
        self, sys: Path, kept: LastValues, report: Callable[[str], None], level: Level = Level.DETAILED
    ) -> None:
        """Search below `sys`; `kept`: counters from an earlier run."""
        self._sys, self._folder, self._kept, self._report = sys, sys / DEVICES, kept, report
        self._rare = Pace(RARE) if level >= Level.ALL else None
        self._devices: list[_Device] = []

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the readings of all devices."""
        if not self._devices:
            for folder in sorted(self._folder.glob("neuron*")):
                if INDEX.fullmatch(index := folder.name.removeprefix("neuron")):
                    self._devices.append(_Device(folder, index, self._kept))
            self._note_lacks()
        if self._rare and self._rare.is_due(at):
            _, node = ultraserver(self._sys)
            if node is not None:
                yield metrics.NODE.point(at, node)
            for device in self._devices:
                yield from device.rare(at)
        lost = False
        for device in self._devices:
            try:
                yield from device.points(at, self._report)
            except OSError as problem:
                self._report(f"a device in {self._folder} cannot be read: {problem.strerror}")
                lost = True
        if lost:  # the driver may have been reloaded
            self.close()

    def close(self) -> None:
        """Close the files."""
        close_all(*self._devices)
        self._devices = []

    def _note_lacks(self) -> None:
        version = [int(part) for part in text(self._sys / "module/neuron/version").split(".")[:2] if part.isdigit()]
        if version >= [*MOVED]:
            for path in dict.fromkeys(path for device in self._devices for path in device.lacks):
                self._report(f"Neuron's driver has no {path}, and no file of that name elsewhere")


def find_file(device: Path, path: str) -> Path:
    """
    Return the path of a file of a device; if it has moved, search it by name, but not below cores.

    If its name is common, its folder must also match. A counter may be a folder with the file `total`.
    """
    usual = device / path
    if usual.is_file():
        return usual
    folder, name = path.split("/")[-2:]
    for place, folders, files in os.walk(device):
        here = Path(place)
        depth = len(here.relative_to(device).parts)
        folders[:] = sorted(child for child in folders if depth < DEPTH and not child.startswith("neuron_core"))
        if name in files and (name != "utilization" or here.name == folder):
            return here / name
        if name in folders and (here / name / "total").is_file():
            return here / name / "total"
    return usual


def ultraserver(sys: Path) -> tuple[str, int | None]:
    """Return the id of the UltraServer and this instance's number in it; ("", None) without one, or if unknown."""
    for size in SIZES:
        server, node = text(sys / CLASS / f"server_id_{size}"), number(sys / CLASS / f"node_id_{size}")
        if server.strip("0") and node is not None:
            return server, node
    return "", None


def _power(line: bytes, at: int, report: Callable[[str], None]) -> float | None:
    """Parse the mean (%) of `STATUS,epoch,minimum,maximum,mean`; None if it is not valid, or too old."""
    status, *fields = line.strip().split(b",")
    if status == NO_DATA:
        return None
    if status != VALID:
        report(f"{POWER}: {quoted(status)}")
        return None
    try:
        when, _, _, mean = (float(field) for field in fields)
    except ValueError:
        report(f"{POWER}: expected STATUS,epoch,minimum,maximum,mean")
        return None
    return mean if 0 <= mean <= 100 and at / 1e9 - when <= STALE else None
