"""Writes ticks to a file, each as a row that can be read as soon as it is written."""

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
from chipwatch.history.columns import LONGEST, SLOT, checked

MOST_SERIES: Final = 20_000
MOST_TABLE: Final = 4 << 20
"""Series of one journal, and bytes of their names and dimensions; further ones are left out of it."""
TOGETHER: Final = 100
"""Series of one line."""
MINUTE: Final = 60 * 10**9
FEWEST: Final = 10
"""Nanoseconds and rows after which a journal is ended and compressed: a kill leaves no more than that as it is."""
SYNC: Final = 1.5
"""Seconds between two writes to the disk itself, at ticks; each costs as much CPU as all the rest of two ticks."""
STEP: Final = 10 * 10**9
"""Nanoseconds by which a clock may be set back in one file; readers leave out ticks of times that they have."""
MOST_ORDERS: Final = 8
Order = tuple[tuple[Metric, ...], tuple[Dimensions, ...], tuple[int | None, ...]]
encode: Final = msgspec.json.Encoder().encode
Header = Callable[[], Mapping[str, Any]]
"""Returns the first line of a recording."""


class Journal:
    """A file of JSON lines, not compressed: a header, series as they come, and rows. Used by one thread."""

    def __init__(self, path: Path, header: Header, sync: float = SYNC) -> None:
        """Make the file, readable by its owner only, to be written to the disk every `sync` s; raise OSError."""
        self.path, self._sync = path, sync
        self.size = self.rows = self.table = self.points = 0
        """Bytes, rows, bytes of series, and points as a reader counts them, so far."""
        self.first = self.last = 0
        """Times of the first and the last tick (ns since the epoch)."""
        self._file: int = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o600)
        self._places: dict[tuple[str, Dimensions], int] = {}
        self._starts: list[int | None] = []
        self.is_short = False
        """True once there was no place for a series."""
        self._present = 0
        """Series of the last tick that have a place."""
        self._orders: deque[tuple[Order, list[int]]] = deque(maxlen=MOST_ORDERS)
        """The orders in which points came of late, and the place of each point: a tick costs no look-up of a series."""
        self._synced = 0.0
        self.write(encode(header()))

    @property
    def is_full(self) -> bool:
        """True if other series might have no place, and a fifth of those that have one have ended."""
        return len(self._starts) + self._present > MOST_SERIES and 5 * self._present <= 4 * len(self._starts)

    def is_old(self, at: int, most: int) -> bool:
        """Return whether a row of the time `at` needs another journal; `most`: nanoseconds of one."""
        return self.rows >= FEWEST and at >= self.first + most

    def series(self) -> array[int]:
        """Return the hashes of all series."""
        return array("q", map(hash, self._places))

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write the points of a tick; raise OSError."""
        lines = list[bytes]()
        metrics, values, all_dims, moments, starts, *_ = zip(*points, strict=True) if points else ((),) * 5
        order = metrics, all_dims, starts
        if (places := next((places for known, places in self._orders if known == order), None)) is None:
            lines += self._learn(*order)
            places = [self._places.get((metric.name, dims), -1) for metric, dims in zip(metrics, all_dims, strict=True)]
            self._orders.appendleft((order, places))
            self._present = len({*places} - {-1})
        for moment in {at} if moments.count(at) == len(points) else sorted({*moments}):
            row: list[float | None] = [None] * (len(self._starts) + 1)  # the last one takes what has no place
            for place, value, own in zip(places, values, moments, strict=True):
                if own == moment:
                    row[place] = +value  # a bool becomes a number
            lines.append(b'{"at":%d,"row":%b}' % (moment, encode(row[:-1])))
            self.points += len(row)
        self.first, self.last = self.first or at, at
        self.rows += 1
        self.write(*lines)

    def _learn(
        self, metrics: Iterable[Metric], all_dims: Iterable[Dimensions], starts: Iterable[int | None]
    ) -> Iterator[bytes]:
        """Give each new series, and each counter with another start, a place while there is one; yield their lines."""
        new = list[bytes]()
        for metric, dims, start in zip(metrics, all_dims, starts, strict=True):
            key = metric.name, dims
            place = self._places.get(key)
            if place is not None and self._starts[place] == start:
                continue
            self._places.pop(key, None)
            text, more = b"", {} if start is None else {"start": start}
            if len(self._starts) < MOST_SERIES:
                pairs = dict(dims.items_sorted)
                text = encode({"name": metric.name, "kind": metric.kind, "unit": metric.unit, "dims": pairs, **more})
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
        """Write objects as lines with their checksums, to the disk itself every `sync` seconds; raise OSError."""
        data = b"".join(map(checked, lines))
        write_whole(self._file, data)
        self.size += len(data)
        if (now := time.monotonic()) - self._synced >= self._sync:
            self._synced = now
            getattr(os, "fdatasync", os.fsync)(self._file)

    def close(self) -> None:
        """End the file; raise OSError. Safe to call twice."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def open_private(path: Path) -> BinaryIO:
    """Open an empty file to write, readable by its owner only; raise OSError."""
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags | SAFE, 0o600))


def write_whole(file: int, data: bytes) -> None:
    """Write to a file; raise OSError, also where the disk takes only a part."""
    if os.write(file, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
