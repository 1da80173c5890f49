"""The data that flows from collectors to sinks: metrics, dimensions and datapoints. No sink's terms are in it."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakValueDictionary


class Kind(enum.StrEnum):
    """The two kinds of metrics, as in Prometheus."""

    GAUGE = "gauge"
    """A reading now."""
    COUNTER = "counter"
    """A cumulative value that only grows; after a reset it starts again at 0."""


class Level(enum.IntEnum):
    """The amount of metrics to send. Every series costs money in a cloud, so BASIC is the default."""

    BASIC = 1
    DETAILED = 2
    ALL = 3


COUNTER: Final = Kind.COUNTER
"""For code that looks at each point: reading it takes half the time of an enum's member."""
_interned: Final[WeakValueDictionary[tuple[tuple[str, str], ...], Dimensions]] = WeakValueDictionary()
_interning: Final = Lock()


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode `text`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Dimensions(Mapping[str, str]):
    """
    The labels of a series: immutable pairs of strings, sorted by key.

    Dimensions with equal pairs are the same object. So comparing and hashing them is quick, however many pairs they
    have.
    """

    __slots__ = ("__weakref__", "is_text", "items_sorted")

    items_sorted: Final[tuple[tuple[str, str], ...]]  # type: ignore[misc]  # set in __new__
    """The pairs of key and value, sorted by key."""
    is_text: bool
    """True if all keys and values are of type str itself, and UTF-8 can encode them."""

    def __new__(cls, pairs: Mapping[str, str] | None = None, /, **more: str) -> Dimensions:  # noqa: PYI034
        """Return the dimensions with `pairs` and `more`; if both have a key, `more` wins."""
        items = tuple(sorted({**(pairs or {}), **more}.items()))
        if (existing := _interned.get(items)) is not None:
            return existing
        dims = super().__new__(cls)
        dims.items_sorted, dims.is_text = items, False  # type: ignore[misc]
        texts = [*chain.from_iterable(items)]
        if not {*map(type, texts)} <= {str}:
            return dims  # do not intern subclasses of str: they equal a plain str
        dims.is_text = is_utf8("".join(texts))
        with _interning:
            return _interned.setdefault(items, dims)

    def __getitem__(self, key: str) -> str:
        """Return the value of `key`; raise KeyError if there is none."""
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

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __reduce__(self) -> tuple[type[Dimensions], tuple[dict[str, str]]]:
        """Make `copy` and `pickle` return the object that exists already."""
        return Dimensions, (dict(self.items_sorted),)

    def __or__(self, other: Mapping[str, str]) -> Dimensions:
        """Return the dimensions with these pairs and `other`; if both have a key, `other` wins."""
        return Dimensions(self, **other)

    def __repr__(self) -> str:
        """Return the call that would build these dimensions."""
        return f"Dimensions({dict(self.items_sorted)})"


DEVICES: Final = ("gpu", "mig", "neuron_device", "neuron_core", "ipu", "tpu")
"""Keys of dimensions that identify an accelerator; the key of a partition comes after its device's."""
NO_DIMENSIONS: Final = Dimensions()
HIDDEN: Final = "@"
"""Prefix of the keys of internal dimensions: the agent adds them for one sink, which does not send them."""


class Summary(NamedTuple):
    """The samples of one gauge in one window."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    sum: float
    minimum: float
    maximum: float
    values: tuple[float, ...]
    """The distinct values, ascending, at most 150; if there were more, neighbours are merged into their mean."""
    counts: tuple[int, ...]
    """The number of samples at each of `values`; their sum is `count`."""
    last: float | None = None
    """The last sample; None if it is not known."""


class Datapoint(NamedTuple):
    """
    One sample of a series, or the samples of one window.

    `at`, `start_time` and `window_start` are nanoseconds since the epoch; `start_time` is when the counter was zero. A
    collector sets `metric`, `value`, `dims`, `at` and, for a counter, `start_time`. The agent sets the rest.
    """

    metric: Metric
    value: float
    dims: Dimensions
    at: int
    start_time: int | None = None
    window_start: int | None = None
    """Start of the window that this point covers; None for a plain sample."""
    summary: Summary | None = None
    """For a gauge: the samples of the window; `value` is their mean. None for a plain sample."""
    increase: float | None = None
    """For a counter: its increase from `window_start` to `at`; None if unknown."""


new: Final = tuple.__new__
"""Makes a Datapoint or a Summary in half the time of a call with its fields."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity that is measured. Declare each metric once, as a constant of a module."""

    name: str
    """`<area>.<thing>.<quality>` in lower case, such as `gpu.memory.used`. It never changes: dashboards use it."""
    kind: Kind
    unit: str
    """The unit in UCUM: `%` (0 to 100), `By`, `s`, `W`, `J`, `Cel`, `MHz`, `1`, `{thread}` …"""
    help: str
    """One sentence that ends with a full stop."""
    level: Level = Level.BASIC
    dims: tuple[str, ...] = ()
    """The keys of the dimensions that every point of this metric has."""
    owner: tuple[str, ...] = ()
    """The keys in `dims` that say who holds the device; the agent adds them for one sink."""

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        """Raise TypeError if `level` is not a Level."""
        if type(self.level) is not Level:
            raise TypeError(f"{self.name}: expected a Level, such as Level.DETAILED, got {self.level!r}")

    @property
    def counts_events(self) -> bool:
        """True for a counter of events, such as `{error}`; False for one of an amount, such as `By`."""
        return self.kind is Kind.COUNTER and self.unit.startswith("{")

    def point(
        self, at: int, value: float, dims: Dimensions = NO_DIMENSIONS, *, start_time: int | None = None
    ) -> Datapoint:
        """Return a sample of this metric at `at` (ns since the epoch)."""
        return new(Datapoint, (self, value, dims, at, start_time, None, None, None))


def start_after(last: int, start_time: int, at: int) -> int:
    """
    Return a start time for a counter that was reset between its readings at `last` and `at` (ns since the epoch).

    It is later than the old `start_time`, by at least a millisecond if there is room: some sinks write milliseconds.
    """
    return min(max(last, min(start_time + 1_000_000, at - 1)), at)


def gauge(name: str, unit: str, help: str, level: Level = Level.BASIC, dims: tuple[str, ...] = ()) -> Metric:  # noqa: A002  # as the field
    """Declare a gauge; raise TypeError for a level that is not a Level."""
    return Metric(name, Kind.GAUGE, unit, help, level, dims)


def counter(name: str, unit: str, help: str, level: Level = Level.BASIC, dims: tuple[str, ...] = ()) -> Metric:  # noqa: A002  # as the field
    """Declare a counter; raise TypeError for a level that is not a Level."""
    return Metric(name, Kind.COUNTER, unit, help, level, dims)
