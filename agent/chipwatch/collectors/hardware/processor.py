"""Throttling and energy of the CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter
from chipwatch.host.counters import Counters
from chipwatch.host.procfs import number, text
from chipwatch.host.rows import FileRow, Folder

# fmt: off
EVENTS: Final = counter(
    "cpu.throttle.events", "{event}", "How often a CPU package was throttled for its temperature.", dims=("package",))
THROTTLED: Final = counter(
    "cpu.throttled", "s", "Time for which a package was throttled for its temperature.", Level.DETAILED, ("package",))
ENERGY: Final = counter("cpu.energy", "J", "Energy that a part of the CPUs took.", Level.DETAILED, ("domain",))
# fmt: on
METRICS: Final = (EVENTS, THROTTLED, ENERGY)
ROWS: Final = (
    FileRow(EVENTS, "thermal_throttle/package_throttle_count"),
    FileRow(THROTTLED, "thermal_throttle/package_throttle_total_time_ms", 1e-3),
)
"""Of a CPU (Documentation/ABI/testing/sysfs-devices-system-cpu); Intel only."""
DOMAIN: Final = re.compile(r"intel-rapl:\d+(:\d+)?")
"""Of CPUs of AMD too; intel-rapl-mmio repeats some of them."""


def packages(cpus: Sequence[Path]) -> Iterator[Folder]:
    """Yield the packages by their first CPU: all CPUs of a package have the same counts."""
    named = {text(cpu / "topology/physical_package_id") or "0": cpu for cpu in reversed(cpus)}
    for name, cpu in sorted(named.items()):
        if (cpu / "thermal_throttle").is_dir():
            yield Folder(cpu, Dimensions(package=name), ROWS)


class Energy:
    """The domains of RAPL (Documentation/power/powercap/powercap.rst), whose counts wrap; only root may read them."""

    def __init__(self, sys: Path) -> None:
        """Find the domains under `sys`."""
        self._counters = Counters()
        self._domains: dict[Path, Dimensions] = {}
        self._last: dict[Path, tuple[int, int]] = {}
        """The last count of a domain, and what its wraps add to it."""
        for folder in sorted((sys / "class/powercap").glob("intel-rapl:*")):
            if DOMAIN.fullmatch(folder.name):
                parents = folder.name.split(":")[:-1]
                above = text(folder.parent / ":".join(parents) / "name") if len(parents) > 1 else ""
                names = (above, text(folder / "name") or folder.name)
                self._domains[folder] = Dimensions(domain="-".join(name for name in names if name))

    def __len__(self) -> int:
        return len(self._domains)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the energy since the first reading, of those domains that can be read."""
        for folder, dims in self._domains.items():
            if (count := number(folder / "energy_uj")) is not None:
                last, wrapped = self._last.get(folder, (count, 0))
                if count < last:  # it wrapped, or started again at 0
                    most = number(folder / "max_energy_range_uj") or 0
                    wrapped = wrapped + most if 0 < count - last + most < most / 2 else 0
                self._last[folder] = count, wrapped
                point = self._counters.total(ENERGY, at, {"uj": count + wrapped}, dims)
                yield point._replace(value=point.value / 1e6)
