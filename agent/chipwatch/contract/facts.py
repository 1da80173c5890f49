"""Facts: what collectors know beside points. `Collector.facts` yields them, `Collector.knows` lists their types."""

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
    """The names that schedulers give to the device: index, UUID, PCI address."""


class DeviceProcess(NamedTuple):
    """A process that uses a device."""

    dims: Dimensions
    """Dimensions of the device's points."""
    pid: int
    memory: float | None = None
    """Bytes of the device's memory that it uses; None if the driver does not say."""
    utilization: float | None = None
    """Share of the device's time that it used since the last reading, in percent; None if the driver does not say."""
    occupancy: float | None = None
    """Compute units of the device that it uses now; None if the driver does not say."""


class DeviceActivity(NamedTuple):
    """The work of a device, or of a partition that runs processes, since its last reading. Only processors get it."""

    dims: Dimensions
    """Dimensions of the device's points."""
    active: float | None = None
    """Share (0 to 1) of the time in which the device worked; None if unknown."""
    basis: str = "point"
    """The source of `active`: `samples` or `counter` cover all the time, `point` is a single look at its end."""
    idle: float | None = None
    """Seconds since the device last worked; None if unknown, or if that was before the last reading."""
    throttled: float = 0.0
    """Share (0 to 1) of the time for which heat, a power brake or other hardware slowed the device down."""
    energy: float | None = None
    """Joules used since the last reading; None if the device does not report it."""
    slices: float = 1.0
    """Share (0 to 1) of the device's compute that this partition has; 1 for a whole device."""
    lost: bool = False
    """True if the driver reports that the device is lost."""
    unlisted: str = ""
    """Reason why processes of this device are missing from the list; "" if all are there."""


class Unlisted(NamedTuple):
    """The driver cannot list the processes of its devices now. Without this fact, the list is complete."""

    why: str = ""


class MachineIdentity(NamedTuple):
    """Values for words of `--common-dims` that a reading found out about this machine."""

    words: Mapping[str, str]


class RiseEvidence(NamedTuple):
    """The reason why a counter rose last, for `chipwatch verdict`."""

    dims: Dimensions
    """Dimensions of the counter's points."""
    at: int
    """When it rose (ns since the epoch)."""
    text: str
    """A text that shows the reason, such as a line of the kernel's log."""


class DeviceFacts(NamedTuple):
    """All facts of one reading of accelerators. Processors get this in place of single facts."""

    moment: int
    """Time of the reading (monotonic ns)."""
    processes: Sequence[DeviceProcess] | None
    """The processes on the devices; None if the driver cannot list them."""
    names: Mapping[str, Dimensions]
    """Id of a device -> the dimensions of its points. A device may have several ids."""
    activity: Sequence[DeviceActivity]
    source: str = ""
    """The name of the collector."""
    devices: Sequence[Device] = ()
    """The devices, with their models."""


def names_of(devices: Iterable[Device]) -> dict[str, Dimensions]:
    """Return the dimensions of each device, by each of its ids."""
    return {name: device.dims for device in devices for name in device.ids}
