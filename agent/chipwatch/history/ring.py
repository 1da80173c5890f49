"""Keeps the last minutes of a run in a few journals; at an incident, copies them into one file, which stays."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Final

import msgspec

from chipwatch.base.system import NO_WAIT, open_locked
from chipwatch.contract.datapoint import Datapoint
from chipwatch.history.columns import ERRORS, LONGEST, Line, NotARecording, checksummed, is_whole, unzipped
from chipwatch.history.event import ENDED, WHY, Event
from chipwatch.history.journal import STEP, Header, Journal, Recording, Wants, encode_json, open_private

MOST_BYTES: Final = 8 << 20
"""Most bytes of all journals of a ring."""
MOST_POINTS: Final = 4_000_000
"""Most points of all journals of a ring, so that an incident can be loaded."""
PARTS: Final = 5
"""Least number of journals for the time to keep; one more is being written."""
RINGS: Final = 4
"""Most rings in one state folder: each agent that uses the folder at the same time has one."""
MOST_INCIDENTS: Final = 20
"""Most files of incidents; an incident has at most the bytes of a ring."""
INCIDENTS: Final = "incidents"
"""Name of the folder of incidents."""
ENDING: Final = ".chipwatch"
"""Ending of the names of recordings."""
MOMENT: Final = len("20261123T104102Z")
"""Characters of the time at the beginning of an incident's name."""
KILLED: Final = "killed"
"""Cause of the incident that the agent was killed, or its machine went down."""


class Ring(Recording):
    """The journals of the last `keep` seconds, in a folder that only this agent uses; all digits are kept."""

    def __init__(self, state: Path, keep: float, header: Header, wants: Wants = lambda *_: True) -> None:
        """
        Lock a folder below `state`, and make incidents of the journals that killed agents left.

        Raise OSError, or NotARecording if RINGS agents use `state`. Series that nobody `wants` are left out.
        """
        self._kept = int(keep * 1e9)
        super().__init__(header, self._kept // PARTS, wants)
        self.is_open = False
        """True while an incident is open: its journals are not too old."""
        self.incidents = state / INCIDENTS
        (self._folder, self._lock), *others = _unlocked(state)
        self._full: deque[Journal] = deque()
        """The journals that are over: compressed, and without their series."""
        self._number = 0
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

    def add(self, points: Sequence[Datapoint], at: int) -> None:
        """Write the points of a tick at `at` (ns), and delete journals that are too old; raise OSError."""
        super().add(points, at)
        journal = self._journal
        while self._full and journal and (
            sum(full.size for full in self._full) + journal.size > MOST_BYTES
            or sum(full.points for full in self._full) + journal.points > MOST_POINTS
            or (not self.is_open and self._full[0].last < at - self._kept)
        ):  # fmt: skip
            self._full.popleft().path.unlink(missing_ok=True)

    def _next(self) -> Journal:
        self._number += 1
        return Journal(self._folder / f"{self._number:08}{ENDING}", self._header, self._wants)

    def _keep(self, journal: Journal, at: int) -> None:
        journal.close()
        journal.size = _pack(journal.path)
        self._full.append(journal)
        while self._full and self._full[-1].last > at + STEP:  # the clock was set back, and times must ascend
            self._full.pop().path.unlink(missing_ok=True)

    def seal(self, event: Event, at: int) -> Path:
        """Write all ticks of the ring to the file of the incident `event`, and return it; raise OSError."""
        path = self._seal(event, recordings_in(self._folder)[::-1])
        if self._journal:
            self._journal.write(encode_json({"sealed": at}))
        return path

    def close(self) -> None:
        """Delete the journals and unlock the folder; called when the run ends well or its incident is sealed."""
        with contextlib.suppress(OSError):
            if self._journal:
                self._journal.close()
        for path in recordings_in(self._folder):
            path.unlink(missing_ok=True)
        self._lock.close()

    def _take_over(self, folder: Path) -> None:
        """
        Make an incident of the journals that a killed agent left in `folder`, and delete them.

        The incident is the first event that was not sealed, else the kill itself, unless a kill was sealed a short time
        ago.
        """
        left, lines = recordings_in(folder)[::-1], list[Line]()
        for path in left:
            for line in filter(is_whole, lines_of(path)):
                with contextlib.suppress(ValueError, RecursionError):
                    lines.append(msgspec.json.decode(line, type=Line))
        last, sealed = max((line.at for line in lines), default=0), max((line.sealed for line in lines), default=0)
        events = (line.event for line in lines if line.event)
        event = next((event for event in events if event.at > sealed and event.cause not in (WHY, ENDED)), None)
        if last and (event or not self.has(KILLED, last)):
            self.left = self._seal(event or Event(last, KILLED, "the agent was killed, or the machine went down"), left)
        for path in left:
            path.unlink()

    def has(self, cause: str, at: int) -> bool:
        """Return True if an incident of this cause was sealed within the time to keep of `at` (ns), before or after."""
        first, last = (_name(at + time, cause) for time in (-self._kept, self._kept))
        return any(first < it.stem < last and it.stem.endswith(first[MOMENT:]) for it in recordings_in(self.incidents))

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
        for older in recordings_in(self.incidents)[MOST_INCIDENTS:]:
            older.unlink()
        return path


def _pack(path: Path) -> int:
    """Compress an ended journal; return its bytes, raise OSError. It takes a tenth of the time of writing it."""
    new = path.with_name(f"{path.name}.new")
    with open_private(new) as raw, gzip.open(raw, "wb", compresslevel=1) as file, path.open("rb") as it:
        file.writelines(it)
    return new.replace(path).stat().st_size


def _name(at: int, cause: str) -> str:
    """Return the name of an incident's file, without its ending; it begins with the time of the incident."""
    moment = datetime.fromtimestamp(max(0, at) // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}-{re.sub('[^a-z0-9]+', '-', cause.lower())[:40]}"


def recordings_in(folder: Path) -> list[Path]:
    """Return the recordings in a folder, the newest first; none if it cannot be read."""
    with contextlib.suppress(OSError):
        return sorted((path for path in folder.iterdir() if path.suffix == ENDING), reverse=True)
    return []


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file, compressed or not, as far as it can be read."""
    with contextlib.suppress(*ERRORS), os.fdopen(os.open(path, os.O_RDONLY | NO_WAIT), "rb") as raw:
        file = unzipped(raw)
        while (line := file.readline(LONGEST)).endswith(b"\n"):
            yield line


def _unlocked(state: Path) -> list[tuple[Path, FileIO]]:
    """Lock the folders that no other agent uses; return at least one, each with its lock. Raise as Ring does."""
    free: list[tuple[Path, FileIO]] = []
    for number in range(RINGS):
        folder = state / f"recorder{f'-{number}' if number else ''}"
        with contextlib.suppress(BlockingIOError):
            if not free or folder.is_dir():
                free.append((folder, open_locked(folder / "lock")))
    if not free:
        raise NotARecording(f"{RINGS} agents keep their last minutes in {state}; set another --spool for this one")
    return free
