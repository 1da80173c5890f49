"""Writes a whole run to a file: blocks, and a journal beside it with the newest ticks."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.system import SAFE
from chipwatch.recording.blocks import block
from chipwatch.recording.columns import MOST_SERIES, PIECE, NotARecording, checked, header_of, load, tail_of
from chipwatch.recording.event import Event
from chipwatch.recording.journal import STEP, Header, Journal, encode, pack, write_whole

TICKS: Final = 600
"""Ticks of a block, and at most a minute of them."""
MOST_VALUES: Final = 500_000
"""Points of a block, about 30 MB while it is encoded."""
MOST_POINTS: Final = 3_000_000
"""Points of a file, counted as a reader does; then it gets a number, and a new one begins: so each can be loaded."""
NEW: Final = 160
"""Points that a series counts as, with its texts."""


class RecordFile:
    """A recording that grows; used by one thread."""

    def __init__(self, path: Path, header: Header, most_points: int = MOST_POINTS) -> None:
        """Make the file; one that is there gets a number if it is a recording. Raise NotARecording or OSError."""
        self.path, self._header, self._most_points = path, header, most_points
        self._journal: Journal | None = None
        self._points = self._last = 0
        """Points of the file, and the time of the last tick (ns since the epoch)."""
        self.is_short = False
        """True once a series had no place."""
        self._series = set[int]()
        """Hashes of the series of the file."""
        if path.exists() or tail_of(path).exists():
            if path.exists() and (not path.is_file() or (path.stat().st_size and header_of(path) is None)):
                raise NotARecording(f"{path}: this file has another form; name another one")
            self._rename()
        self._append()

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write a tick; raise OSError or NotARecording."""
        if not points:
            return
        if at < self._last - STEP:  # the clock was set back, and a reader takes times that ascend
            self._write_block()
            self._begin_another()
        self._last = at
        journal = self._journal = self._journal or Journal(tail_of(self.path), self._header)
        if journal.is_old(at):
            self._write_block()
            journal = self._journal = Journal(tail_of(self.path), self._header)
        journal.add(points, at)
        self.is_short |= journal.is_short
        if journal.rows >= TICKS or journal.points >= MOST_VALUES or journal.is_full:
            self._write_block()

    def note(self, event: Event) -> None:
        """Write an event; raise OSError."""
        self._append(encode({"event": event}))

    def close(self) -> None:
        """Write what is left; raise OSError or NotARecording. Safe to call twice."""
        self._write_block()

    def _write_block(self) -> None:
        journal, self._journal = self._journal, None
        if journal is None:
            return
        journal.close()
        columns = load(journal.path).columns
        self._append(*block(columns).splitlines())
        journal.path.unlink()
        self._points += journal.points + PIECE * len(columns)
        self._series |= {hash((column.metric.name, column.dims)) for column in columns}
        if self._points + NEW * len(self._series) >= self._most_points or len(self._series) >= MOST_SERIES // 2:
            self._begin_another()

    def _append(self, *lines: bytes) -> None:
        """Add a member with these lines; take it back, or a new file, where the disk is full."""
        with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT | SAFE, 0o600), "r+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            header = () if end else (encode(self._header()),)  # the file is new, or was deleted
            data = gzip.compress(b"".join(map(checked, (*header, *lines))), 6, mtime=0)
            try:
                write_whole(file.fileno(), data)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                if not end:
                    self.path.unlink()
                raise

    def _begin_another(self) -> None:
        self._rename()
        self._series.clear()
        self._points = 0
        self._append()

    def _rename(self) -> None:
        """Give the file the next number, and a tail that a killed agent left, which is compressed."""
        number = 1
        while (other := self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}")).exists():
            number += 1
        for old, new in ((self.path, other), (tail_of(self.path), tail_of(other))):
            if old.exists():
                old.rename(new)
        if tail_of(other).exists():
            pack(tail_of(other))
