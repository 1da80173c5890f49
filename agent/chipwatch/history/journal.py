"""Writes ticks to files of JSON lines, each tick as one row; they can be read at any time, also after a kill."""

from __future__ import annotations

import errno
import os
import platform
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from chipwatch.base.system import SAFE
from chipwatch.base.version import __version__
from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions, Kind, Metric
from chipwatch.history.columns import FORMAT, LONGEST, SERIES, checksummed
from chipwatch.history.event import Event

MOST_SERIES: Final = 20_000
"""Most series of one journal; further series are left out."""
MOST_TABLE: Final = 4 << 20
"""Most bytes of the names and dimensions in one journal; further series are left out."""
MOST_ROWS: Final = 1 << 20
"""Bytes of rows after which a journal is ended, unless its series take more."""
TOGETHER: Final = 100
"""Most series that one line describes."""
MINUTE: Final = 60 * 10**9
"""Nanoseconds after which a journal is ended and compressed if it has FEWEST rows."""
FEWEST: Final = 10
LARGE: Final = 1000.0
"""Gauges from this value on are rounded to a thousandth, smaller ones to six digits."""
STEP: Final = 10 * 10**9
"""Nanoseconds by which the clock may be set back without a new file; readers skip ticks of times that they have."""
MOST_ORDERS: Final = 8
Order = tuple[tuple[Metric, ...], tuple[Dimensions, ...], tuple[int | None, ...]]
encode_json: Final = msgspec.json.Encoder().encode
Header = Callable[[], Mapping[str, Any]]
"""Function that returns the first line of a recording, as values of JSON."""
Wants = Callable[[Metric, Dimensions], bool]
"""Function that returns whether a series is to be recorded; it is asked when the series is new in a journal."""


class SeriesTable:
    """The series of a journal: each has a place, which is that of its value in all later rows."""

    def __init__(self, wants: Wants) -> None:
        """Leave out series that nobody `wants`."""
        self._wants = wants
        self._places: dict[tuple[str, Dimensions], int] = {}
        self.starts: list[int | None] = []
        """The start time of each series; a counter with a new start time is one more series."""
        self.gauges: list[int] = []
        """Places of gauges."""
        self.size = 0
        """Bytes that describe series."""
        self.is_short = False
        """True once a series was left out, since there was no place for it."""
        self.present = 0
        """Number of series in the last tick that have a place."""
        self._orders: deque[tuple[Order, Sequence[int]]] = deque(maxlen=MOST_ORDERS)
        """The last orders in which points came, with the point of each place, so that most ticks look up no series."""

    def known(self, order: Order) -> Sequence[int] | None:
        """Return the point of each place up to the last with one, -1 for none between; None if the order is new."""
        return next((picks for known, picks in self._orders if known == order), None)

    def take(self, order: Order) -> Sequence[int]:
        """Remember a new order, of which `learn` has taken all series; return the same as `known`."""
        keys = ((metric.name, dims) for metric, dims in zip(*order[:2], strict=True))
        point_of = {place: number for number, key in enumerate(keys) if (place := self._places.get(key)) is not None}
        self.present = len(point_of)
        picks: Sequence[int] = [point_of.get(place, -1) for place in range(1 + max(point_of, default=-1))]
        if picks == [*range(len(order[0]))]:  # as a rule; a journal then takes the values as they are
            picks = range(len(order[0]))
        self._orders.appendleft((order, picks))
        return picks

    def learn(
        self, metrics: Iterable[Metric], all_dims: Iterable[Dimensions], starts: Iterable[int | None]
    ) -> Iterator[bytes]:
        """Give each new series, and each counter with a new start time, a place if there is room; describe it."""
        for metric, dims, start in zip(metrics, all_dims, starts, strict=True):
            key = metric.name, dims
            place = self._places.get(key)
            if (place is not None and self.starts[place] == start) or not self._wants(metric, dims):
                continue
            self._places.pop(key, None)
            text = b""
            if len(self.starts) < MOST_SERIES:
                line = {"name": metric.name, "kind": metric.kind, "unit": metric.unit, "dims": dict(dims.items_sorted)}
                text = encode_json(line if start is None else {**line, "start": start})
            if not text or self.size + len(text) > MOST_TABLE or len(text) > LONGEST // (TOGETHER + 1):
                self.is_short = True
                continue
            self._places[key] = len(self.starts)
            if metric.kind is Kind.GAUGE:
                self.gauges.append(len(self.starts))
            self.starts.append(start)
            self._orders.clear()
            self.size += len(text)
            yield text


class Journal:
    """
    A file of JSON lines, not compressed; used by one thread.

    The first line is a header. A row has the values of one tick, and a line before it describes each new series: its
    place in all later rows.
    """

    def __init__(self, path: Path, header: Header, wants: Wants, *, rounds: bool = False) -> None:
        """
        Make the file, which only its owner can read; raise OSError.

        Leave out series that nobody `wants`. With `rounds`, a gauge has six significant digits, or three decimals if
        that is finer.
        """
        self.path, self._rounds = path, rounds
        self.size = self.rows = self.points = self.first = self.last = 0
        """
        Bytes and rows so far; points, counted as a reader's limit counts them; times of the first and the last tick (ns
        since the epoch), 0 before it.
        """
        self.table, self._wants = SeriesTable(wants), wants
        self._file: int = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o600)
        self.write(encode_json(header()))

    def is_over(self, at: int, longest: int) -> bool:
        """
        Return whether the tick at `at` (ns) must go to another journal.

        This one has all rows that it may have, or covers `longest` ns, or the clock was set back; or places are short,
        and at least a fifth of its series have ended.
        """
        crowd, present = len(self.table.starts), self.table.present
        return (
            (self.rows >= FEWEST and at >= self.first + longest)
            or self.size - self.table.size >= max(MOST_ROWS, self.table.size)
            or at < self.last - STEP
            or (crowd + present > MOST_SERIES and 5 * present <= 4 * crowd)
        )

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write the points of a tick, at least one; raise OSError."""
        metrics, values, all_dims, moments, starts, *_ = zip(*points, strict=True)
        order = metrics, all_dims, starts
        if (picks := self.table.known(order)) is None:
            texts = self.table.learn(*order)
            while some := [*islice(texts, TOGETHER)]:
                self.write(b'{"series":[%b]}' % b",".join(some))
                self.points += SERIES * len(some)
            picks = self.table.take(order)
        numbers: list[float | None] = [*values, None]  # -1 picks the None
        lines, is_late = list[bytes](), moments.count(at) < len(moments)  # a late reading has an earlier time
        for moment in sorted({*moments}) if is_late else (at,):
            row = [*values] if picks == range(len(values)) else [*map(numbers.__getitem__, picks)]
            if is_late:
                row = [number if moments[n] == moment else None for n, number in zip(picks, row, strict=True)]
            for place in [place for place in self.table.gauges if place < len(row)] if self._rounds else ():
                row[place] = _rounded(row[place])
            lines.append(b'{"at":%d,"row":%b}' % (moment, encode_json(row)))
        self.first, self.last = self.first or at, at
        self.rows += 1
        self.points += len(lines) * len(picks)
        self.write(*lines)

    def write(self, *lines: bytes) -> None:
        """Write JSON objects as lines with checksums; raise OSError."""
        data = b"".join(map(checksummed, lines))
        write_whole(self._file, data)
        self.size += len(data)

    def sync(self) -> None:
        """Write all to the disk itself, which costs as much CPU as some ticks; raise OSError."""
        getattr(os, "fdatasync", os.fsync)(self._file)

    def close(self) -> None:
        """Close the file, and forget its series; raise OSError. Safe to call twice."""
        file, self._file, self.table = self._file, -1, SeriesTable(self._wants)
        if file >= 0:
            os.close(file)


class Recording(ABC):
    """
    Ticks in one journal after another; used by one thread.

    A class that derives says where a journal is made, and what becomes of one that is over.
    """

    def __init__(self, header: Header, longest: int, wants: Wants = lambda *_: True) -> None:
        """Begin each journal with `header`, and end it after `longest` ns; leave out series that nobody `wants`."""
        self._header, self._longest, self._wants = header, longest, wants
        self._journal: Journal | None = None
        self.is_short = False
        """True once a series was left out, since a journal had no place for it."""
        self.crowd = 0
        """Number of series in the newest journal."""

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write the points of a tick at `at` (ns), if there are any; raise OSError or NotARecording."""
        if not points:
            return
        if self._journal and self._journal.is_over(at, self._longest):
            self._end(at)
        journal = self._journal = self._journal or self._next()
        journal.add(points, at)
        self.is_short |= journal.table.is_short
        self.crowd = len(journal.table.starts)

    def note(self, event: Event) -> None:
        """Write an event; raise OSError or NotARecording."""
        self._journal = self._journal or self._next()
        self._journal.write(encode_json({"event": event}))

    def sync(self) -> None:
        """Write all to the disk itself; raise OSError."""
        if self._journal:
            self._journal.sync()

    def _end(self, at: int) -> None:
        """End the journal, since it has no place for the tick at `at` (ns); raise OSError or NotARecording."""
        journal, self._journal = self._journal, None
        if journal:
            self._keep(journal, at)

    @abstractmethod
    def close(self) -> None:
        """End the recording; raise OSError or NotARecording."""

    @abstractmethod
    def _next(self) -> Journal:
        """Return a new journal; raise OSError."""

    @abstractmethod
    def _keep(self, journal: Journal, at: int) -> None:
        """Close and compress a journal that is over; `at`: the time (ns) of the tick after it, see `_end`."""


def _rounded(value: float | None) -> float | None:
    """Return a gauge rounded to six significant digits, or to a thousandth if that is finer; a whole number stays."""
    if value is None or value == int(value):
        return value
    return round(value, 3) if abs(value) >= LARGE else float(f"{value:.6g}")


def first_line(common: Callable[[], Dimensions | None], started: int, interval: float | None) -> Mapping[str, Any]:
    """Return the header of a run on this machine, whose dimensions are `common`, that `started` then (ns)."""
    dims = {key: value for key, value in (common() or {}).items() if not key.startswith(HIDDEN)}
    host = {"hostname": platform.node()} | dims
    return {"chipwatch": FORMAT, "version": __version__, "host": host, "started": started, "interval": interval}


def open_private(path: Path) -> BinaryIO:
    """Open an empty file for writing, which only its owner can read; raise OSError."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags | SAFE, 0o600))


def write_whole(file: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor; raise OSError, also if the disk takes only a part."""
    if os.write(file, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
