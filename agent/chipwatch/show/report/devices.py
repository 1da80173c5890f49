"""The one model of accelerators for people: names, order, figures, and what a device does for its jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.contract.datapoint import Dimensions

TABLES: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())
FAMILIES: Final[Mapping[str, str]] = TABLES["families"]
"""Dimension that numbers a family's devices -> the family's title."""
PARTS: Final[Mapping[str, str]] = TABLES["parts"]
"""Dimension that numbers a family's devices -> dimension that numbers their parts."""
FIGURES: Final[Mapping[str, Sequence[str]]] = TABLES["figures"]
"""Figure of an accelerator -> its metrics, the best one first."""
Key = tuple[tuple[str, str], ...]
"""Dimension and number of a device, and of its part if it is one."""


@lru_cache(maxsize=20_000)
def key_of(dims: Dimensions) -> Key:
    """Return the key of the device or part that these dimensions name, () if they name none."""
    for family in FAMILIES:
        if number := dims.get(family):
            part = PARTS.get(family, "")
            return ((family, number), *([(part, dims[part])] if part in dims else []))
    return ()


def label(key: Key) -> str:
    """Return the numbers of a device and its part: 0.1."""
    return ".".join(number for _, number in key)


def order(key: Key) -> list[tuple[str, bool, int, str]]:
    """Return the place of a device among others: by family, then by number."""
    return [(dimension, not number.isdecimal(), len(number), number) for dimension, number in key]


GROUPS: Final = {"free": "free", "lost": "lost", "unknown": "not known", "unseen": "not known"}
"""State of a device -> its group; a device in any other state is held."""


def groups(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return how many devices of an answer of the processor `jobs` are held, free, lost and not known: all of them."""
    sums = dict.fromkeys(("held", *GROUPS.values()), 0.0)
    for one in answer["counts"]:
        sums[GROUPS.get(one["dims"]["state"], "held")] += one["gpus"]
    return sums


class DeviceState(NamedTuple):
    """A device in an answer of the processor `jobs`: its jobs, and what it does for them."""

    place: Mapping[str, str] = {}
    slices: float = 1.0
    """Share (0 to 1) of the device's compute that this part has."""
    holders: Sequence[Mapping[str, str]] = ()
    """Kind, namespace and name of each job."""
    jobs: Sequence[str] = ()
    users: Sequence[str] = ()
    state: str = ""
    cause: str = ""
    reason: str = ""
    """Why nobody knows who holds it."""
    active: float | None = None
    """Share (0 to 1) of the time since the last reading in which kernels ran."""
    seconds_since_kernel: float | None = None

    @property
    def key(self) -> Key:
        """Return the device's key."""
        return tuple(self.place.items())

    def doing(self, unused: str) -> str:
        """Return what the device does, with the cause of a stall; `unused`: the text for a held device."""
        if self.state == "stalled" and self.cause not in ("", "other"):
            return f"stalled: {self.cause}"
        if self.reason:
            return f"{'' if self.active is None else 'busy, ' if self.active else 'idle, '}holder not known"
        return unused if self.state == "held" else self.state


def device_states(answer: Mapping[str, Any]) -> list[DeviceState]:
    """Return the devices of an answer of the processor `jobs`."""
    devices = answer.get("devices", ())
    return [DeviceState(**{name: device[name] for name in DeviceState._fields if name in device}) for device in devices]
