"""The readings of devices among the datapoints of a tick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from chipwatch.datapoint import Datapoint, Dimensions
from chipwatch.extensions import DeviceActivity, DeviceFacts
from chipwatch.processors.jobs.causes import COMPUTE
from chipwatch.processors.jobs.device import Place, place_of

UTILIZATIONS: Final = ("gpu.utilization", "neuron.core.utilization", "ipu.utilization", "tpu.duty_cycle")
"""Metrics that are a share of the last moments, used where nothing better is known."""
FELL_OFF: Final = "79"
"""The Xid of a GPU that has fallen off the bus: https://docs.nvidia.com/deploy/xid-errors/."""
NEEDED: Final = frozenset((*UTILIZATIONS, *COMPUTE, "gpu.sm.active", "gpu.memory.used", "gpu.power"))
Values = Mapping[str, float]


class DevicePoints:
    """Finds the needed values, and GPUs that have fallen off the bus."""

    def __init__(self) -> None:
        self._fallen: dict[Place, float] = {}
        """Count of Xid 79 by GPU."""

    def take(self, tick: Iterable[Datapoint]) -> tuple[dict[Place, dict[str, float]], set[Place]]:
        """Return the needed values of each device, and the GPUs that have fallen off the bus in this tick."""
        values: dict[Place, dict[str, float]] = {}
        fallen = set()
        for point in tick:
            name = point.metric.name
            if name in NEEDED and (place := place_of(point.dims)):
                values.setdefault(place, {})[name] = point.value
            elif name == "gpu.xid" and point.dims.get("xid") == FELL_OFF:
                place = place_of(point.dims)
                if point.value > self._fallen.get(place, 0):
                    fallen.add(place)
                self._fallen[place] = point.value
        return values, fallen


def from_points(reading: DeviceFacts, values: Mapping[Place, Values]) -> Iterator[DeviceActivity]:
    """Yield the activity of devices whose collector reports none, by the utilization in their points."""
    named = {place_of(dims) for dims in reading.names.values()} | {
        place_of(process.dims) for process in reading.processes or ()
    }
    for place, figures in values.items():
        percent = next((figures[name] for name in UTILIZATIONS if name in figures), None)
        if percent is not None and (place in named or place[:1] in named):
            yield DeviceActivity(Dimensions(dict(place)), min(1.0, percent / 100), "point value")
