"""Reads the facts of a collector: devices, processes, and what else it knows beside points."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.facts import (
    Device,
    DeviceActivity,
    DeviceFacts,
    DeviceProcess,
    MachineIdentity,
    RiseEvidence,
    Unlisted,
    names_of,
)

MOST_FACTS: Final = 10_000
"""Most facts of one type that are taken from one reading."""
NUMBERS: Final[Mapping[type, Mapping[str, Any]]] = {
    Device: {},
    DeviceProcess: dict.fromkeys(("memory", "utilization", "occupancy")) | {"pid": 0},
    DeviceActivity: dict.fromkeys(("active", "idle", "energy")) | {"throttled": 0.0, "slices": 1.0},
}
"""Types of facts about a device, with their fields that must be numbers; a field with None here may be None."""
OF_MACHINE: Final = frozenset({MachineIdentity, RiseEvidence})
"""Types of facts that the agent uses itself; no processor gets them."""


class FactsReader:
    """Reads the facts of one collector; used on the collector's thread, after a reading."""

    def __init__(
        self, name: str, collector: Collector, learn: Callable[[Mapping[str, str]], None] = lambda _: None
    ) -> None:
        """Call `learn` with values of the machine's dimensions that a reading found, when they change."""
        self._name, self._learn = name, learn
        self._facts = partial(type(collector).facts, collector)  # an attribute may hide the method
        known = type(collector).knows
        self._kinds = frozenset((*known, Unlisted) if DeviceProcess in known else known)
        self._words: Mapping[str, str] = {}
        self.evidence: Mapping[Dimensions, tuple[int, str]] = {}
        """Time of a counter's last rise (ns since the epoch) and a text that shows why, by the counter's dimensions."""
        self.has_any = not self._kinds <= OF_MACHINE
        """True if the collector may have facts for processors."""
        self.is_due = not self._kinds.isdisjoint(OF_MACHINE)
        """True if the facts must be read."""
        self._is_wanted = False

    def want(self) -> None:
        """From now on, read the facts for processors, too."""
        self._is_wanted, self.is_due = True, bool(self._kinds)

    def read(self) -> list[object]:
        """Return the facts of the last reading, for processors; raise TypeError for a fact that is malformed."""
        all_facts = [*islice(self._facts(), MOST_FACTS * (len(self._kinds) + 6))]
        if not (all_facts or self.has_any or self.evidence or self._words):
            return all_facts
        by_kind: dict[type, list[Any]] = {kind: [] for kind in (Unlisted, *NUMBERS, *OF_MACHINE, *self._kinds)}
        for fact in all_facts:
            kind: Any = type(fact)
            if kind not in self._kinds or (kind in NUMBERS and not _is_sound(kind, *map(type, fact))):
                kinds = ", ".join(kind.__name__ for kind in self._kinds)
                raise TypeError(f"expected one of {kinds} as in chipwatch.contract.facts, got {fact!r:.100}")
            by_kind[kind].append(fact)
        for each in by_kind.values():
            del each[MOST_FACTS:]
        self.evidence = {fact.dims: (fact.at, fact.text) for fact in by_kind.pop(RiseEvidence)}
        words = {word: value for fact in by_kind.pop(MachineIdentity) for word, value in fact.words.items()}
        if words != self._words:
            self._words = words
            self._learn(words)
        unlisted, devices, listed, activity = (
            by_kind.pop(kind) for kind in (Unlisted, Device, DeviceProcess, DeviceActivity)
        )
        processes = None if unlisted or DeviceProcess not in self._kinds else listed
        facts = [fact for each in by_kind.values() for fact in each]
        if processes is not None or activity or devices:
            facts.append(DeviceFacts(time.monotonic_ns(), processes, names_of(devices), activity, self._name, devices))
        return facts if self._is_wanted else []


@lru_cache(maxsize=256)
def _is_sound(kind: Any, *types: type) -> bool:
    """Return whether the fields of a fact about a device may have these types; most facts have the same ones."""
    found, numbers = dict(zip(kind._fields, types, strict=True)), NUMBERS[kind]
    are_numbers = all(issubclass(found[name], (int, float, type(default))) for name, default in numbers.items())
    return are_numbers and found["dims"] is Dimensions
