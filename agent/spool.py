"""What is owed to one sink: a queue of points, oldest first, on disk where that is wanted and works."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from agent import chunk
from agent.datapoint import NO_DIMENSIONS, Datapoint, Dimensions
from agent.ledger import Ledger
from agent.say import Sayer
from agent.store import Busy, Store, set_file_aside

log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 16 << 20
"""Bound of what waits in memory: all of a sink that is not durable, or what the disk did not take."""
IN_MEMORY: Final = "points wait in memory, and are lost if this process ends"
POINT_BYTES: Final = 250
"""About what a point takes in memory; used for that bound alone."""


@dataclass(slots=True, eq=False)
class _Chunk:
    """One window's points, of which the first `done` have ended; `points` is None if only the disk has them."""

    key: int
    count: int
    size: int
    newest: int
    done: int = 0
    stored: bool = False
    points: list[Datapoint] | None = None
    common: Dimensions | None = None

    @property
    def left(self) -> int:
        return self.count - self.done


class Spool:
    """
    A queue of points between the windows and one sink's worker.

    `append` is called by the clock's thread, `take`, `settle` and `release` by the worker's. Bounded in bytes and in
    age, the oldest go first and are counted. Where the disk fails, points wait in memory and are written later.
    """

    def __init__(
        self,
        name: str,
        path: Path | None = None,
        *,
        max_bytes: int = 128 << 20,
        max_age: float | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Keep at most `max_bytes` in the file at `path` (None: in memory), none older than `max_age` seconds."""
        self.name, self._path, self._max_bytes = name, path, max_bytes
        self._max_age = None if max_age is None else int(max_age * 1e9)
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Chunk] = deque()  # by rising key
        self._flight = 0  # how many chunks at the front the worker has in hand
        self._unsaved: deque[_Chunk] = deque()  # those of the queue that the disk has yet to take
        self._debts: deque[tuple[list[int], tuple[int, int] | None, dict[str, int]]] = deque()
        self._bytes = {True: 0, False: 0}  # on disk, in memory
        self._store: Store | None = None
        self._sayer = Sayer(log, f"spool {name}")
        self.ledger = Ledger()
        self.faults: Counter[str] = Counter()
        if path is not None:
            self._open()

    # -- the clock's side ---------------------------------------------------------------------------------------

    def append(self, points: Sequence[Datapoint], common: Dimensions | None = NO_DIMENSIONS) -> None:
        """
        Take one window's points, and the dimensions of the machine or None while they are not known.

        Never raises, never waits for the far side.
        """
        if not points:
            return
        with self._lock:
            last = self._queue[-1] if self._queue else None
            if last is not None and last.stored and self._flight < len(self._queue):
                last.points = None  # only the newest is kept at hand
            newest = max([p.at for p in points])
            key = last.key + 1 if last else 0
            fresh = _Chunk(key, len(points), len(points) * POINT_BYTES, newest, points=list(points), common=common)
            self._queue.append(fresh)
            self._bytes[False] += fresh.size
            self.ledger.collected += fresh.count
            self.ledger.spooled += fresh.count
            if self._path is not None:
                self._unsaved.append(fresh)
                self._save()
            self._trim()

    def _save(self) -> None:
        """Write what only memory has, unless the worker has it in hand; what the disk does not take waits here."""
        if (self._store is None and (self._flight or not self._open())) or not self._pay():
            return
        in_hand = self._queue[self._flight - 1].key if self._flight else -1
        waiting = [part for part in self._unsaved if part.left]
        self._unsaved.clear()
        for n, part in enumerate(waiting):
            if part.key <= in_hand:
                self._unsaved.append(part)
                continue
            assert part.points is not None
            left = part.points[part.done :]
            body = chunk.encode(left, part.common)
            change = {"collected": part.left}
            if not self._disk(partial(Store.add, key=part.key, newest=part.newest, body=body, change=change)):
                self._unsaved.extend(p for p in waiting[n:] if not p.stored and p not in self._unsaved)
                return
            self._bytes[False] -= part.size
            part.count, part.done, part.size, part.stored = len(left), 0, len(body), True
            part.points = left if part is self._queue[-1] else None
            self._bytes[True] += part.size
        self._sayer.over("disk", "the disk takes points again")

    def _trim(self) -> None:
        for stored, most, reason in ((True, self._max_bytes, "spool full"), (False, MEMORY_BYTES, "memory full")):
            at = self._flight
            while self._bytes[stored] > most and at < len(self._queue) - 1:
                if self._queue[at].stored is stored:
                    self._drop(at, reason)
                else:
                    at += 1

    def _drop(self, at: int, reason: str) -> None:
        part = self._queue[at]
        del self._queue[at]
        self._sayer.say(logging.ERROR, reason, f"the oldest points are dropped: {reason} ({part.left} and counting)")
        self._end(part, {f"dropped:{reason}": part.left})

    # -- the worker's side --------------------------------------------------------------------------------------

    def take(self, most: int) -> tuple[list[Datapoint], Dimensions | None]:
        """
        Return up to `most` of the oldest points, and the dimensions of the machine that they were measured on.

        They are safe from trimming until settled or released.
        """
        with self._lock:
            self._flight = 0
            if self._max_age is not None:
                horizon = self._clock() - self._max_age
                while self._queue and self._queue[0].newest < horizon:
                    self._drop(0, "too old")
            taken: list[Datapoint] = []
            common: Dimensions | None = None
            while len(taken) < most and self._flight < len(self._queue):
                part = self._queue[self._flight]
                if part.points is None and not self._load(part):
                    continue
                assert part.points is not None
                if self._flight and part.common != common:
                    break
                common = part.common
                taken += part.points[part.done : part.done + most - len(taken)]
                self._flight += 1
            return taken, common

    def _load(self, part: _Chunk) -> bool:
        """Read a chunk back; one that cannot be read is set aside and counted."""
        found: list[bytes] = []
        try:
            self._disk(lambda s: found.append(s.read(part.key)))
            points, common = chunk.decode(b"".join(found), part.count)
        except (chunk.Unreadable, LookupError) as problem:
            if part in self._queue:  # it is gone already if the whole file was set aside
                self._queue.remove(part)
                self._fault("unreadable", f"a chunk of {part.left} points cannot be read, set aside: {problem}")
                why = str(problem)
                self._disk(lambda s: s.set_aside(part.key, why))
                self._end(part, {"dropped:unreadable": part.left})
            return False
        part.points, part.common = points, common
        return True

    def settle(self, change: Mapping[str, int]) -> None:
        """End the oldest points taken, as many as `change` counts (`sent`, `rejected:reason`, `dropped:reason`)."""
        rest = dict(change)
        with self._lock:
            while left := sum(rest.values()):
                part = self._queue[0]
                ended = min(left, part.left)
                share: dict[str, int] = {}
                for entry, points in rest.items():
                    share[entry] = min(points, ended - sum(share.values()))
                rest = {entry: points - share[entry] for entry, points in rest.items()}
                if ended == part.left:
                    self._queue.popleft()
                    self._flight -= 1
                self._end(part, {entry: points for entry, points in share.items() if points})

    def release(self) -> None:
        """Give back what was taken and not settled."""
        with self._lock:
            self._flight = 0

    # -- both ---------------------------------------------------------------------------------------------------

    def _end(self, part: _Chunk, change: dict[str, int]) -> None:
        """Book the end of points of `part`; what the disk never held enters its ledger only now, from both sides."""
        ended = sum(change.values())
        part.done += ended
        self.ledger.book(change)
        self.ledger.spooled -= ended
        if not part.left:
            self._bytes[part.stored] -= part.size
        if self._store is None:
            return
        if not part.stored:
            self._debts.append(([], None, {"collected": ended, **change}))
        else:
            front = (part.key, part.done) if part.left else None
            self._debts.append(([] if part.left else [part.key], front, change))
        self._pay()

    def _pay(self) -> bool:
        """Write the ends that the disk does not know yet."""
        while self._debts:
            if not self._disk(lambda s: s.settle(*self._debts[0])):
                return False
            self._debts.popleft()
        return True

    def _disk(self, action: Callable[[Store], object]) -> bool:
        """Do `action`; say and count what fails. A file that SQLite calls corrupt is set aside and made new."""
        if self._store is None:
            return False
        try:
            action(self._store)
        except sqlite3.Error as problem:
            if isinstance(problem, sqlite3.OperationalError) or type(problem) is not sqlite3.DatabaseError:
                self._fault(
                    "disk", f"{self._path}: {problem}; points wait in memory, and are lost if this process ends"
                )
            else:
                self._replace(problem)
            return False
        return True

    def _open(self) -> bool:
        """Open the file; what it still owes comes before what waits in memory."""
        assert self._path is not None
        try:
            try:
                store = Store(self._path)
            except sqlite3.DatabaseError as problem:
                if isinstance(problem, sqlite3.OperationalError):
                    raise
                self._set_file_aside(problem)
                store = Store(self._path)
            rows, entries = store.chunks(), store.ledger()
        except Busy as problem:
            self._fault("busy", f"{problem}; {IN_MEMORY}")
            self._path = None
            return False
        except (OSError, sqlite3.Error) as problem:
            self._fault("disk", f"{self._path}: {problem}; points wait in memory, and are lost if this process ends")
            return False
        if unknown := self.ledger.ended():
            self._debts.append(([], None, unknown))
        self._store = store
        self.ledger.book(entries)
        old = [_Chunk(key, count, size, newest, done, stored=True) for key, count, done, newest, size in rows]
        for part in old:
            self.ledger.spooled += part.left
            self._bytes[True] += part.size
        for part in self._queue:
            part.key += old[-1].key + 1 if old else 0
        self._queue.extendleft(reversed(old))
        return True

    def _replace(self, problem: Exception) -> None:
        """Set the file aside; what only it held is lost and counted, the rest is written to a new one."""
        assert self._store is not None
        self._store.close()
        self._store = None
        self._debts.clear()
        self._set_file_aside(problem)
        for part in list(self._queue):
            if not part.stored:
                continue
            if part.points is None:
                self._queue.remove(part)
                self._end(part, {"dropped:unreadable": part.left})
            else:
                self._bytes[True] -= part.size
                part.size, part.stored = part.count * POINT_BYTES, False
                self._bytes[False] += part.size
        self._unsaved = deque(part for part in self._queue if not part.stored)

    def _set_file_aside(self, problem: Exception) -> None:
        assert self._path is not None
        aside = set_file_aside(self._path)
        self._fault("corrupt", f"{self._path}: {problem}; it is set aside as {aside}, a new one begins")

    def _fault(self, kind: str, text: str) -> None:
        self.faults[kind] += 1
        self._sayer.say(logging.WARNING if kind in {"disk", "busy"} else logging.ERROR, kind, text)

    def oldest(self) -> int | None:
        """Return when the newest point of the oldest chunk was measured (ns since the epoch), or None."""
        with self._lock:
            return self._queue[0].newest if self._queue else None

    @property
    def bytes(self) -> int:
        """Bytes waiting, on disk and in memory."""
        return sum(self._bytes.values())

    def close(self) -> None:
        """Write what can be written and close the file; safe to call twice."""
        with self._lock:
            self._flight = 0
            if self._store is not None:
                self._save()
            if self._store is not None:
                self._store.close()
                self._store = None
            self._path = None
