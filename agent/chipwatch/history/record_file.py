"""Records a whole run in a file of compressed journals; the newest ticks are in a journal beside it, the tail."""

from __future__ import annotations

import fcntl
import gzip
import os
from contextlib import ExitStack
from io import FileIO
from itertools import count
from pathlib import Path
from typing import Final

from chipwatch.base.system import SAFE
from chipwatch.contract.errors import os_text
from chipwatch.history.columns import NotARecording, checksummed, header_of, tail_of
from chipwatch.history.journal import MINUTE, STEP, Header, Journal, Recording, encode_json, write_whole

MOST_POINTS: Final = 5_000_000
"""Most points of a file, so that a reader can load it. A full file gets a number, and a new one begins."""


class RecordFile(Recording):
    """The recording of a run that goes on: one file, in which a gauge has six significant digits."""

    def __init__(self, path: Path, header: Header) -> None:
        """
        Make the file, and rename a recording that is there; raise OSError.

        Raise NotARecording for a file of another kind, and for one that another agent writes.
        """
        super().__init__(header, MINUTE)
        self.path = path
        self.lock = ExitStack()
        """Holds the file, locked until `close`: two agents would write over each other."""
        if path.exists() and (not path.is_file() or (path.stat().st_size and header_of(path) is None)):
            raise NotARecording(f"{path}: this file has another form; name another one")
        self._begin()

    def close(self) -> None:
        """Move the journal into the file, for the last time; raise OSError or NotARecording. Safe to call twice."""
        with self.lock:
            self._end(self._journal.last if self._journal else 0)

    def _next(self) -> Journal:
        journal = Journal(tail_of(self.path), self._header, self._wants, rounds=True)
        self._note_end(journal)
        return journal

    def _keep(self, journal: Journal, at: int) -> None:
        self._note_end(journal)
        journal.close()
        self._take_in(journal.path)
        self._points += journal.points
        if self._points >= MOST_POINTS or at < journal.last - STEP:  # times in a file must ascend
            self._begin()

    def _note_end(self, journal: Journal) -> None:
        """Write to the journal where the file ends now; somebody may have moved the file since the journal began."""
        journal.write(encode_json({"end": self.path.stat().st_size if self.path.exists() else 0}))

    def _take_in(self, journal: Path) -> None:
        """Append a journal, after the file is cut to the last `end` in it: a kill may have left half of a member."""
        try:
            lines = journal.read_bytes()
        except OSError as problem:
            raise NotARecording(f"{journal}: {os_text(problem)}") from problem
        end = lines.rpartition(b'{"end":')[2].partition(b",")[0]
        if end.isdigit() and self.path.exists():
            os.truncate(self.path, min(int(end), self.path.stat().st_size))
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
        self._points = 0
        """Number of points in the file, counted as in `Journal`."""
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
