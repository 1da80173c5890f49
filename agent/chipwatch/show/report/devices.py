"""Accelerators as every view shows them: names, order, the metrics of each figure, and what a device does for jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.jobs.device_key import DeviceKey

TABLES: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())
FAMILIES: Final[Mapping[str, str]] = TABLES["families"]
"""Dimension with the number of a device, such as `gpu` -> title of its family."""
FIGURES: Final[Mapping[str, Sequence[str]]] = TABLES["figures"]
"""Figure of an accelerator -> the metrics that show it, the best one first."""


GROUPS: Final = {"free": "free", "lost": "lost", "unknown": "not known", "unseen": "not known"}
"""State of a device -> its group; a device in any other state is held."""


def groups(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the number of held, free, lost and unknown devices in an answer of the processor `jobs`."""
    sums = dict.fromkeys(("held", *GROUPS.values()), 0.0)
    for one in answer["counts"]:
        sums[GROUPS.get(one["dims"]["state"], "held")] += one["gpus"]
    return sums


class DeviceState(NamedTuple):
    """A device in an answer of the processor `jobs`: its jobs, and what it does for them."""

    place: Mapping[str, str] = {}
    slices: float = 1.0
    """A partition's share (0 to 1) of the device's compute; 1 for a whole device."""
    holders: Sequence[Mapping[str, str]] = ()
    """The kind, namespace and name of each job."""
    jobs: Sequence[str] = ()
    users: Sequence[str] = ()
    state: str = ""
    cause: str = ""
    reason: str = ""
    """Why nobody knows who holds the device; "" if that is known."""
    active: float | None = None
    """Share (0 to 1) of the time since the last reading in which kernels ran."""
    seconds_since_kernel: float | None = None

    @property
    def key(self) -> DeviceKey:
        """Return the device's key."""
        return tuple(self.place.items())

    def doing(self, unused: str) -> str:
        """Say what the device does, with the cause of a stall; `unused` is the text if it is held without work."""
        if self.state == "stalled" and self.cause not in ("", "other"):
            return f"stalled: {self.cause}"
        if self.reason:
            return f"{'' if self.active is None else 'busy, ' if self.active else 'idle, '}holder not known"
        return unused if self.state == "held" else self.state


def device_states(answer: Mapping[str, Any]) -> list[DeviceState]:
    """Return the devices in an answer of the processor `jobs`."""
    devices = answer.get("devices", ())
    return [DeviceState(**{name: device[name] for name in DeviceState._fields if name in device}) for device in devices]
