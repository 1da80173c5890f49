"""The base of sinks, and their limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.plugin import Needs

SLACK: Final = 1.0
"""Seconds by which a late tick may shorten `Limits.spacing`; the sink shifts the end time equally."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request, and options of the frame for this sink; the frame obeys, the sink need not check."""

    max_points: int
    """Points a request."""
    max_bytes: int | None = None
    """Bytes a request, as counted by the sink's `size`; None: no limit."""
    max_age: float | None = None
    """Age in seconds above which the service refuses a point; None: any age."""
    one_per_series: bool = False
    """A request may hold one point a series."""
    increases: bool = False
    """Counters are sent as their increase: one whose increase is not known yet is not handed over."""
    zeros: bool | None = True
    """Send counters that are still zero; None: not the ones of events; False, where series are billed: none."""
    durable: bool = True
    """Unsent points are kept on disk over outages and restarts."""
    max_series: int | None = None
    """Default number of series that may be sent, where each one costs; None: no limit."""
    window: float = 60.0
    """Default seconds of samples that become one point; 0: each sample is a point."""
    spacing: float = 0.0
    """Least seconds between two points of a series, and least length of a window."""
    flush: float = 10.0
    """Default seconds between two deliveries; 0: at once."""
    names: str = "native"
    """Naming profile of its points, unless the configuration has one."""
    standard_output: bool = False
    """It writes to standard output, which belongs to a wrapped command, if there is one."""
    scraped: bool = False
    """Others fetch the points: a run of a single reading ends before anyone could."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A point that the far side will never take, and why (a few fixed words: reasons are counted)."""

    point: Datapoint
    reason: str


class Sink(ABC):
    """
    Delivers one batch in one request.

    Derive from it, with a nested frozen dataclass `Config` and an `__init__(self, config)` that touches nothing
    outside. `write` and `limits` must be there; every other method does nothing unless you write it. Register the
    class in the entry point group `chipwatch.sinks`: the entry point's name is the `type` of [sinks.NAME], and the
    NAME where none is given. A configuration may ask for several sinks of one class: share no state in the class or
    the module.

    Every method but `status` runs on the same thread, once the sink `waits`. The agent never calls `write` before
    `open` succeeded, never with an empty batch, never above `limits`, oldest points first. So: no thread, timer, retry,
    buffer or sleep. Delivery is at least once. The agent sets no attribute of a sink.
    """

    limits: Limits
    """Set in the class, or in `__init__` where they depend on the Config."""
    needs: ClassVar[Needs] = Needs()
    """Treatment of this class by the agent."""

    def open(self) -> None:
        """Connect; raise Retryable or Refused."""

    @abstractmethod
    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """
        Deliver in ONE request; return the points that the service will never take.

        Raise Retryable for the wire or the service, Refused for the set-up, BadBatch if some point is at fault
        and the answer does not say which, SinkClosed if the reader has left for good. Anything else is a bug: the
        batch is tried again, and a point on which alone it repeats is set aside.
        """

    def waits(self) -> bool:
        """Return False if `write` only changes memory, or returns at once: then the clock's thread calls it."""
        return True

    def check_start(self, dims: Collection[str]) -> str | None:
        """
        Return a warning, or None; raise ConfigError where no point could ever be sent.

        `dims` are the names of the machine's dimensions. Make no requests.
        """
        return None

    def destination(self) -> Mapping[str, str]:
        """
        Return where the points go, in words such as region and namespace; asked before `open` and after it.

        Points that are spooled for one destination are sent to no other. Omit unknown values; use "" for unset ones. No
        requests, no secrets.
        """
        return {}

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        """Return why no point of this series will ever be taken, or None; asked at the start, before `open`."""
        return None

    def size(self, point: Datapoint) -> int:
        """Return the bytes that `point` adds to a request; needed where `limits.max_bytes` is set."""
        raise NotImplementedError("limits.max_bytes is set, and size is missing")

    def prepare(self, points: Sequence[Datapoint]) -> bool:
        """
        Choose what must stay when `points` come again; return whether `saved` must be stored before `write`.

        Asked, as the next two, where `needs` has `state`.
        """
        return False

    def saved(self) -> bytes | None:
        """Return what it must know after a restart, None to keep the last; asked after each batch."""
        return None

    def restore(self, saved: bytes) -> None:
        """Take the state of an earlier process, before `open`; raise ValueError if it is unreadable."""

    def find(self, dims: Sequence[str]) -> str:
        """Return how a person finds points with these dimensions, such as the path in a console; asked after `open`."""
        return ""

    def status(self) -> str:
        """
        Return in a few words how it goes; `chipwatch status` asks a sink that is `scraped`, at any time.

        Called on another thread: return at once, and change nothing.
        """
        return ""

    def describe(self) -> str:
        """Return in a few words where the points go; asked by `chipwatch check`."""
        return ""

    def close(self) -> None:
        """Release the connection; safe to call twice, and before `open`."""


def destination_of(sink: Sink) -> dict[str, str]:
    """Return where a sink's points go; raise TypeError unless keys and values are texts."""
    answer: Any = sink.destination()
    if not isinstance(answer, Mapping) or not all(isinstance(word, str) for pair in answer.items() for word in pair):
        raise TypeError(f"destination: expected a mapping of str to str, got {answer!r:.80}")
    return dict(answer)
