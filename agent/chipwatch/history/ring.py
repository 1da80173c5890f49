"""Keeps the last minutes of a run in a few journals; at an incident, copies them into one file, which stays."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import re
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from chipwatch.base.system import open_locked
from chipwatch.contract.datapoint import Datapoint
from chipwatch.history.columns import ERRORS, LONGEST, MOST_SERIES, checksummed, is_whole, unzipped
from chipwatch.history.event import WHY, Event, Moment
from chipwatch.history.journal import MINUTE, STEP, Header, Journal, encode_json, open_private

SYNC: Final = 10.0
"""Seconds between two syncs to the disk: a power cut costs that time, a kill nothing."""
MOST_BYTES, MOST_POINTS = 8 << 20, 4_000_000
"""Most bytes and points of all journals of a ring, so that an incident can be loaded."""
PARTS: Final = 5
"""Least number of journals for the time to keep; one more is being written."""
RINGS: Final = 4
"""Most rings in one state folder: each agent that uses the folder at the same time has one."""
MOST_INCIDENTS, MOST_INCIDENT_BYTES = 20, 200 << 20
INCIDENTS, ENDING, MOMENT = "incidents", ".chipwatch", len("20261123T104102Z")
KILLED: Final = "killed"
"""Cause of the incident that the agent was killed, or its machine went down."""


class _Ended(NamedTuple):
    """A journal that has ended and is compressed."""

    path: Path
    last: int
    size: int
    points: int
    series: array[int]


class Ring:
    """The journals of the last `keep` seconds, in a folder that only this agent uses; for one thread."""

    def __init__(self, state: Path, keep: float, header: Header) -> None:
        """Lock a folder below `state`, and make incidents of the journals that killed agents left; raise OSError."""
        self._keep, self._header = int(keep * 1e9), header
        self.incidents = state / INCIDENTS
        (self._folder, self._lock), *others = _unlocked(state)
        self._full: deque[_Ended] = deque()
        self._journal: Journal | None = None
        self._number = 0
        self.is_short = False
        """True once a series was left out, since a journal had no place for it."""
        self.left: Path | None = None
        """The file of a killed agent's incident, or None."""
        try:
            for folder in (self._folder, *(folder for folder, _ in others)):
                self._take_over(folder)
        except BaseException:
            self._lock.close()
            raise
        finally:
            for _, lock in others:
                lock.close()

    def add(self, points: Sequence[Datapoint], at: int, *, is_open: bool = False) -> None:
        """
        Write the points of a tick at `at` (ns), and delete journals that are too old; raise OSError.

        While an incident `is_open`, its journals are not too old. Journals of a later time than `at` are deleted, too:
        the clock was set back, and times in a file must ascend.
        """
        journal = self._journal
        if journal and (
            journal.is_full
            or journal.size - journal.table >= MOST_BYTES // (PARTS + 3)
            or at < journal.last - STEP
            or journal.is_old(at, min(MINUTE, self._keep // PARTS))
        ):
            journal.close()
            self._full.append(_Ended(journal.path, journal.last, _pack(journal.path), journal.points, journal.series()))
            journal = None
        while self._full and self._full[-1].last > at + STEP:
            self._full.pop().path.unlink(missing_ok=True)
        if journal is None:
            self._number += 1
            journal = self._journal = Journal(self._folder / f"{self._number:08}{ENDING}", self._header, SYNC)
            while len(set().union(*(full.series for full in self._full))) > MOST_SERIES // 2:  # a reader takes no more
                self._full.popleft().path.unlink(missing_ok=True)
        journal.add(points, at)
        self.is_short |= journal.is_short
        while self._full and (
            sum(full.size for full in self._full) + journal.size > MOST_BYTES
            or sum(full.points for full in self._full) + journal.points > MOST_POINTS
            or (not is_open and self._full[0].last < at - self._keep)
        ):
            self._full.popleft().path.unlink(missing_ok=True)

    def note(self, event: Event) -> None:
        """Write an event; raise OSError."""
        if self._journal:
            self._journal.write(encode_json({"event": event}))

    def seal(self, event: Event, at: int) -> Path:
        """Write all ticks of the ring to the file of the incident `event`, and return it; raise OSError."""
        path = self._seal(event, _journals(self._folder))
        if self._journal:
            self._journal.write(encode_json({"sealed": at}))
        return path

    def close(self) -> None:
        """Delete the journals and unlock the folder; called when the run ends well or its incident is sealed."""
        with contextlib.suppress(OSError):
            if self._journal:
                self._journal.close()
        for path in _journals(self._folder):
            path.unlink(missing_ok=True)
        self._lock.close()

    def _take_over(self, folder: Path) -> None:
        """
        Make an incident of the journals that a killed agent left in `folder`, and delete them.

        The incident is the first event that was not sealed, else the kill itself, unless a kill was sealed a short time
        ago.
        """
        left, lines = _journals(folder), list[_Known]()
        for path in left:
            for line in filter(is_whole, lines_of(path)):
                with contextlib.suppress(ValueError, RecursionError):
                    lines.append(msgspec.json.decode(line, type=_Known))
        last, sealed = max((line.at for line in lines), default=0), max((line.sealed for line in lines), default=0)
        events = (line.event for line in lines if line.event)
        event = next((event for event in events if event.at > sealed and event.cause != WHY), None)
        if last and (event or not self.has(KILLED, last)):
            self.left = self._seal(event or Event(last, KILLED, "the agent was killed, or the machine went down"), left)
        for path in left:
            path.unlink()

    def has(self, cause: str, at: int) -> bool:
        """Return whether an incident of this cause was sealed at most the time to keep before or after `at` (ns)."""
        first, last = (_name(at + time, cause) for time in (-self._keep, self._keep))
        names = (path.stem for path in incidents(self.incidents))
        return any(first < name < last and name.endswith(first[MOMENT:]) for name in names)

    def _seal(self, event: Event, journals: Iterable[Path]) -> Path:
        self.incidents.mkdir(mode=0o700, exist_ok=True)
        path = self.incidents / f"{_name(event.at, event.cause)}{ENDING}"
        with open_private(self._folder / "new") as raw:  # another agent may write that file now
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6) as file:
                file.writelines(map(checksummed, (encode_json(self._header()), encode_json({"event": event}))))
                for journal in journals:
                    file.writelines(lines_of(journal))
            raw.flush()
            os.fsync(raw.fileno())
        Path(raw.name).replace(path)
        kept = 0
        for number, older in enumerate(incidents(self.incidents)):
            kept += older.stat().st_size
            if number >= MOST_INCIDENTS or (number and kept > MOST_INCIDENT_BYTES):
                older.unlink()
        return path


def _pack(path: Path) -> int:
    """Compress an ended journal; return its bytes, raise OSError. It takes a tenth of the time of writing it."""
    new = path.with_name(f"{path.name}.new")
    with open_private(new) as file:
        size = file.write(gzip.compress(path.read_bytes(), 1))
    new.replace(path)
    return size


class _Known(msgspec.Struct):
    at: Moment = 0
    sealed: Moment = 0
    event: Event | None = None


def _name(at: int, cause: str) -> str:
    """Return the name of an incident's file, without its ending; it begins with the time of the incident."""
    moment = datetime.fromtimestamp(max(0, at) // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}-{re.sub('[^a-z0-9]+', '-', cause.lower())[:40]}"


def incidents(folder: Path) -> list[Path]:
    """Return the files of incidents in a folder, the newest first; none if it cannot be read."""
    with contextlib.suppress(OSError):
        return sorted((path for path in folder.iterdir() if path.suffix == ENDING), reverse=True)
    return []


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file, compressed or not, as far as it can be read."""
    with contextlib.suppress(*ERRORS), path.open("rb") as raw:
        file = unzipped(raw)
        while (line := file.readline(LONGEST)).endswith(b"\n"):
            yield line


def _journals(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ENDING)


def _unlocked(state: Path) -> list[tuple[Path, FileIO]]:
    """Lock the folders that no other agent uses; return at least one, each with its lock, or raise OSError."""
    free: list[tuple[Path, FileIO]] = []
    for number in range(RINGS):
        folder = state / f"recorder{f'-{number}' if number else ''}"
        with contextlib.suppress(BlockingIOError):
            if not free or folder.is_dir():
                free.append((folder, open_locked(folder / "lock")))
    if not free:
        raise OSError(errno.EBUSY, "other agents use all its recorders", str(state))
    return free
