"""Records a whole run in a file of compressed journals; the newest ticks are in a journal beside it, the tail."""

from __future__ import annotations

import fcntl
import gzip
import os
from collections.abc import Sequence
from contextlib import ExitStack
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Final

from chipwatch.base.system import SAFE
from chipwatch.contract.datapoint import Datapoint, Kind
from chipwatch.contract.errors import os_text
from chipwatch.history.columns import MOST_SERIES, NotARecording, checksummed, header_of, tail_of
from chipwatch.history.event import Event
from chipwatch.history.journal import MINUTE, STEP, Header, Journal, encode_json, write_whole

MOST_VALUES: Final = 500_000
"""Most points of a journal, since it is in memory while it is compressed."""
MOST_POINTS: Final = 3_000_000
"""Most points of a file, so that a reader can load it. A full file gets a number, and a new one begins."""
NEW: Final = 160
"""Number of points that a series counts as, for its name and dimensions."""
LARGE: Final = 1000.0
"""Gauges from this value on are rounded to a thousandth, smaller ones to six digits."""


class RecordFile:
    """The recording of a run that goes on; used by one thread."""

    def __init__(self, path: Path, header: Header) -> None:
        """
        Make the file, and rename a recording that is there; raise OSError.

        Raise NotARecording for a file of another kind, and for one that another agent writes.
        """
        self.path, self._header = path, header
        self._journal: Journal | None = None
        self.lock = ExitStack()
        """Holds the file, locked until `close`: two agents would write over each other."""
        self._points = self._last = 0
        """Number of points in the file, and the time of the last tick (ns since the epoch)."""
        self.is_short = False
        """True once a series was left out, since a journal had no place for it."""
        self._series = set[int]()
        """The hashes of the series in the file."""
        if path.exists() and (not path.is_file() or (path.stat().st_size and header_of(path) is None)):
            raise NotARecording(f"{path}: this file has another form; name another one")
        self._begin()

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write the points of a tick at `at` (ns), with rounded gauges; raise OSError or NotARecording."""
        if not points:
            return
        journal = self._journal
        if at < self._last - STEP:  # the clock was set back, and times in a file must ascend
            self._end_journal()
            self._begin()
        elif journal and (journal.is_old(at, MINUTE) or journal.is_full or journal.points >= MOST_VALUES):
            self._end_journal()
        self._last = at
        journal = self._journal = self._journal or Journal(tail_of(self.path), self._header)
        journal.add([point if point.metric.kind is Kind.COUNTER else _rounded(point) for point in points], at)
        self.is_short |= journal.is_short

    def note(self, event: Event) -> None:
        """Write an event; raise OSError."""
        line = encode_json({"event": event})
        if self._journal:
            self._journal.write(line)
        else:
            self._append(checksummed(line))

    def close(self) -> None:
        """Move the journal into the file, for the last time; raise OSError or NotARecording. Safe to call twice."""
        with self.lock:
            self._end_journal()

    def _end_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal:
            journal.write(encode_json({"end": self.path.stat().st_size if self.path.exists() else 0}))
            journal.close()
            self._take_in(journal.path)
            self._points += journal.points
            self._series.update(journal.series())
            if self._points + NEW * len(self._series) >= MOST_POINTS or len(self._series) >= MOST_SERIES // 2:
                self._begin()

    def _take_in(self, journal: Path) -> None:
        """Append a journal, after the file is cut to the `end` that it names: a kill may have left half of a member."""
        try:
            lines = journal.read_bytes()
        except OSError as problem:
            raise NotARecording(f"{journal}: {os_text(problem)}") from problem
        end = lines.rpartition(b'{"end":')[2].partition(b",")[0]
        if end.isdigit() and self.path.exists():
            os.truncate(self.path, int(end))
        self._append(lines)
        journal.unlink()

    def _append(self, lines: bytes) -> None:
        """Add lines to the file as a gzip member; if the disk is full, leave the file as it was, and raise OSError."""
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
        """Begin a new file. One that is there takes in the tail that a killed agent left, and gets the next number."""
        self._lock_path()
        if (tail := tail_of(self.path)).exists():
            self._take_in(tail)
        if self.path.stat().st_size:
            others = (self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}") for number in count(1))
            self.path.rename(next(other for other in others if not other.exists()))
            self._lock_path()
        self._series, self._points = set(), 0
        self._append(checksummed(encode_json(self._header())))

    def _lock_path(self) -> None:
        """Make the file if it is not there, and lock it where the file system can; raise NotARecording or OSError."""
        self.lock.close()
        file = self.lock.enter_context(FileIO(os.open(self.path, os.O_RDWR | os.O_CREAT | SAFE, 0o600), "r+"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if isinstance(problem, BlockingIOError):
                raise NotARecording(f"{self.path}: another agent writes it; name another file") from problem


def _rounded(gauge: Datapoint) -> Datapoint:
    """Return a gauge rounded to six significant digits, or to a thousandth if that is finer; a whole number stays."""
    value = gauge.value
    if value == int(value):
        return gauge
    return gauge._replace(value=round(value, 3) if abs(value) >= LARGE else float(f"{value:.6g}"))
