"""The sink-neutral data model: imports nothing from this project."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakValueDictionary


class Kind(enum.StrEnum):
    """The relation of a value to time."""

    GAUGE = "gauge"
    """A reading now."""
    COUNTER = "counter"
    """Cumulative and monotonic since a known moment; it may start again at 0."""


class Level(enum.IntEnum):
    """Amount of metrics: every series costs money in a cloud, so ``basic`` is the default."""

    BASIC = 1
    DETAILED = 2
    ALL = 3


_interned: Final[WeakValueDictionary[tuple[tuple[str, str], ...], Dimensions]] = WeakValueDictionary()
_interning: Final = Lock()
TEXT: Final = frozenset({str})


def is_utf8(text: str) -> bool:
    """Return whether UTF-8 can encode `text`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Dimensions(Mapping[str, str]):
    """
    Immutable, sorted string pairs: with the metric's name, the identity of a series.

    Equal pairs are one object, so a lookup by series hashes and compares an address, whatever the number of pairs.
    """

    __slots__ = ("__weakref__", "is_text", "items_sorted")

    items_sorted: Final[tuple[tuple[str, str], ...]]  # type: ignore[misc]  # set in __new__
    """The pairs, sorted by key."""
    is_text: bool
    """True if all of them are plain text that UTF-8 can encode."""

    def __new__(cls, pairs: Mapping[str, str] | None = None, /, **more: str) -> Dimensions:  # noqa: PYI034
        """Take `pairs` and `more`, which wins where both have a key."""
        items = tuple(sorted({**(pairs or {}), **more}.items()))
        if (existing := _interned.get(items)) is not None:
            return existing
        dims = super().__new__(cls)
        dims.items_sorted, dims.is_text = items, False  # type: ignore[misc]
        texts = [*chain.from_iterable(items)]
        if not {*map(type, texts)} <= TEXT:
            return dims  # do not intern subclasses of str: they equal a plain str
        dims.is_text = is_utf8("".join(texts))
        with _interning:
            return _interned.setdefault(items, dims)

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

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __reduce__(self) -> tuple[type[Dimensions], tuple[dict[str, str]]]:
        """Make a copy return the interned object itself."""
        return Dimensions, (dict(self.items_sorted),)

    def __or__(self, other: Mapping[str, str]) -> Dimensions:
        """Return these pairs and `other`, which wins where both have a key."""
        return Dimensions(self, **other)

    def __repr__(self) -> str:
        """Return the call that would build these dimensions."""
        return f"Dimensions({dict(self.items_sorted)})"


DEVICES: Final = ("gpu", "mig", "neuron_device", "neuron_core", "ipu", "tpu")
"""Keys that identify an accelerator; the key of a partition follows its device's."""
NO_DIMENSIONS: Final = Dimensions()
HIDDEN: Final = "@"
"""Prefix of the keys of internal dimensions, which the frame adds for one sink; never exported."""


class Summary(NamedTuple):
    """The samples of one gauge in one window."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    sum: float
    minimum: float
    maximum: float
    values: tuple[float, ...]
    """The distinct values, ascending, at most 150; of more, neighbours are replaced by their mean."""
    counts: tuple[int, ...]
    """The number of samples at each of `values`; sums to `count`."""
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
    """Start of the time that this point covers; None for a plain sample."""
    summary: Summary | None = None
    """For a gauge of a window: its samples; `value` is then their mean."""
    increase: float | None = None
    """For a counter: its increase from `window_start` to `at`, None if unknown."""


_new: Final = tuple.__new__  # in half the time of a call with the fields


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity: declared once, as a module constant."""

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

    def __post_init__(self) -> None:
        """Raise TypeError for a level that is not one: it is compared at the start of every run."""
        if type(self.level) is not Level:
            raise TypeError(f"{self.name}: expected a Level, such as Level.DETAILED, got {self.level!r}")

    @property
    def counts_events(self) -> bool:
        """True for a counter of things, such as `{error}`, and not of an amount, such as `By`."""
        return self.kind is Kind.COUNTER and self.unit.startswith("{")

    def point(
        self, at: int, value: float, dims: Dimensions = NO_DIMENSIONS, *, start_time: int | None = None
    ) -> Datapoint:
        """Return a sample of this metric at `at` (ns since the epoch)."""
        return _new(Datapoint, (self, value, dims, at, start_time, None, None, None))


def start_after(last: int, start_time: int, at: int) -> int:
    """
    Return the start time of a counter that fell between its readings at `last` and `at` (ns since the epoch).

    It is newer than the `start_time` so far, by a millisecond if there is room: sinks write no shorter times.
    """
    return min(max(last, min(start_time + 1_000_000, at - 1)), at)


def gauge(
    name: str,
    unit: str,
    help: str,  # noqa: A002  # as the field
    level: Level = Level.BASIC,
    dims: tuple[str, ...] = (),
) -> Metric:
    """Declare a gauge; raise TypeError for a level that is not a Level."""
    return Metric(name, Kind.GAUGE, unit, help, level, dims)


def counter(
    name: str,
    unit: str,
    help: str,  # noqa: A002  # as the field
    level: Level = Level.BASIC,
    dims: tuple[str, ...] = (),
) -> Metric:
    """Declare a counter; raise TypeError for a level that is not a Level."""
    return Metric(name, Kind.COUNTER, unit, help, level, dims)
