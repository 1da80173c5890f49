"""The base class of sinks: plugins that send batches of points to one service."""

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
    """The limits of one request, and how the agent treats this sink. The agent keeps them; the sink need not check."""

    max_points: int
    """Most points of a request."""
    max_bytes: int | None = None
    """Most bytes of a request, as the sink's `size` counts them; None: no limit."""
    max_age: float | None = None
    """Age in seconds above which the service refuses a point; None: it takes any age."""
    one_per_series: bool = False
    """True if a request may hold only one point of each series."""
    increases: bool = False
    """True if the sink sends increases of counters. It then gets no counter whose increase is not known yet."""
    zeros: bool | None = True
    """True: send counters that are still 0. None: not the ones of events. False: none, since each series is billed."""
    durable: bool = True
    """True to keep unsent points on disk, over outages and restarts."""
    max_series: int | None = None
    """Default limit of series, for a service that bills each one; None: no limit."""
    window: float = 60.0
    """Default length of a window in seconds: its samples become one point. 0: each sample is a point."""
    spacing: float = 0.0
    """Least seconds between two points of a series, and so the least length of a window."""
    flush: float = 10.0
    """Default seconds between two deliveries; 0: deliver at once."""
    names: str = "native"
    """Default naming profile of its points."""
    standard_output: bool = False
    """True if it writes to standard output. That belongs to the command in `chipwatch run -- COMMAND`."""
    scraped: bool = False
    """True if others fetch the points from it, as Prometheus does. A run of a single reading would end too soon."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A point that the service will never take, and why. Use few and fixed reasons: they are counted."""

    point: Datapoint
    reason: str


class Sink(ABC):
    """
    Sends batches of points to one service, each in one request.

    Derive from it, with a nested frozen dataclass `Config` and an `__init__(self, config)` that touches nothing
    outside. `write` and `limits` must be there; every other method does nothing unless you write it. Register the
    class in the entry point group `chipwatch.sinks`: the entry point's name is the `type` of [sinks.NAME], and the
    NAME where none is given. A configuration may ask for several sinks of one class: share no state in the class or
    the module.

    The agent calls `write` only after `open` succeeded, never with an empty batch, never above `limits`, and with the
    oldest points first. Delivery is at least once. So a sink needs no thread, timer, retry, buffer or sleep. All calls
    come from one thread, but for `status`. The agent sets no attribute of a sink.
    """

    limits: Limits
    """Set them in the class, or in `__init__` if they depend on the Config."""
    needs: ClassVar[Needs] = Needs()
    """The things that this class needs from the agent."""

    def open(self) -> None:
        """Connect; raise Retryable or Refused."""

    @abstractmethod
    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """
        Send the batch in ONE request; return the points that the service will never take.

        Raise Retryable if the network or the service failed, Refused if the set-up is at fault, BadBatch if a point is
        at fault and the answer does not say which, SinkClosed if the reader has gone for good. Any other exception is
        a bug: the agent sends the batch again, and sets a point aside if `write` fails on it alone.
        """

    def waits(self) -> bool:
        """Return False if `write` never waits, since it only changes memory. Then the clock's thread calls it."""
        return True

    def check_start(self, dims: Collection[str]) -> str | None:
        """
        Return a warning about the configuration, or None; raise ConfigError if no point could ever be sent.

        `dims` are the keys of the machine's dimensions. Make no requests.
        """
        return None

    def destination(self) -> Mapping[str, str]:
        """
        Return where the points go, such as the region and the namespace; asked before `open` and after it.

        Points that were spooled for one destination are sent to no other. Omit unknown values; use "" for unset ones.
        Make no requests, and return no secrets.
        """
        return {}

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        """Return why the service will never take a point of this series, or None; asked at the start, before `open`."""
        return None

    def size(self, point: Datapoint) -> int:
        """Return the bytes that `point` adds to a request. Needed if `limits.max_bytes` is set."""
        raise NotImplementedError("limits.max_bytes is set, and size is missing")

    def prepare(self, points: Sequence[Datapoint]) -> bool:
        """
        Choose what must be the same if `points` are sent again, such as a request's id; called before `write`.

        Return True if `saved` must be stored before `write`. This, `saved` and `restore` are called only if
        `needs.state` is set.
        """
        return False

    def saved(self) -> bytes | None:
        """Return the state to keep over a restart, or None if it has not changed; asked after each batch."""
        return None

    def restore(self, saved: bytes) -> None:
        """Take the state that an earlier run saved, before `open`; raise ValueError if it is unreadable."""

    def find(self, dims: Sequence[str]) -> str:
        """Return how a person finds points with these dimensions, such as a path in a console; asked after `open`."""
        return ""

    def status(self) -> str:
        """
        Return its state in a few words, for `chipwatch status`; asked only if `limits.scraped` is set.

        Called at any time on another thread: return at once, and change nothing.
        """
        return ""

    def describe(self) -> str:
        """Return in a few words where the points go, for `chipwatch check`."""
        return ""

    def close(self) -> None:
        """Release the connection. The agent may call it twice, and before `open`."""


def destination_of(sink: Sink) -> dict[str, str]:
    """Return where a sink's points go; raise TypeError unless all keys and values are of type str."""
    answer: Any = sink.destination()
    if not isinstance(answer, Mapping) or not all(isinstance(word, str) for pair in answer.items() for word in pair):
        raise TypeError(f"destination: expected a mapping of str to str, got {answer!r:.80}")
    return dict(answer)
