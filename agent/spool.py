"""What is owed to one sink: a queue of points, oldest first, on disk where that is wanted and works."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from agent import chunk
from agent.datapoint import NO_DIMENSIONS, Datapoint, Dimensions
from agent.errors import Retryable
from agent.journal import Journal
from agent.ledger import Ledger
from agent.say import Sayer
from agent.store import NEWEST, Store

log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 16 << 20
"""Bound of what waits in memory: all of a sink that is not durable, or what the disk did not take."""
NOT_SENT: Final = "not sent at the stop"
"""Why points of a sink that is not durable end when the program does."""
POINT_BYTES: Final = 250
"""About what a point takes in memory; used for that bound alone."""
STATE: Final = "sink"
"""Memo of what the sink must know after a restart."""
PATIENCE: Final = 10
"""How often a chunk that the disk withholds is asked for."""


UNWRITABLE: Final = (TypeError, ValueError, OverflowError)
"""What points raise that no chunk can hold."""


def _is_writable(point: Datapoint, common: Dimensions | None) -> bool:
    try:
        chunk.encode([point], common)
    except UNWRITABLE:
        return False
    return True


@dataclass(slots=True, eq=False)
class _Chunk:
    """One window's points, of which the first `done` have ended; `points` is None if only the disk has them."""

    key: int
    count: int
    size: int
    newest: int
    done: int = 0
    withheld: int = 0
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
        self.name, self._max_bytes = name, max_bytes
        self._max_age = None if max_age is None else int(max_age * 1e9)
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Chunk] = deque()  # by rising key
        self._flight = 0  # how many chunks at the front the worker has in hand
        self._unsaved: deque[_Chunk] = deque()  # those of the queue that the disk has yet to take
        self._bytes = {True: 0, False: 0}  # on disk, in memory
        self._sayer = Sayer(log, f"spool {name}")
        self._journal = Journal(path, self._sayer, self._forget_the_file)
        self.ledger = Ledger()
        self.faults = self._journal.faults
        """Times that the file failed, by kind of trouble."""
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
            if self._journal.wanted:
                self._unsaved.append(fresh)
                self._save()
            self._trim()

    def refuse(self, points: int, reason: str) -> None:
        """Count points that are not to be sent at all."""
        with self._lock:
            change = {"collected": points, f"dropped:{reason}": points}
            self.ledger.book(change)
            if self._journal.is_open:
                self._journal.owe(change)
                self._journal.pay()

    def _save(self) -> None:
        """Write what only memory has, unless the worker has it in hand; what the disk does not take waits here."""
        if not self._journal.is_open and not self._flight:
            self._open()
        if not self._journal.pay():
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
            try:
                body = chunk.encode(left, part.common)
            except UNWRITABLE as problem:
                fit = [point for point in left if _is_writable(point, part.common)]
                bad = len(left) - len(fit)
                self._journal.fault("unwritable", f"{bad} points cannot be written, and are dropped: {problem}")
                if not fit:
                    self._queue.remove(part)
                self._end(part, {"dropped:unwritable": bad})
                if not fit:
                    continue
                left = part.points = fit
                part.count, part.done = len(fit), 0
                body = chunk.encode(left, part.common)
            change = {"collected": part.left}
            if not self._journal.do(partial(Store.add, key=part.key, newest=part.newest, body=body, change=change)):
                self._unsaved.extend(p for p in waiting[n:] if not p.stored and p not in self._unsaved)
                return
            self._bytes[False] -= part.size
            part.count, part.done, part.size, part.stored = len(left), 0, len(body), True
            part.points = left if part is self._queue[-1] else None
            self._bytes[True] += part.size
        self._journal.well()

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

        They are safe from trimming until settled or released. Raises Retryable where the disk fails for now.
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
                    if part in self._queue:
                        break
                    continue
                assert part.points is not None
                if self._flight and part.common != common:
                    break
                common = part.common
                taken += part.points[part.done : part.done + most - len(taken)]
                self._flight += 1
            if not taken and self._queue and self._journal.is_open:
                raise Retryable("the spool's file cannot be read now")
            return taken, common

    def _load(self, part: _Chunk) -> bool:
        """Read a chunk back; one that makes no sense, or that the disk withholds for long, is set aside and counted."""
        found: list[bytes] = []
        try:
            if not self._journal.do(lambda s: found.append(s.read(part.key))):
                part.withheld += 1
                if part not in self._queue or part.withheld < PATIENCE:
                    return False
                raise LookupError("the disk withholds it")  # noqa: TRY301
            points, common = chunk.decode(found[0], part.count)
        except (chunk.Unreadable, LookupError) as problem:
            self._queue.remove(part)
            self._journal.fault("unreadable", f"a chunk of {part.left} points cannot be read, set aside: {problem}")
            why = str(problem)
            self._journal.do(lambda s: s.set_aside(part.key, why))
            self._end(part, {"dropped:unreadable": part.left})
            return False
        part.points, part.common = points, common
        return True

    def settle(self, change: Mapping[str, int]) -> None:
        """End the oldest points taken, as many as `change` counts (`sent`, `rejected:reason`, `dropped:reason`)."""
        rest = dict(change)
        with self._lock:
            while self._queue and (left := sum(rest.values())):  # a worker may come back after `close`
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

    def set_aside(self, points: Sequence[Datapoint], why: str) -> None:
        """Keep a copy of points on disk, for a person to look at; how they end is for `settle`."""
        try:
            body = chunk.encode(points, None)
        except UNWRITABLE:
            return
        with self._lock:
            self._journal.do(lambda store: store.keep_aside(ascii(why), body))

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
            if part in self._unsaved:
                self._unsaved.remove(part)
        if not self._journal.is_open:
            return
        if not part.stored:
            self._journal.owe({"collected": ended, **change})
        elif part.left:
            self._journal.owe(change, front=(part.key, part.done))
        else:
            self._journal.owe(change, gone=part.key)
        self._journal.pay()

    def _open(self) -> None:
        """Open the file; what it still owes comes before what waits in memory."""
        found = self._journal.open()
        if found is None:
            return
        rows, entries = found
        if unknown := self.ledger.ended():
            self._journal.owe(unknown)
        self.ledger.book(entries)
        old = [_Chunk(key, count, size, newest, done, stored=True) for key, count, done, newest, size in rows]
        for part in old:
            self.ledger.spooled += part.left
            self._bytes[True] += part.size
        for part in self._queue:
            part.key += old[-1].key + 1 if old else 0
        self._queue.extendleft(reversed(old))

    def _forget_the_file(self) -> None:
        """Count as lost what only the file held, since it has been set aside; the rest waits to be written anew."""
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

    def newest(self) -> int | None:
        """Return when the newest point was measured that the file ever took (ns since the epoch), or None."""
        found = self._memo(NEWEST)
        return int.from_bytes(found, "big", signed=True) if len(found) == 8 else None

    def recall(self) -> bytes:
        """Return what `remember` kept last, also before a restart; nothing where there is none."""
        return self._memo(STATE)

    def remember(self, state: bytes) -> None:
        """Keep what the sink must know after a restart; lost where the file fails."""
        with self._lock:
            self._journal.do(lambda store: store.note(STATE, state))

    def _memo(self, name: str) -> bytes:
        found: list[bytes] = []
        with self._lock:
            self._journal.do(lambda store: found.append(store.noted(name)))
        return found[0] if found else b""

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
            if self._journal.wanted:
                self._save()
            lost = [part for part in self._queue if not part.stored]
            for part in lost:
                self._queue.remove(part)
                self._end(part, {f"dropped:{NOT_SENT}": part.left})
            self._journal.close()
        if lost:
            log.error("spool %s: %d points are lost, they were not sent", self.name, sum(part.count for part in lost))
