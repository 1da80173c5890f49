"""Writes ticks to a file of JSON lines, each as one row; it can be read at any time, also after a kill."""

from __future__ import annotations

import errno
import os
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from chipwatch.base.system import SAFE
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.history.columns import LONGEST, SLOT, checksummed

MOST_SERIES, MOST_TABLE = 20_000, 4 << 20
"""Most series of one journal, and most bytes of their names and dimensions; further series are left out."""
TOGETHER: Final = 100
"""Most series that one line describes."""
MINUTE, FEWEST = 60 * 10**9, 10
"""A journal is ended and compressed after a MINUTE (in ns) if it has FEWEST rows."""
SYNC: Final = 1.5
"""Seconds between two syncs of the file to the disk; one costs as much CPU as the rest of two ticks."""
STEP: Final = 10 * 10**9
"""Nanoseconds by which the clock may be set back without a new file; readers skip ticks of times that they have."""
MOST_ORDERS: Final = 8
Order = tuple[tuple[Metric, ...], tuple[Dimensions, ...], tuple[int | None, ...]]
encode_json: Final = msgspec.json.Encoder().encode
Header = Callable[[], Mapping[str, Any]]
"""Function that returns the first line of a recording, as values of JSON."""


class Journal:
    """
    A file of JSON lines, not compressed; used by one thread.

    The first line is a header. A row has the values of one tick, and a line before it describes each new series: its
    place in all later rows.
    """

    def __init__(self, path: Path, header: Header, sync: float = SYNC) -> None:
        """Make the file, which only its owner can read; sync it to the disk every `sync` seconds. Raise OSError."""
        self.path, self._sync = path, sync
        self.size = self.rows = self.table = self.points = 0
        """Bytes and rows so far; bytes that describe series; and points, counted as a reader's limit counts them."""
        self.first = self.last = 0
        """Times of the first and the last tick (ns since the epoch), 0 before it."""
        self._file: int = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o600)
        self._places: dict[tuple[str, Dimensions], int] = {}
        self._starts: list[int | None] = []
        self.is_short = False
        """True once a series was left out, since the journal had no place for it."""
        self._present = 0
        """Number of series in the last tick that have a place."""
        self._orders: deque[tuple[Order, list[int]]] = deque(maxlen=MOST_ORDERS)
        """The last orders in which points came, with the place of each point, so that most ticks look up no series."""
        self._synced = 0.0
        self.write(encode_json(header()))

    @property
    def is_full(self) -> bool:
        """True if a new journal is better: places are short, and at least a fifth of the series in it have ended."""
        return len(self._starts) + self._present > MOST_SERIES and 5 * self._present <= 4 * len(self._starts)

    def is_old(self, at: int, most: int) -> bool:
        """Return whether the journal covers its longest time, `most` ns, at the time `at`."""
        return self.rows >= FEWEST and at >= self.first + most

    def series(self) -> array[int]:
        """Return the hash of each series, to count different series cheaply."""
        return array("q", map(hash, self._places))

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write the points of a tick; raise OSError."""
        lines = list[bytes]()
        metrics, values, all_dims, moments, starts, *_ = zip(*points, strict=True) if points else ((),) * 5
        order = metrics, all_dims, starts
        places = next((places for known, places in self._orders if known == order), None)
        if places is None:
            lines += self._learn(*order)
            places = [self._places.get((metric.name, dims), -1) for metric, dims in zip(metrics, all_dims, strict=True)]
            self._orders.appendleft((order, places))
            self._present = len({*places} - {-1})
        for moment in sorted({*moments}) or [at]:
            row: list[float | None] = [None] * (len(self._starts) + 1)  # the last value is for points without a place
            for place, value, own in zip(places, values, moments, strict=True):
                if own == moment:
                    row[place] = +value  # a bool becomes a number
            lines.append(b'{"at":%d,"row":%b}' % (moment, encode_json(row[:-1])))
            self.points += len(row)
        self.first, self.last = self.first or at, at
        self.rows += 1
        self.write(*lines)

    def _learn(
        self, metrics: Iterable[Metric], all_dims: Iterable[Dimensions], starts: Iterable[int | None]
    ) -> Iterator[bytes]:
        """Give each new series, and each counter with a new start time, a place if there is room; yield their lines."""
        new = list[bytes]()
        for metric, dims, start in zip(metrics, all_dims, starts, strict=True):
            key = metric.name, dims
            place = self._places.get(key)
            if place is not None and self._starts[place] == start:
                continue
            self._places.pop(key, None)
            text = b""
            if len(self._starts) < MOST_SERIES:
                line = {"name": metric.name, "kind": metric.kind, "unit": metric.unit, "dims": dict(dims.items_sorted)}
                text = encode_json(line if start is None else {**line, "start": start})
            if not text or self.table + len(text) > MOST_TABLE or len(text) > LONGEST // (TOGETHER + 1):
                self.is_short = True
                continue
            self._places[key] = len(self._starts)
            self._starts.append(start)
            self.table += len(text)
            self.points += SLOT
            new.append(text)
        if new:
            self._orders.clear()
        for n in range(0, len(new), TOGETHER):
            yield b'{"series":[%b]}' % b",".join(new[n : n + TOGETHER])

    def write(self, *lines: bytes) -> None:
        """Write JSON objects as lines with checksums, and sync the file to the disk when it is time; raise OSError."""
        data = b"".join(map(checksummed, lines))
        write_whole(self._file, data)
        self.size += len(data)
        if (now := time.monotonic()) - self._synced >= self._sync:
            self._synced = now
            getattr(os, "fdatasync", os.fsync)(self._file)

    def close(self) -> None:
        """Close the file; raise OSError. Safe to call twice."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def open_private(path: Path) -> BinaryIO:
    """Open an empty file for writing, which only its owner can read; raise OSError."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags | SAFE, 0o600))


def write_whole(file: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor; raise OSError, also if the disk takes only a part."""
    if os.write(file, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
