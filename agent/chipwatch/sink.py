"""The contract of a sink."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from chipwatch.datapoint import Datapoint, Dimensions, Metric

SLACK: Final = 1.0
"""Seconds of `Limits.spacing` that a late tick may take off: the sink moves the end of such a point on by as much."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold, and how the frame treats this sink; the frame obeys, the sink need not check."""

    max_points: int
    """Points a request."""
    max_bytes: int | None = None
    """Bytes a request, as counted by the sink's `size`; None: no limit."""
    max_age: float | None = None
    """Seconds after which the far side takes a point no more; None: never."""
    one_per_series: bool = False
    """A request may hold one point a series."""
    increases: bool = False
    """Counters are taken as their increase: one whose increase is not known yet is not handed over."""
    zeros: bool = True
    """Counters that have not moved yet are handed over; False, where each series costs: only from their first move."""
    durable: bool = True
    """What is owed is kept on disk over outages and restarts."""
    max_series: int | None = None
    """Default number of series that may be sent, where each one costs; None: no limit."""
    window: float = 60.0
    """Default seconds of samples that become one point; 0: each sample is a point."""
    spacing: float = 0.0
    """Seconds that two points of a series must be apart; the least that a window may last."""
    flush: float = 10.0
    """Default seconds between two sendings; 0: at once."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A point that the far side will never take, and why (a few fixed words: reasons are counted)."""

    point: Datapoint
    reason: str


class Sink(Protocol):
    """
    Delivers one batch in one request.

    What you write: a frozen dataclass `Config` nested in the class, `__init__(self, config)` that touches
    nothing outside, `limits`, and the methods below. Register the class in the entry point group
    `chipwatch.sinks`; the entry point's name is the `type` of [sinks.NAME], and the NAME where none is given.
    A configuration may ask for several sinks of one class: keep nothing in the class or the module that they share.

    What the frame promises: every method but `status` runs on one and the same thread, which is this sink's own;
    `write` is never called before `open` succeeded, never with an empty batch, never above `limits`, oldest points
    first. So: no thread, timer, retry, buffer or sleep. Delivery is at least once.
    """

    limits: Limits
    """Set in the class, or in `__init__` where they depend on the Config."""
    hints: Sequence[str] = ()
    """
    Words of `--common-dims` that the sink itself needs, as far as they can be known.

    Each comes as a dimension of every point, under `@` and the word: never a part of what is sent as dimensions.
    """
    uses_standard_output: bool = False
    """Whether it writes to standard output: then it cannot run beside a wrapped command, to which that belongs."""
    names: str = "native"
    """Naming profile of its points, unless the configuration has one."""
    is_scraped: bool = False
    """Whether others fetch the points from it: a run of a single reading (`--once`) ends before anyone could."""
    needs: Sequence[str] = ()
    """Modules of libraries that `open` imports: asked for before the sink is built to run."""

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        """Return why no point of this series will ever be taken, or None; asked at the start, before `open`."""
        del metric, dims
        return None

    def recall(self, state: bytes) -> None:
        """Take back what `state` returned before the last restart; called before `open`, if there is any."""

    def open(self) -> None:
        """Connect; raise Retryable or Refused."""

    def prepare(self, points: Sequence[Datapoint]) -> bool:
        """
        Look at the oldest points before they are written; return whether `state` must be saved before that.

        So what the sink chooses for a point stands when the point comes again after this process was killed.
        """
        del points
        return False

    @abstractmethod
    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """
        Deliver in ONE request; return the points that will never be taken, for their own sake.

        Raise Retryable for the wire or the service, Refused for the set-up, BadBatch if some point is at fault
        and the answer does not say which, SinkClosed if the far side has left for good. Anything else is a bug: the
        batch is tried again, and a point on which alone it repeats is set aside.
        """
        ...

    def state(self) -> bytes | None:
        """Return what the sink must know after a restart, None if that is nothing new; asked after deliveries."""
        return None

    def size(self, point: Datapoint) -> int:
        """Return the bytes that `point` adds to a request; asked only where `limits.max_bytes` is set."""
        del point
        return 0

    def destination(self) -> Mapping[str, str]:
        """
        Return where the points go, in words such as region and namespace; asked before `open` and after it.

        What is spooled for one destination is sent to no other. What is not known before `open` is left out, what is
        not set is empty; nothing may be asked of a service, and nothing secret may stand there.
        """
        return {}

    def find(self, dims: Sequence[str]) -> str:
        """Return how a person finds points with these dimensions, such as the path in a console; asked after `open`."""
        del dims
        return ""

    def describe(self) -> str:
        """Say in a few words where the points go; asked by `agent check`."""
        return ""

    def status(self) -> str:
        """
        Say in a few words how it goes, in the place of how much was sent; `agent status` asks at any time.

        The only method that is called on another thread: it returns at once, and changes nothing.
        """
        return ""

    def close(self) -> None:
        """Release the connection; safe to call twice, and safe unopened."""
