"""Writes a whole run to a file: compressed journals, and beside it the journal of the newest ticks."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chipwatch.base.system import SAFE
from chipwatch.contract.datapoint import Datapoint, Kind
from chipwatch.contract.errors import os_text
from chipwatch.history.columns import MOST_SERIES, NotARecording, checked, header_of, tail_of
from chipwatch.history.event import Event
from chipwatch.history.journal import MINUTE, STEP, Header, Journal, encode, write_whole

MOST_VALUES: Final = 500_000
"""Points of a journal, which is in memory while it is compressed."""
MOST_POINTS: Final = 3_000_000
"""Points of a file, counted as a reader does; then it gets a number, and a new one begins: so each can be loaded."""
NEW: Final = 160
"""Points that a series counts as, with its texts."""
LARGE: Final = 1000.0
"""Value from which a thousandth is finer than six significant digits."""


class RecordFile:
    """A recording that grows; used by one thread."""

    def __init__(self, path: Path, header: Header) -> None:
        """Make the file; one that is there gets a number if it is a recording. Raise NotARecording or OSError."""
        self.path, self._header = path, header
        self._journal: Journal | None = None
        self._points = self._last = 0
        """Points of the file, and the time of the last tick (ns since the epoch)."""
        self.is_short = False
        """True once a series had no place."""
        self._series = set[int]()
        """Hashes of the series of the file."""
        if path.exists() and (not path.is_file() or (path.stat().st_size and header_of(path) is None)):
            raise NotARecording(f"{path}: this file has another form; name another one")
        self._begin()

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write a tick, its gauges rounded; raise OSError or NotARecording."""
        if not points:
            return
        journal = self._journal
        if at < self._last - STEP:  # the clock was set back, and a reader takes times that ascend
            self.close()
            self._begin()
        elif journal and (journal.is_old(at, MINUTE) or journal.is_full or journal.points >= MOST_VALUES):
            self.close()
        self._last = at
        journal = self._journal = self._journal or Journal(tail_of(self.path), self._header)
        journal.add([point if point.metric.kind is Kind.COUNTER else _rounded(point) for point in points], at)
        self.is_short |= journal.is_short

    def note(self, event: Event) -> None:
        """Write an event; raise OSError."""
        line = encode({"event": event})
        if self._journal:
            self._journal.write(line)
        else:
            self._append(checked(line))

    def close(self) -> None:
        """Move the journal into the file; raise OSError or NotARecording. Safe to call twice."""
        journal, self._journal = self._journal, None
        if journal is None:
            return
        journal.close()
        self._take_in(journal.path)
        self._points += journal.points
        self._series.update(journal.series())
        if self._points + NEW * len(self._series) >= MOST_POINTS or len(self._series) >= MOST_SERIES // 2:
            self._begin()

    def _take_in(self, journal: Path) -> None:
        try:
            lines = journal.read_bytes()
        except OSError as problem:
            raise NotARecording(f"{journal}: {os_text(problem)}") from problem
        self._append(lines)
        journal.unlink()

    def _append(self, lines: bytes) -> None:
        """Add a member with these lines; take it back, or a new file, where the disk is full."""
        with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT | SAFE, 0o600), "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                write_whole(file.fileno(), gzip.compress(lines, 6, mtime=0))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                if not end:
                    self.path.unlink()
                raise

    def _begin(self) -> None:
        """Begin a new file; give the one that is there, with what a killed agent left beside it, the next number."""
        if (tail := tail_of(self.path)).exists():
            self._take_in(tail)
        if self.path.exists():
            number = 1
            while (other := self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}")).exists():
                number += 1
            self.path.rename(other)
        self._series.clear()
        self._points = 0
        self._append(checked(encode(self._header())))


def _rounded(gauge: Datapoint) -> Datapoint:
    """Return a gauge to six significant digits, or to a thousandth where that is finer; a whole number as it is."""
    value = gauge.value
    if value == int(value):
        return gauge
    return gauge._replace(value=round(value, 3) if abs(value) >= LARGE else float(f"{value:.6g}"))
