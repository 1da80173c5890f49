"""Asks a collector what it knows beside points: devices, processes, activity and other facts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.extensions import (
    Device,
    DeviceActivity,
    DeviceFacts,
    DeviceProcess,
    HasActivity,
    HasDevices,
    HasFacts,
    HasProcesses,
    names_of,
)

F = TypeVar("F", bound=Device | DeviceActivity | DeviceProcess)

MOST_FACTS: Final = 10_000
"""Processes, activities and other facts, of each kind, that are taken from one reading."""
NUMBERS: Final = {
    DeviceProcess: ("pid", "memory", "utilization", "occupancy"),
    DeviceActivity: ("active", "idle", "throttled", "energy", "slices"),
}
"""Fields of facts that are numbers, or None where that is their default."""


class FactsReader:
    """Reads the facts of one collector; used on the collector's thread, after a reading."""

    def __init__(self, name: str, collector: Collector) -> None:
        # Each is asked once whether it is there: isinstance takes microseconds.
        self._name = name
        self._processes = collector.processes if isinstance(collector, HasProcesses) else None
        self._activity = collector.activity if isinstance(collector, HasActivity) else None
        self._devices = collector.devices if isinstance(collector, HasDevices) else None
        self._others = collector.facts if isinstance(collector, HasFacts) else None
        self.has_any = any((self._processes, self._activity, self._devices, self._others))
        """True if the collector may know something."""
        self.is_wanted = False
        """True if a processor needs it."""

    def read(self) -> list[object]:
        """Return the facts of the last reading; raise TypeError for one that would break the clock or a processor."""
        listed = self._processes() if self._processes else None
        processes = None if listed is None else _checked(listed, DeviceProcess)
        activity = _checked(self._activity(), DeviceActivity) if self._activity else []
        facts = [*islice(self._others(), MOST_FACTS)] if self._others else []
        devices = _checked(self._devices(), Device) if self._devices else []
        if processes is not None or activity or devices:
            names = names_of(devices)
            facts.append(DeviceFacts(time.monotonic_ns(), processes, names, activity, self._name, devices))
        return facts


def _checked(facts: Iterable[F], kind: type[F]) -> list[F]:
    checked, names = [*islice(facts, MOST_FACTS)], NUMBERS.get(kind, ())
    for fact in checked:
        is_sound = type(fact) is kind and type(fact.dims) is Dimensions
        for name in names if is_sound else ():
            number = getattr(fact, name)
            is_sound &= isinstance(number, (int, float)) or number is kind._field_defaults.get(name, 0)
        if not is_sound:
            raise TypeError(f"expected {kind.__name__} as in chipwatch.contract.extensions, got {fact!r:.100}")
    return checked
