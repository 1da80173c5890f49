"""
Abilities of some plugins: small protocols beside the contracts of collector, processor and sink.

A plugin has an extension if it has its members: the frame asks by isinstance. Nothing has to be derived or registered.
Methods run on the thread of the plugin's other methods, unless a sentence says otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric

# -- accelerators ------------------------------------------------------------------------------------------------------


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


class DeviceFacts(NamedTuple):
    """One reading of a collector of accelerators, beside its points."""

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


@runtime_checkable
class HasDevices(Protocol):
    """A collector of accelerators."""

    @abstractmethod
    def devices(self) -> Iterable[Device]:
        """Return the devices; asked after `collect`."""


def names_of(devices: Iterable[Device]) -> dict[str, Dimensions]:
    """Return the dimensions of devices by each of their ids."""
    return {name: device.dims for device in devices for name in device.ids}


@runtime_checkable
class HasProcesses(Protocol):
    """A collector whose driver lists the processes of its devices."""

    @abstractmethod
    def processes(self) -> Iterable[DeviceProcess] | None:
        """Return the processes of all devices, None if the driver lists none now; asked after `collect`, if needed."""


@runtime_checkable
class HasActivity(Protocol):
    """A collector that knows how busy its devices were between two readings."""

    @abstractmethod
    def activity(self) -> Iterable[DeviceActivity]:
        """Return the activity of each device since the last call; asked after `collect`, if a processor needs it."""


# -- collectors --------------------------------------------------------------------------------------------------------


@runtime_checkable
class ReadsByLevel(Protocol):
    """A collector that skips costly work below a level; points above the level are dropped in any case."""

    level: Level
    """The highest level that any sink wants; set before `open`."""


@runtime_checkable
class NeverWaits(Protocol):
    """
    A collector of files that the kernel answers from its memory, such as /proc/stat: the clock's thread reads it.

    No driver, file system, process, socket, lock or sleep can hold it up. A sink whose `write` only changes memory, or
    returns at once, too.
    """

    never_waits: bool
    """True while that is so; read before each `open`, of a sink once."""


@runtime_checkable
class YieldsOtherNames(Protocol):
    """A collector that yields metrics of other programs too, beside its own `metrics`."""

    dynamic: bool
    """True as configured."""


@runtime_checkable
class HasFacts(Protocol):
    """A collector that knows more than points, for processors only."""

    @abstractmethod
    def facts(self) -> Iterable[object]:
        """Return the facts of this reading; asked after `collect`, if a processor needs them."""


@runtime_checkable
class Follows(Protocol):
    """A collector that reads about the processes that other collectors list; it is asked after them."""

    @abstractmethod
    def follow(self, pids: Collection[int]) -> None:
        """Take the pids that other collectors listed in this tick; called before `collect`, on the clock's thread."""


@runtime_checkable
class FollowsIdle(Protocol):
    """A follower that reads more about processes on devices that had time without work."""

    @abstractmethod
    def follow_idle(self, pids: Collection[int]) -> None:
        """Take the pids on devices that had time without work in this tick; called after `follow`."""


@runtime_checkable
class HasVerdictMetrics(Protocol):
    """A collector with metrics that are read at any level, since `chipwatch verdict` judges by them."""

    always: frozenset[str]
    """The names of these metrics; a sink gets only what its level asks for."""


@runtime_checkable
class CountsEvents(Protocol):
    """A collector of counters that are points only once there was an event, unless a sink needs them at 0."""

    events: frozenset[str]
    """The names of these metrics."""
    zeros: bool
    """Yield them also at 0; set before `open`."""


@runtime_checkable
class HasIdentity(Protocol):
    """A collector whose readings identify this machine."""

    @abstractmethod
    def identity(self) -> Mapping[str, str]:
        """Return values for words of `--common-dims`; asked after each reading."""


@runtime_checkable
class HasEvidence(Protocol):
    """A collector that can show why a counter rose, for verdicts."""

    @abstractmethod
    def evidence(self) -> Mapping[Dimensions, tuple[int, str]]:
        """Return when a counter rose last (ns since the epoch) and a text that shows why, by its dimensions."""


@runtime_checkable
class HasSilent(Protocol):
    """A collector that knows which of its devices do not answer, for verdicts; asked by other threads, too."""

    asking: str
    """The answer that a reading waits for now, such as `GPU 3: NVML`; empty if that is not known."""

    @abstractmethod
    def silent(self) -> Mapping[Dimensions, str]:
        """Return the devices that are there and could not be read, and why."""


@runtime_checkable
class KeepsFiles(Protocol):
    """A collector that keeps files over a restart."""

    state: Path | None
    """Folder for them; None: keep nothing. Set before `open`."""


# -- processors --------------------------------------------------------------------------------------------------------


@runtime_checkable
class NeedsFacts(Protocol):
    """A processor that needs the facts of collectors: devices, processes, activity, jobs."""

    facts: Sequence[object]
    """The facts of this tick; set before `derive`."""


@runtime_checkable
class NeedsDevices(Protocol):
    """A processor, or a collector that follows others, with nothing to do where no collector finds a device."""

    needs_devices: bool
    """True: the processor is not called until one has found a device; the collector is read once, and then too."""


@runtime_checkable
class Answers(Protocol):
    """A processor that a command shows while the agent runs."""

    @abstractmethod
    def answer(self) -> Mapping[str, Any]:
        """Return what `chipwatch NAME` shows, as JSON; called on the status socket's thread."""


@runtime_checkable
class KeepsState(Protocol):
    """A processor or sink that must know something after a restart."""

    @abstractmethod
    def saved(self) -> bytes | None:
        """Return the state, None to keep the last one; asked after each `derive` of a processor or batch of a sink."""

    @abstractmethod
    def restore(self, saved: bytes) -> None:
        """Take the state of an earlier process, before the first `derive` or `open`; raise ValueError if unreadable."""


@runtime_checkable
class LeavesRecords(Protocol):
    """A processor that writes down what has ended, for later."""

    append: Callable[[Sequence[Mapping[str, object]]], None] | None
    """Adds records to the state folder, or raises OSError; None as long as there is no folder. Set before `derive`."""


@runtime_checkable
class NotesJobs(Protocol):
    """A processor that knows why a job is slow."""

    note: Callable[[str, str, bool], None] | None
    """Takes a job, a sentence and whether it is slow, for recordings; None: there are none. Set before `derive`."""


def state_of(plugin: KeepsState) -> bytes | None:
    """Return the state that a plugin wants to keep; raise TypeError unless it is bytes or None."""
    state: Any = plugin.saved()
    if state is not None and not isinstance(state, bytes):
        raise TypeError(f"expected bytes, got {type(state).__name__}")
    return state


# -- sinks -------------------------------------------------------------------------------------------------------------


@runtime_checkable
class HasDestination(Protocol):
    """A sink whose points belong to one place: points that are spooled for one destination are sent to no other."""

    @abstractmethod
    def destination(self) -> Mapping[str, str]:
        """
        Return where the points go, in words such as region and namespace; asked before `open` and after it.

        Omit unknown values; use "" for unset ones. No requests, no secrets.
        """


@runtime_checkable
class Refuses(Protocol):
    """A sink that knows beforehand which series its service never takes."""

    @abstractmethod
    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        """Return why no point of this series will ever be taken, or None; asked at the start, before `open`."""


@runtime_checkable
class IsSized(Protocol):
    """A sink whose requests have a limit of bytes; needed where `limits.max_bytes` is set."""

    @abstractmethod
    def size(self, point: Datapoint) -> int:
        """Return the bytes that `point` adds to a request."""


@runtime_checkable
class Prepares(Protocol):
    """A sink that chooses something for each point, and must choose the same when the point comes again."""

    @abstractmethod
    def prepare(self, points: Sequence[Datapoint]) -> bool:
        """Look at points before they are written; return whether `saved` must be stored before that."""


@runtime_checkable
class HasConsole(Protocol):
    """A sink whose service has pages that show the points."""

    @abstractmethod
    def find(self, dims: Sequence[str]) -> str:
        """Return how a person finds points with these dimensions, such as the path in a console; asked after `open`."""


@runtime_checkable
class ChecksStart(Protocol):
    """A sink that knows before a run that something is missing."""

    @abstractmethod
    def check_start(self, dims: Collection[str]) -> str | None:
        """
        Return a warning, or None; raise ConfigError where no point could ever be sent.

        `dims` are the names of the machine's dimensions. Make no requests.
        """


@runtime_checkable
class IsScraped(Protocol):
    """A sink from which others fetch the points: a run of a single reading ends before anyone could."""

    @abstractmethod
    def status(self) -> str:
        """
        Return in a few words how it goes, in place of the number of points sent; `chipwatch status` asks at any time.

        Called on another thread: return at once, and change nothing.
        """


def destination_of(sink: object) -> dict[str, str]:
    """Return where a sink's points go, {} without HasDestination; raise TypeError unless keys and values are texts."""
    answer: Any = sink.destination() if isinstance(sink, HasDestination) else {}
    if not isinstance(answer, Mapping) or not all(isinstance(word, str) for pair in answer.items() for word in pair):
        raise TypeError(f"destination: expected a mapping of str to str, got {answer!r:.80}")
    return dict(answer)
