"""The contract of a sink."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from chipwatch.contract.datapoint import Datapoint

SLACK: Final = 1.0
"""Seconds by which a late tick may shorten `Limits.spacing`; the sink shifts the end time equally."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request, and options of the frame for this sink; the frame obeys, the sink need not check."""

    max_points: int
    """Points a request."""
    max_bytes: int | None = None
    """Bytes a request, as counted by the sink's `size` (extensions.IsSized); None: no limit."""
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
    hints: Sequence[str] = ()
    """
    Words of `--common-dims` that the sink itself needs, as far as they can be known.

    Each comes as a dimension of every point, under `@` and the word: never a part of what is sent as dimensions.
    """
    names: str = "native"
    """Naming profile of its points, unless the configuration has one."""
    standard_output: bool = False
    """It writes to standard output, which belongs to a wrapped command, if there is one."""
    needs: Sequence[str] = ()
    """Modules of libraries that `open` imports: looked for before the sink is built."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A point that the far side will never take, and why (a few fixed words: reasons are counted)."""

    point: Datapoint
    reason: str


class Sink(Protocol):
    """
    Delivers one batch in one request.

    Write a class with a nested frozen dataclass `Config`, `__init__(self, config)` that touches nothing outside, and
    the members below; it may derive from this one, and need not. Register it in the entry point group
    `chipwatch.sinks`: the entry point's name is the `type` of [sinks.NAME], and the NAME where none is given. A
    configuration may ask for several sinks of one class: share no state in the class or the module. What only some
    sinks do is in `chipwatch.contract.extensions`.

    Every method runs on the same thread, unless the sink has the extension `NeverWaits`. The frame never calls `write`
    before `open` succeeded, never with an empty batch, never above `limits`, oldest points first. So: no thread, timer,
    retry, buffer or sleep. Delivery is at least once.
    """

    limits: Limits
    """Set in the class, or in `__init__` where they depend on the Config."""

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

    def describe(self) -> str:
        """Return in a few words where the points go; asked by `chipwatch check`."""
        return ""

    def close(self) -> None:
        """Release the connection; safe to call twice, and before `open`."""
