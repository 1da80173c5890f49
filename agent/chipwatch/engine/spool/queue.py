"""The queue of points between the windows of one sink and its delivery, on disk or in memory."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import methodcaller
from pathlib import Path
from typing import Final

from chipwatch.base.text import count
from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions
from chipwatch.contract.errors import Retryable
from chipwatch.contract.trusted_clock import TRUSTED_CLOCK
from chipwatch.engine.spool.file import Chunk, Destination, Ledger, SpoolFile

log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 16 << 20
"""Most bytes that wait in memory, if the sink is not durable or while the disk fails."""
CHUNK_POINTS: Final = 1000
"""Most points of a chunk, as of a request: SQLite writes a chunk again when a part of its points is acknowledged."""
POINT_BYTES: Final = 250
"""Bytes that a point takes in memory, about; only for the limit MEMORY_BYTES."""
MAX_READS: Final = 10
"""Reads of a chunk that may fail before it is dropped."""


class Spool:
    """
    The queue of points that wait for one sink, and the counts of all of its points.

    The clock's thread calls `append` and `refuse`. The thread that delivers calls `bind`, `take`, `acknowledge`,
    `release` and `set_aside`. If the spool is full or points are too old, the oldest are dropped and counted.

    While its file fails, points wait in memory and are written later. No failure of the file is raised; it is counted
    and logged.
    """

    def __init__(
        self,
        name: str,
        path: Path | None = None,
        *,
        max_bytes: int = 128 << 20,
        max_age: float | None = None,
        destination: Mapping[str, str] | None = None,
        drop_others: bool = False,
        clock: Callable[[], int | None] = TRUSTED_CLOCK,
    ) -> None:
        """
        Keep at most `max_bytes` in the file at `path` (None: in memory), and no points older than `max_age` seconds.

        `destination` is the part of the destination that the sink knows now. With `drop_others`, points for another
        destination are dropped. `clock` returns the time (ns since the epoch), or None while it cannot be trusted: then
        no point is too old.
        """
        self.name, self._max_bytes, self._drop_others, self._clock = name, max_bytes, drop_others, clock
        self._max_age = None if max_age is None else int(max_age * 1e9)
        self._destination = Destination(destination)
        self.file = SpoolFile(name, path, self._destination.state, self._drop_stored)
        """The file. Public methods take its lock; private methods are called with the lock held."""
        self._notices = self.file.logger
        self._queue: deque[Chunk] = deque()  # oldest first, by ascending key
        self._unsaved: deque[Chunk] = deque()  # the chunks of the queue that are not on disk yet
        self._next_key = 0
        self._in_flight = 0  # chunks at the front of the queue that `take` has returned
        self._bytes = {True: 0, False: 0}  # on disk, in memory
        self.ledger = Ledger()
        self.lost = 0
        """Number of points that were lost at the close, since no file took them."""
        self._open()

    # -- called by the clock's thread ----------------------------------------------------------------------------------

    def append(self, points: list[Datapoint], common: Dimensions | None = NO_DIMENSIONS) -> None:
        """
        Add the points of a window, and the machine's dimensions (None while they are not known).

        The caller must not change the list afterwards. Raise nothing, and never wait for the sink.
        """
        with self.file.lock:
            for old in islice(reversed(self._queue), len(self._queue) - self._in_flight):
                if old.points is None:
                    break
                if old.stored:
                    old.points = None  # only the newest window stays in memory, too
            for begin in range(0, len(points), CHUNK_POINTS):
                some = points[begin : begin + CHUNK_POINTS]
                newest, label = max([point.at for point in some]), self._destination.label
                number, size = len(some), len(some) * POINT_BYTES
                chunk = Chunk(self._next_key, number, size, newest, label, points=some, common=common)
                self._next_key += 1
                self._queue.append(chunk)
                self._bytes[False] += size
                self.ledger.collected += number
                self.ledger.spooled += number
                if self.file.path is not None:
                    self._unsaved.append(chunk)
                    self._save()
                self._trim()

    def refuse(self, points: int, reason: str) -> None:
        """Count points that were dropped before they entered the spool."""
        with self.file.lock:
            change = {"collected": points, f"dropped:{reason}": points}
            self.ledger.add(change)
            self.file.note(change)
            self.file.flush()

    # -- called by the thread that delivers ----------------------------------------------------------------------------

    def bind(self, destination: Mapping[str, str]) -> None:
        """
        Set the whole destination of the sink; called before the first `take`.

        Points for another destination are kept until that one is set again, or until they are too old.
        """
        with self.file.lock:
            self._destination.bind(destination)
            self._divide()

    def take(self, most: int) -> list[tuple[list[Datapoint], Dimensions | None]]:
        """
        Return up to `most` of the oldest points, each part with the machine's dimensions that were stored with it.

        These points are not dropped until they are acknowledged or released. Raise Retryable if the disk fails now.
        """
        with self.file.lock:
            self._in_flight, left = 0, most
            if self._max_age is not None and (now := self._clock()) is not None:
                while self._queue and self._queue[0].newest < now - self._max_age:
                    self._drop(self._queue[0], "too old")
            taken: list[tuple[list[Datapoint], Dimensions | None]] = []
            while left and self._in_flight < len(self._queue):
                chunk = self._queue[self._in_flight]
                if chunk.points is None and not self._load(chunk):
                    if chunk in self._queue:
                        break
                    continue
                assert chunk.points is not None
                if not taken or taken[-1][1] != chunk.common:
                    taken.append(([], chunk.common))
                taken[-1][0].extend(islice(chunk.points, chunk.done, chunk.done + left))
                left -= min(left, chunk.left)
                self._in_flight += 1
            if not taken and self._queue and self.file.store:
                raise Retryable("the spool's file cannot be read now")
            return taken

    def acknowledge(self, change: Mapping[str, int], state: bytes | None = None) -> None:
        """
        End the oldest points that were taken, as many as `change` counts by outcome (see `Ledger.add`).

        One transaction writes that and the sink's `state` (None: not changed), so that a kill cannot part them.
        """
        with self.file.lock:
            for entry, points in change.items():
                left = points
                while left and self._queue:  # empty if a sink that hung answers after `close`
                    chunk = self._queue[0]
                    ended = min(left, chunk.left)
                    left -= ended
                    if ended == chunk.left:
                        self._in_flight -= 1
                    self._end(chunk, {entry: ended}, flush=False)
            self.file.note_state(state)
            if self.file.flush() and not self._queue:
                self.file.do(methodcaller("shrink"))

    def release(self) -> None:
        """Give back the points that were taken and are not acknowledged."""
        with self.file.lock:
            self._in_flight = 0

    def set_aside(self, points: Sequence[Datapoint], why: str) -> None:
        """Keep a copy of points on disk, for a person to look at; call `acknowledge` for them, too."""
        with self.file.lock:
            self.file.do(lambda store: store.set_aside(ascii(why), points=points))

    def close(self) -> None:
        """Write the points that wait, and close the file; points that it does not take are lost. Safe to call twice."""
        with self.file.lock:
            self._in_flight = 0
            level = logging.INFO if self.file.path is None else logging.ERROR  # a spool in memory ends with the run
            if self.file.path is not None:
                self._save()
            lost = [chunk for chunk in self._queue if not chunk.stored]
            for chunk in lost:
                self.lost += chunk.left
                self._end(chunk, {"dropped:not sent at the stop": chunk.left})
            self.file.close()
        if lost:
            log.log(level, "spool %s: %s lost: neither sent nor written to disk", self.name, count(self.lost, "are"))

    # -- chunks --------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Write the chunks that are only in memory, except taken ones; if the disk fails, they stay in memory."""
        if not self.file.store and not self._in_flight:
            self._open()
        if not self.file.flush():
            return
        in_flight = self._queue[self._in_flight - 1].key if self._in_flight else -1
        for chunk in [chunk for chunk in self._unsaved if chunk.key > in_flight]:
            assert chunk.points is not None
            if chunk.done:
                chunk.points, chunk.count, chunk.done = chunk.points[chunk.done :], chunk.left, 0
            try:
                size = self.file.do(methodcaller("add", chunk))
            except (TypeError, ValueError, OverflowError) as problem:
                self._notices.tell("unwritable", f"{chunk.left} points cannot be written, and are dropped: {problem}")
                self._end(chunk, {"dropped:unwritable": chunk.left})
                continue
            if size is None:
                return
            self._unsaved.remove(chunk)
            self._bytes[False] -= chunk.size
            chunk.size, chunk.stored = size, True
            self._bytes[True] += chunk.size
            if chunk is not self._queue[-1]:
                chunk.points = None
        if self.file.faults:
            self._notices.over("disk")
            self._notices.over("busy")

    def _trim(self) -> None:
        for stored, most, reason in ((True, self._max_bytes, "spool full"), (False, MEMORY_BYTES, "memory full")):
            while self._bytes[stored] > most:
                old = islice(self._queue, self._in_flight, len(self._queue) - 1)
                chunk = next((chunk for chunk in old if chunk.stored is stored), None)
                if chunk is None:
                    break
                self._drop(chunk, reason)

    def _drop(self, chunk: Chunk, reason: str) -> None:
        self._notices.log(logging.ERROR, reason, f"the oldest points are dropped: {reason} ({chunk.left} now)")
        self._end(chunk, {f"dropped:{reason}": chunk.left})

    def _load(self, chunk: Chunk) -> bool:
        """Read the points of a chunk; set it aside and drop it if it is corrupt, or if too many reads failed."""
        try:
            read = self.file.do(lambda store: store.read(chunk))
            if read is None:
                chunk.failed_reads += 1
                if chunk not in self._queue or chunk.failed_reads < MAX_READS:
                    return False
                raise LookupError(f"the disk failed {MAX_READS} times")  # noqa: TRY301
            chunk.points, chunk.common = read
        except LookupError as problem:
            self._queue.remove(chunk)
            self._notices.tell(
                "unreadable", f"{chunk.left} points of a chunk cannot be read, and are dropped: {problem}"
            )
            self.file.do(methodcaller("set_aside", str(problem), key=chunk.key))
            excess = min(max(-self.ledger.balance(), 0), chunk.left - 1)  # the chunk's number of points may be corrupt
            chunk.count -= excess
            self.ledger.spooled -= excess
            self._end(chunk, {"dropped:unreadable": chunk.left})
            return False
        return True

    def _end(self, chunk: Chunk, change: dict[str, int], *, flush: bool = True) -> None:
        """
        Count points of `chunk` as ended, and remove the chunk once all of its points have ended.

        If the file never had the chunk, its ledger also counts the points as collected. Without `flush`, the file gets
        the change together with the next one.
        """
        ended = sum(change.values())
        chunk.done += ended
        self.ledger.add(change)
        self.ledger.spooled -= ended
        if not chunk.left:
            self._bytes[chunk.stored] -= chunk.size
            for chunks in (self._queue, self._unsaved):
                if chunk in chunks:
                    chunks.remove(chunk)
        if not chunk.stored:
            self.file.note({"collected": ended, **change})
        elif chunk.left:
            self.file.note(change, front=(chunk.key, chunk.done))
        else:
            self.file.note(change, gone=chunk.key)
        if flush:
            self.file.flush()

    def _divide(self) -> None:
        """
        Once the destination is known, keep only its chunks in the queue.

        A chunk whose label is a part of the destination gets the whole label. Other chunks stay in the file; they are
        dropped if the user asks for it, or if they are too old.
        """
        if not self._destination.is_bound:
            return
        others: dict[bytes, list[Chunk]] = {}
        for chunk in self._queue:
            if chunk.stored and not self._destination.is_of(chunk.destination):
                others.setdefault(chunk.destination, []).append(chunk)
        now = self._clock() if self._max_age is not None else None
        oldest = 0 if now is None else now - (self._max_age or 0)
        for label, chunks in others.items():
            self._destination.tell_of(
                label, sum(chunk.left for chunk in chunks), self.file.logger, are_kept=not self._drop_others
            )
            for chunk in chunks:
                if chunk not in self._queue:  # the file turned out corrupt, and its chunks have ended
                    continue
                if self._drop_others or chunk.newest < oldest:
                    reason = "other destination" if self._drop_others else "too old"
                    self._end(chunk, {f"dropped:{reason}": chunk.left})
                    continue
                self._queue.remove(chunk)
                self._bytes[True] -= chunk.size
                self.ledger.elsewhere += chunk.left
        for label in {chunk.destination for chunk in self._queue} - {self._destination.label}:
            self.file.do(methodcaller("readdress", label, self._destination.label))
        for chunk in self._queue:
            chunk.destination = self._destination.label

    # -- the file ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the file; put its chunks before the ones in memory, and compare its ledger with its chunks."""
        if (content := self.file.open()) is None:
            return
        old, entries = content.chunks, content.entries
        kept = Ledger(spooled=sum([chunk.left for chunk in old]))
        kept.add(entries)
        lost = +Counter({"dropped:unreadable": kept.balance()})
        if lost:
            number = lost.total()
            self._notices.tell("unreadable", f"{number} points of its file are in its ledger but not in its chunks")
        unknown = Counter(self.ledger.ended()) + lost
        for change in (entries, lost):
            self.ledger.add(change)
        self.ledger.spooled += kept.spooled
        self._bytes[True] += sum([chunk.size for chunk in old])
        keys = old[-1].key + 1 if old else 0
        self._next_key += keys
        for chunk in self._queue:
            chunk.key += keys
        self._queue.extendleft(reversed(old))
        if unknown:
            self.file.note(unknown)
            self.file.flush()
        self._divide()

    def _drop_stored(self) -> None:
        """Drop the points that were only in a corrupt file; the others wait in memory for a new file."""
        ledger = self.ledger
        if ledger.elsewhere:
            ledger.add({"dropped:unreadable": ledger.elsewhere})
            ledger.spooled, ledger.elsewhere = ledger.due, 0
        for chunk in [*self._queue]:
            if not chunk.stored:
                continue
            if chunk.points is None:
                self._end(chunk, {"dropped:unreadable": chunk.left})
            else:
                self._bytes[True] -= chunk.size
                chunk.size, chunk.stored = chunk.count * POINT_BYTES, False
                self._bytes[False] += chunk.size
        self._unsaved = deque(chunk for chunk in self._queue if not chunk.stored)

    # -- how much waits ------------------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """True if points wait for the destination that is set."""
        return bool(self._queue)

    @property
    def bytes(self) -> int:
        """Bytes of the points that wait, on disk and in memory."""
        return sum(self._bytes.values())

    def oldest(self) -> int | None:
        """Return the time of the newest point of the oldest chunk (ns since the epoch), or None."""
        with self.file.lock:
            return self._queue[0].newest if self._queue else None
