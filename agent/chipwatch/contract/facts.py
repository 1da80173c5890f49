"""Facts: what collectors know beside points. `Collector.facts` yields them, `Collector.knows` lists their kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from chipwatch.contract.datapoint import Dimensions


class Device(NamedTuple):
    """An accelerator, or a partition of one."""

    dims: Dimensions
    """Dimensions of the device's points."""
    model: str = ""
    ids: Sequence[str] = ()
    """The device's names in schedulers: index, UUID, PCI address."""


class DeviceProcess(NamedTuple):
    """A process that uses a device."""

    dims: Dimensions
    """Dimensions of the device's points."""
    pid: int
    memory: float | None = None
    """Bytes of the device's memory; None if the driver does not report it."""
    utilization: float | None = None
    """Share of the device's time since the last call, in percent; None if the driver does not report it."""
    occupancy: float | None = None
    """Compute units that it uses now; None if the driver does not report it."""


class DeviceActivity(NamedTuple):
    """Activity of a device, or of a partition that runs processes, since its last reading; for processors only."""

    dims: Dimensions
    """Dimensions of the device's points."""
    active: float | None = None
    """Share (0 to 1) of the time in which the device worked; None if unknown."""
    basis: str = "point"
    """Measurement of `active`: `samples` or `counter` over all the time, `point` at the end of it."""
    idle: float | None = None
    """Seconds since the device last worked; None if unknown, or if it did not work since the last reading."""
    throttled: float = 0.0
    """Share (0 to 1) of the time in which heat, a power brake or other hardware slowed the device down."""
    energy: float | None = None
    """Joules used since the last reading; None if the device does not report it."""
    slices: float = 1.0
    """Share (0 to 1) of the device's compute that this part has."""
    lost: bool = False
    """The driver reports that the device is lost."""
    unlisted: str = ""
    """Why the driver did not list the processes of this device, or not all; "" if it did."""


class Unlisted(NamedTuple):
    """The driver cannot list the processes of its devices now; without this fact, there are no others than listed."""

    why: str = ""


class MachineIdentity(NamedTuple):
    """Values for words of `--common-dims`, which a reading showed of this machine."""

    words: Mapping[str, str]


class RiseEvidence(NamedTuple):
    """Why a counter rose last, for verdicts."""

    dims: Dimensions
    """Dimensions of the counter's points."""
    at: int
    """When it rose (ns since the epoch)."""
    text: str
    """Shows why."""


class DeviceFacts(NamedTuple):
    """The facts of one reading of accelerators, together: processors get these instead of single ones."""

    moment: int
    """Time of the reading (monotonic ns)."""
    processes: Sequence[DeviceProcess] | None
    """None if the driver lists no processes."""
    names: Mapping[str, Dimensions]
    """The ids of each device -> the dimensions of its points."""
    activity: Sequence[DeviceActivity]
    source: str = ""
    """The name of the collector."""
    devices: Sequence[Device] = ()
    """The devices, with their models."""


def names_of(devices: Iterable[Device]) -> dict[str, Dimensions]:
    """Return the dimensions of devices by each of their ids."""
    return {name: device.dims for device in devices for name in device.ids}
