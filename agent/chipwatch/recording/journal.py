"""Writes ticks to a file, each as a row that can be read as soon as it is written."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.system import SAFE
from chipwatch.recording.columns import checked

MOST_SERIES: Final = 20_000
"""Series of one journal; then another one begins, without the series that have ended."""
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
        self.size = self.rows = 0
        """Bytes and rows so far."""
        self.first = self.last = 0
        """Times of the first and the last tick (ns since the epoch)."""
        self._file: int = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, 0o600)
        self._places: dict[tuple[str, Dimensions], int] = {}
        self._starts: list[int | None] = []
        self._orders: deque[tuple[Order, list[int]]] = deque(maxlen=MOST_ORDERS)
        """The orders in which points came of late, and the place of each point: a tick costs no look-up of a series."""
        self._synced = 0.0
        self.write(encode(header()))

    @property
    def is_full(self) -> bool:
        """True once the table of series is as long as it may be."""
        return len(self._starts) >= MOST_SERIES

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write the points of a tick; raise OSError."""
        lines = []
        metrics, values, all_dims, moments, starts, *_ = zip(*points, strict=True) if points else ((),) * 5
        order = metrics, all_dims, starts
        if (places := next((places for known, places in self._orders if known == order), None)) is None:
            if new := [*self._learn(*order)]:
                lines.append(encode({"series": new}))
            places = [self._places[metric.name, dims] for metric, dims in zip(metrics, all_dims, strict=True)]
            self._orders.appendleft((order, places))
        for moment in {at} if moments.count(at) == len(points) else sorted({*moments}):
            row: list[float | None] = [None] * len(self._starts)
            for place, value, own in zip(places, values, moments, strict=True):
                if own == moment:
                    row[place] = +value  # a bool becomes a number
            lines.append(b'{"at":%d,"row":%b}' % (moment, encode(row)))
        self.first, self.last = self.first or at, at
        self.rows += 1
        self.write(*lines)

    def _learn(
        self, metrics: Iterable[Metric], all_dims: Iterable[Dimensions], starts: Iterable[int | None]
    ) -> Iterator[Mapping[str, Any]]:
        """Give each series that has no place one, or another one where its counter has another start; yield these."""
        for metric, dims, start in zip(metrics, all_dims, starts, strict=True):
            place = self._places.get((metric.name, dims))
            if place is None or self._starts[place] != start:
                self._places[metric.name, dims] = len(self._starts)
                self._starts.append(start)
                self._orders.clear()
                more = {} if start is None else {"start": start}
                pairs = dict(dims.items_sorted)
                yield {"name": metric.name, "kind": metric.kind, "unit": metric.unit, "dims": pairs, **more}

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


def write_whole(file: int, data: bytes) -> None:
    """Write to a file; raise OSError, also where the disk takes only a part."""
    if os.write(file, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
