"""The contract of a collector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from chipwatch.datapoint import Datapoint, Dimensions, Level, Metric


class DeviceProcess(NamedTuple):
    """What a device's driver tells of a process that uses it."""

    dims: Dimensions
    """Those of the device's points."""
    pid: int
    memory: float | None = None
    """Bytes of the device's memory; None if the driver does not tell."""
    utilization: float | None = None
    """Share of the device's time since the last call, in percent; None if the driver does not tell."""


class DeviceActivity(NamedTuple):
    """What a device, or a part of one that runs processes, did since its last reading; for processors only."""

    dims: Dimensions
    """Those of the device's points."""
    active: float | None = None
    """Share (0 to 1) of the time in which the device worked; None if that is not known."""
    basis: str = "point"
    """How `active` was measured: `samples` or `counter` over all the time, `point` at the end of it."""
    idle: float | None = None
    """Seconds since the device last worked, None if it did not since the last reading, or if that is not known."""
    throttled: float = 0.0
    """Share (0 to 1) of the time in which heat, a power brake or other hardware slowed the device down."""
    energy: float | None = None
    """Joules used since the last reading; None if the device does not tell."""
    slices: float = 1.0
    """Share (0 to 1) of the device's compute that this part has."""
    lost: bool = False
    """The driver reports that the device is lost."""


class DeviceFacts(NamedTuple):
    """What a collector of accelerators found beside its points, in one reading."""

    moment: int
    """When it was read (monotonic ns)."""
    processes: Sequence[DeviceProcess] | None
    """None if the driver lists no processes."""
    names: Mapping[str, Dimensions]
    activity: Sequence[DeviceActivity]
    source: str = ""
    """The name of the collector."""


class Collector(Protocol):
    """
    Reads one thing about this host.

    What you write: a frozen dataclass `Config` nested in the class, `__init__(self, config)` that touches
    nothing outside, and the methods below. Register the class in the entry point group `chipwatch.collectors`;
    the entry point's name is the configuration key and the value of `--collector`.

    What the frame promises: every method runs on one and the same thread, which is this collector's own;
    `collect` is never called before `open` succeeded, nor twice at once; an exception ends only this reading,
    and a point that is malformed is left out alone; both are told and counted. Of a reading 20,000 points are taken.
    A call that never returns costs this collector, and nobody else. So: no thread, timer, retry or sleep.
    """

    metrics: Sequence[Metric]
    """All that `collect` may yield: the catalogue is made of these."""

    dynamic: bool = False
    """Besides `metrics` it yields what it finds elsewhere, under names that are not ours."""

    follows: bool = False
    """It reads about the processes that other collectors list: `follow` is called before each `collect`."""

    level: Level = Level.ALL
    """How much is wanted; set before `open`. Use it to skip costly work: what is above is dropped anyway."""

    always: frozenset[str] = frozenset()
    """Names of metrics that are taken at any level, since `agent verdict` judges by them; sinks get what they want."""

    state: Path | None = None
    """Folder for what has to survive a restart, once it is there; None: nothing is kept. Set before `open`."""

    def open(self) -> None:
        """Acquire handles; raise Unavailable("what is missing, where it looked")."""

    @abstractmethod
    def collect(self, at: int) -> Iterable[Datapoint]:
        """
        Yield what can be read now, every point stamped `at` (ns since the epoch); a generator as a rule.

        A value that could not be had is not yielded: absent is not zero. Where some devices failed, yield the
        others and raise PartlyCollected last. A rate needs two readings: the first call then yields nothing.
        """
        ...

    def identity(self) -> Mapping[str, str]:
        """Return words of `--common-dims` that the readings told of this machine; asked after each reading."""
        return {}

    def describe(self) -> str:
        """Say in a few words what was found; asked by `agent check` after `open` and one `collect`."""
        return ""

    def models(self) -> Mapping[Dimensions, str]:
        """Return the model of each device, by the dimensions of its points; asked by `agent top` before `collect`."""
        return {}

    def processes(self) -> Iterable[DeviceProcess] | None:
        """Return the processes of all devices, None if the driver lists none; asked after `collect` if needed."""
        return None

    def evidence(self) -> Mapping[Dimensions, tuple[int, str]]:
        """Return when a counter rose last (ns since the epoch) and what shows why, by its dimensions; for verdicts."""
        return {}

    def names(self) -> Mapping[str, Dimensions]:
        """Return the dimensions of each device by the names that schedulers use: index, UUID, PCI address."""
        return {}

    def activity(self) -> Iterable[DeviceActivity]:
        """Return what each device did since the last call; asked after `collect` if a processor needs it."""
        return ()

    def facts(self) -> Iterable[object]:
        """Return what else processors need and no sink is to see; asked after `collect` if a processor needs it."""
        return ()

    def follow(self, pids: Collection[int]) -> None:
        """Take the pids that other collectors listed in this tick; called on the clock's thread if `follows`."""
        del pids

    def follow_idle(self, pids: Collection[int]) -> None:
        """Take the pids on devices that had time without work in this tick; called after `follow`."""
        del pids

    def close(self) -> None:
        """Release handles; safe to call twice, and safe unopened."""
