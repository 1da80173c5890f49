"""Throttling and energy of the CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import LastValues
from chipwatch.host.procfs import number, text

# fmt: off
EVENTS: Final = counter(
    "cpu.throttle.events", "{event}", "How often a CPU package was throttled for its temperature.", dims=("package",))
THROTTLED: Final = counter(
    "cpu.throttled", "s", "Time for which a package was throttled for its temperature.", Level.DETAILED, ("package",))
ENERGY: Final = counter("cpu.energy", "J", "Energy that a part of the CPUs took.", Level.DETAILED, ("domain",))
# fmt: on
METRICS: Final = (EVENTS, THROTTLED, ENERGY)
DOMAIN: Final = re.compile(r"intel-rapl:\d+(:\d+)?")
"""Of CPUs of AMD too; intel-rapl-mmio repeats some of them."""


class Throttling:
    """The counters of each package (Documentation/ABI/testing/sysfs-devices-system-cpu); Intel only."""

    def __init__(self, sys: Path, kept: LastValues) -> None:
        """Find the packages under `sys`; an earlier run `kept` their counters."""
        self._packages: dict[str, Path] = {}
        for folder in sorted((sys / "devices/system/cpu").glob("cpu[0-9]*/thermal_throttle")):
            self._packages.setdefault(text(folder.parent / "topology/physical_package_id") or "0", folder)
        self._counters = Counters(kept=kept)

    def __len__(self) -> int:
        return len(self._packages)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the counters."""
        for name, folder in self._packages.items():
            dims = Dimensions(package=name)
            if (events := number(folder / "package_throttle_count")) is not None:
                yield self._counters.point(EVENTS, at, events, dims)
            if (milliseconds := number(folder / "package_throttle_total_time_ms")) is not None:
                yield self._counters.point(THROTTLED, at, milliseconds / 1000, dims)


class _Domain:
    """One counter of energy, which wraps."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path, self._range = folder / "energy_uj", number(folder / "max_energy_range_uj") or 0
        self._dims = Dimensions(domain=name)
        self._last: int | None = None
        self._total, self._start_time = 0, 0

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the energy since the first reading."""
        now = number(self._path)
        if now is None:
            return
        if self._last is None:
            self._start_time = at
        elif now >= self._last:
            self._total += now - self._last
        else:
            gained = now - self._last + self._range
            self._total += gained if 0 < gained < self._range / 2 else now  # it wrapped, or started again at 0
        self._last = now
        yield ENERGY.point(at, self._total / 1e6, self._dims, start_time=self._start_time)


class Energy:
    """The domains of RAPL (Documentation/power/powercap/powercap.rst); only root may read them."""

    def __init__(self, sys: Path) -> None:
        """Find the domains under `sys`."""
        self._domains = []
        for folder in sorted((sys / "class/powercap").glob("intel-rapl:*")):
            if DOMAIN.fullmatch(folder.name):
                parents = folder.name.split(":")[:-1]
                above = text(folder.parent / ":".join(parents) / "name") if len(parents) > 1 else ""
                names = (above, text(folder / "name") or folder.name)
                self._domains.append(_Domain(folder, "-".join(name for name in names if name)))

    def __len__(self) -> int:
        return len(self._domains)

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the energy of those domains that can be read."""
        for domain in self._domains:
            yield from domain.points(at)
