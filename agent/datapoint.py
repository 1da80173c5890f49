"""The sink-neutral data model: imports nothing from this project."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple


class Kind(enum.StrEnum):
    """How a value relates to time."""

    GAUGE = "gauge"
    """A reading now."""
    COUNTER = "counter"
    """Cumulative and monotonic since a known moment; it may start anew."""


class Level(enum.IntEnum):
    """How much is wanted: every series costs money in a cloud, so ``basic`` is the default."""

    BASIC = 1
    DETAILED = 2
    ALL = 3


class Dimensions(Mapping[str, str]):
    """
    Immutable, sorted, hashable string pairs: with the metric's name, the identity of a series.

    The hash is computed once, so a lookup by series costs the same for one pair and for thirty.
    """

    __slots__ = ("_hash", "is_text", "items_sorted")

    items_sorted: Final[tuple[tuple[str, str], ...]]
    """The pairs, sorted by key."""
    is_text: bool
    """Whether it is known that all of them are text that UTF-8 can hold: checked once, where points enter."""

    def __init__(self, pairs: Mapping[str, str] | None = None, /, **more: str) -> None:
        """Take the pairs of `pairs`, then those of `more`, which win."""
        self.items_sorted = tuple(sorted({**(pairs or {}), **more}.items()))
        self._hash = hash(self.items_sorted)
        self.is_text = False

    def __getitem__(self, key: str) -> str:
        """Return the value of `key`; raise KeyError where there is none."""
        for name, value in self.items_sorted:
            if name == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys, sorted."""
        return (name for name, _ in self.items_sorted)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.items_sorted)

    def __hash__(self) -> int:
        """Return the hash that was computed at the start."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Tell whether `other` holds the same pairs."""
        return self is other or (isinstance(other, Dimensions) and self.items_sorted == other.items_sorted)

    def __or__(self, other: Mapping[str, str]) -> Dimensions:
        """Return these pairs overlaid by those of `other`."""
        return Dimensions(self, **other)

    def __repr__(self) -> str:
        """Return the call that would build these dimensions."""
        return f"Dimensions({dict(self.items_sorted)})"


NO_DIMENSIONS: Final = Dimensions()
HIDDEN: Final = "@"
"""What the keys of dimensions begin with that the frame adds for one sink alone, and that nobody else is to see."""


class Summary(NamedTuple):
    """What a window knows of the samples of one gauge."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    sum: float
    minimum: float
    maximum: float
    values: tuple[float, ...]
    """The distinct values, ascending, at most 150; of more, neighbours are replaced by their mean."""
    counts: tuple[int, ...]
    """How often each of `values` was seen; sums to `count`."""
    last: float | None = None
    """The last sample; None where that is not known."""


class Datapoint(NamedTuple):
    """
    One measurement, or one window's worth of them.

    `at`, `window_start` and `start_time`, the moment at which a counter was zero, are nanoseconds since the epoch.
    A collector fills `metric`, `value`, `dims`, `at` and, for a counter, `start_time`; the window adds the rest.
    """

    metric: Metric
    value: float
    dims: Dimensions
    at: int
    start_time: int | None = None
    window_start: int | None = None
    """Where the time that this point speaks of begins; None for a plain sample."""
    summary: Summary | None = None
    """For a gauge of a window: its samples; `value` is then their mean."""
    increase: float | None = None
    """For a counter: by how much it rose from `window_start` to `at`; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured: declared once, as a module constant."""

    name: str
    """`<area>.<thing>.<quality>`, lower case; a promise for ever."""
    kind: Kind
    unit: str
    """A UCUM word: `%` (0 to 100), `By`, `s`, `W`, `J`, `Cel`, `MHz`, `1`, `{thread}` …"""
    help: str
    """One sentence, with a full stop."""
    level: Level = Level.BASIC
    dims: tuple[str, ...] = ()
    """The keys of the dimensions that every point of this metric carries."""

    def point(
        self, at: int, value: float, dims: Dimensions = NO_DIMENSIONS, *, start_time: int | None = None
    ) -> Datapoint:
        """Return a sample of this metric at `at` (ns since the epoch)."""
        return Datapoint(self, value, dims, at, start_time)


def gauge(name: str, unit: str, text: str, level: Level = Level.BASIC, dims: tuple[str, ...] = ()) -> Metric:
    """Declare a gauge."""
    return Metric(name, Kind.GAUGE, unit, text, level, dims)


def counter(name: str, unit: str, text: str, level: Level = Level.BASIC, dims: tuple[str, ...] = ()) -> Metric:
    """Declare a counter."""
    return Metric(name, Kind.COUNTER, unit, text, level, dims)
