"""A queue of points between the windows of one sink and its worker, on disk if that is wanted and works."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions
from chipwatch.contract.errors import Retryable, file_of, os_text
from chipwatch.contract.text import count
from chipwatch.contract.trusted_clock import TRUSTED_CLOCK
from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.spool.chunk import NEWEST, STATE, Chunk, UnreadableChunk, decode, encode, fits, label_of, shown
from chipwatch.spool.ledger import Ledger

if TYPE_CHECKING:
    from chipwatch.spool.sqlite import Store

log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 16 << 20
"""Most bytes that wait in memory: for a sink that is not durable, or while the disk fails."""
CHUNK_POINTS: Final = 10_000
"""Most points of a chunk: SQLite writes the whole row again at each acknowledgement of some of its points."""
POINT_BYTES: Final = 250
"""About the size of a point in memory; used for that bound alone."""
MAX_READS: Final = 10
"""Failed reads of a chunk after which it is dropped."""
IN_MEMORY: Final = "points wait in memory, and are lost if this process ends"
HARMLESS: Final = frozenset({"disk", "busy"})
"""Kinds of faults that have lost no point yet."""


@dataclass(slots=True)
class PendingEnds:
    """Ends of points that the file did not take yet, merged into one change."""

    gone: list[int] = field(default_factory=list)
    """Keys of chunks whose points have all ended."""
    front: tuple[int, int] | None = None
    """The key of the first chunk, and how many of its points ended."""
    entries: Counter[str] = field(default_factory=Counter)
    """Points to add to the ledger."""
    memos: dict[str, bytes] = field(default_factory=dict)

    def write(self, store: Store) -> None:
        """Write all of them in one transaction."""
        store.acknowledge(self.gone, self.front, self.entries, **self.memos)


class Spool:
    """
    A queue of points between the windows and one sink's worker, and the counts of all of its points.

    The clock's thread calls `append` and `refuse`; the worker's calls `bind`, `take`, `acknowledge`
    and `release`. When the spool is full or points are too old, the oldest are dropped and counted.

    The file may fail, fill up, become corrupt or be locked by another agent: then points wait in memory and are written
    later. Changes that the file did not take are merged into one and written before anything else. No failure of the
    file is raised; it is counted and logged.
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
        Keep at most `max_bytes` in the file at `path` (None: in memory), none older than `max_age` seconds.

        `destination` is as much as the sink knows of it now; `drop_others`: drop points for another destination.
        `clock` returns the time, or None if it cannot be trusted: then no point is too old.
        """
        self.name, self._max_bytes, self._drop_others, self._clock = name, max_bytes, drop_others, clock
        self._max_age = None if max_age is None else int(max_age * 1e9)
        self._lock = threading.Lock()
        """Held by every public method; the private ones are called under it."""
        self._queue: deque[Chunk] = deque()  # by rising key
        self._unsaved: deque[Chunk] = deque()  # chunks of the queue that are not on disk yet
        self._next_key = 0
        self._in_flight = 0  # number of chunks at the front of the queue that the worker has taken
        self._destination, self._label, self._is_bound = destination or {}, label_of(destination or {}), False
        self._state = f"{STATE} {self._label.decode()}" if destination else STATE
        self._bytes = {True: 0, False: 0}  # on disk, in memory
        self._logger = ThrottledLogger(log, f"spool {name}")
        self._path = path  # None: the points are in memory only
        self._store: Store | None = None
        self._pending: PendingEnds | None = None
        self.ledger = Ledger()
        self.elsewhere = 0
        """Points in the file for other destinations: they stay there until one of these is set again."""
        self.lost = 0
        """Points that were lost at the close, since no file took them."""
        self.faults: Counter[str] = Counter()
        """Failures of the file by kind."""
        self._open()

    # -- the windows' side ---------------------------------------------------------------------------------------------

    def append(self, points: list[Datapoint], common: Dimensions | None = NO_DIMENSIONS) -> None:
        """
        Add one window's points, and the dimensions of the machine or None while they are not known.

        The list belongs to the spool from then on. Never raises, never waits for the sink.
        """
        if not points:
            return
        if len(points) > CHUNK_POINTS and self._path is not None:
            for begin in range(0, len(points), CHUNK_POINTS):
                self.append(points[begin : begin + CHUNK_POINTS], common)
            return
        with self._lock:
            last = self._queue[-1] if self._queue else None
            if last is not None and last.stored and self._in_flight < len(self._queue):
                last.points = None  # only the newest is kept in memory too
            newest = max([point.at for point in points])
            number, size = len(points), len(points) * POINT_BYTES
            chunk = Chunk(self._next_key, number, size, newest, self._label, points=points, common=common)
            self._next_key += 1
            self._queue.append(chunk)
            self._bytes[False] += size
            self.ledger.collected += number
            self.ledger.spooled += number
            if self._path is not None:
                self._unsaved.append(chunk)
                self._save()
            self._trim()

    def refuse(self, points: int, reason: str) -> None:
        """Count points that are dropped before they are spooled."""
        with self._lock:
            change = {"collected": points, f"dropped:{reason}": points}
            self.ledger.add(change)
            self._note_end(change)
            self._flush()

    # -- the worker's side ---------------------------------------------------------------------------------------------

    def bind(self, destination: Mapping[str, str]) -> None:
        """
        Set the whole destination of the sink; called before anything is taken.

        Points for another destination are kept apart until that one is set again or they are too old.
        """
        with self._lock:
            self._destination, self._label, self._is_bound = destination, label_of(destination), True
            self._divide()

    def take(self, most: int) -> tuple[list[Datapoint], Dimensions | None]:
        """
        Return up to `most` of the oldest points, and the dimensions of the machine that they were measured on.

        They are not dropped until acknowledged or released. Raises Retryable if the disk fails for now.
        """
        with self._lock:
            self._in_flight = 0
            if self._max_age is not None and (now := self._clock()) is not None:
                while self._queue and self._queue[0].newest < now - self._max_age:
                    self._drop(self._queue[0], "too old")
            taken: list[Datapoint] = []
            common: Dimensions | None = None
            while len(taken) < most and self._in_flight < len(self._queue):
                chunk = self._queue[self._in_flight]
                if chunk.points is None and not self._load(chunk):
                    if chunk in self._queue:
                        break
                    continue
                assert chunk.points is not None
                if self._in_flight and chunk.common != common:
                    break
                common = chunk.common
                taken.extend(islice(chunk.points, chunk.done, chunk.done + most - len(taken)))
                self._in_flight += 1
            if not taken and self._queue and self._store is not None:
                raise Retryable("the spool's file cannot be read now")
            return taken, common

    def acknowledge(self, change: Mapping[str, int], state: bytes | None = None) -> None:
        """
        End the oldest points taken, as many as `change` counts (`sent`, `rejected:reason`, `dropped:reason`).

        The file gets that together with the sink's `state` (None: unchanged), so that no kill comes between them.
        """
        rest = dict(change)
        with self._lock:
            while self._queue and any(rest.values()):  # a worker may come back after `close`
                chunk = self._queue[0]
                share: dict[str, int] = {}
                for entry, points in rest.items():
                    share[entry] = min(points, chunk.left - sum(share.values()))
                    rest[entry] = points - share[entry]
                if sum(share.values()) == chunk.left:
                    self._in_flight -= 1
                self._end(chunk, {entry: points for entry, points in share.items() if points}, flush=False)
            self._note_state(state)
            self._flush()

    def release(self) -> None:
        """Give back the points that were taken and not acknowledged."""
        with self._lock:
            self._in_flight = 0

    def set_aside(self, points: Sequence[Datapoint], why: str) -> None:
        """Keep a copy of points on disk for a person to look at; `acknowledge` ends them."""
        with self._lock:
            self._do(lambda store: store.set_aside(ascii(why), body=encode(points, None)))

    def recall(self) -> bytes:
        """Return the state of the sink that was kept last, also before a restart, or b"" if there is none."""
        return self._memo(self._state) or self._memo(STATE)

    def remember(self, state: bytes) -> None:
        """Keep what the sink must know after a restart; it is lost if there is no file."""
        with self._lock:
            self._note_state(state)
            self._flush()

    def close(self) -> None:
        """Write what can be written and close the file; safe to call twice."""
        with self._lock:
            self._in_flight = 0
            if self._path is not None:
                self._save()
            lost = [chunk for chunk in self._queue if not chunk.stored]
            for chunk in lost:
                self.lost += chunk.left
                self._end(chunk, {"dropped:not sent at the stop": chunk.left})
            self._close_file()
        if lost:
            level = logging.INFO if self._path is None else logging.ERROR  # in memory they were to end with the run
            log.log(level, "spool %s: %s lost: neither sent nor written to disk", self.name, count(self.lost, "are"))

    # -- chunks --------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Write the chunks that are in memory only, except those in flight; they stay there if the disk fails."""
        if self._store is None and not self._in_flight:
            self._open()
        if not self._flush():
            return
        in_flight = self._queue[self._in_flight - 1].key if self._in_flight else -1
        for chunk in [chunk for chunk in self._unsaved if chunk.key > in_flight]:
            assert chunk.points is not None
            if chunk.done:
                chunk.points, chunk.count, chunk.done = chunk.points[chunk.done :], chunk.left, 0
            try:
                body = encode(chunk.points, chunk.common)
            except (TypeError, ValueError, OverflowError) as problem:
                self._fault("unwritable", f"{chunk.left} points cannot be written, and are dropped: {problem}")
                self._end(chunk, {"dropped:unwritable": chunk.left})
                continue
            if not self._do(methodcaller("add", chunk, body)):
                return
            self._unsaved.remove(chunk)
            self._bytes[False] -= chunk.size
            chunk.size, chunk.stored = len(body), True
            self._bytes[True] += chunk.size
            if chunk is not self._queue[-1]:
                chunk.points = None
        if self.faults:
            self._logger.resolved("disk", "points are written to disk again")
            self._logger.resolved("busy", "no other agent uses the spool any more")

    def _trim(self) -> None:
        for stored, most, reason in ((True, self._max_bytes, "spool full"), (False, MEMORY_BYTES, "memory full")):
            while self._bytes[stored] > most:
                old = islice(self._queue, self._in_flight, len(self._queue) - 1)
                chunk = next((chunk for chunk in old if chunk.stored is stored), None)
                if chunk is None:
                    break
                self._drop(chunk, reason)

    def _drop(self, chunk: Chunk, reason: str) -> None:
        self._logger.log(logging.ERROR, reason, f"the oldest points are dropped: {reason} ({chunk.left} now)")
        self._end(chunk, {f"dropped:{reason}": chunk.left})

    def _load(self, chunk: Chunk) -> bool:
        """Read a chunk from the file; set it aside and drop it if it is corrupt or was not readable for long."""
        try:
            body = self._get(lambda store: store.read(chunk))
            if body is None:
                chunk.failed_reads += 1
                if chunk not in self._queue or chunk.failed_reads < MAX_READS:
                    return False
                raise LookupError(f"the disk failed {MAX_READS} times")  # noqa: TRY301
            chunk.points, chunk.common = decode(body, chunk.count)
        except (UnreadableChunk, LookupError) as problem:
            self._queue.remove(chunk)
            self._fault("unreadable", f"{chunk.left} points of a chunk cannot be read, and are dropped: {problem}")
            why = str(problem)
            self._do(lambda store: store.set_aside(why, key=chunk.key))
            excess = min(max(-self.ledger.balance(), 0), chunk.left - 1)  # its number of points may be corrupt
            chunk.count -= excess
            self.ledger.spooled -= excess
            self._end(chunk, {"dropped:unreadable": chunk.left})
            return False
        return True

    def _end(self, chunk: Chunk, change: dict[str, int], *, flush: bool = True) -> None:
        """
        Count points of `chunk` as ended, and remove it once all have; points never stored count as collected too.

        Without `flush` the file gets that with the next change.
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
            self._note_end({"collected": ended, **change})
        elif chunk.left:
            self._note_end(change, front=(chunk.key, chunk.done))
        else:
            self._note_end(change, gone=chunk.key)
        if flush:
            self._flush()

    def _divide(self) -> None:
        """Take only chunks for this destination; a chunk with a partly known destination gets the whole one."""
        if not self._is_bound:
            return
        stored = [chunk for chunk in self._queue if chunk.stored]
        ours = {label: fits(label, self._destination) for label in {chunk.destination for chunk in stored}}
        others: dict[bytes, list[Chunk]] = {}
        for chunk in stored:
            if not ours[chunk.destination]:
                others.setdefault(chunk.destination, []).append(chunk)
        for label, chunks in others.items():
            self._part_with(chunks, shown(label))
        for label in [label for label, is_ours in ours.items() if is_ours and label != self._label]:
            self._do(methodcaller("readdress", label, self._label))
        for chunk in self._queue:
            chunk.destination = self._label

    def _part_with(self, chunks: list[Chunk], destination: str) -> None:
        """Leave chunks for another destination in the file; drop them if that is asked for, or if they are too old."""
        points = sum(chunk.left for chunk in chunks)
        where = f"{count(points)} for another destination ({destination}; now: {shown(self._label)})"
        where += " is" if points == 1 else " are"
        now = self._clock() if self._max_age is not None else None
        reason = "other destination" if self._drop_others else "too old"
        if self._drop_others:
            text = f"{where} dropped (--drop-other-destinations)"
        else:
            text = f"{where} kept apart until it is set again; --drop-other-destinations drops them"
        level = logging.ERROR if self._drop_others else logging.WARNING
        self._logger.log(level, f"apart {destination}", text)
        for chunk in chunks:
            if chunk not in self._queue:  # the file was corrupt, and all of its chunks have ended
                continue
            if self._drop_others or (now is not None and chunk.newest < now - (self._max_age or 0)):
                self._end(chunk, {f"dropped:{reason}": chunk.left})
            else:
                self._queue.remove(chunk)
                self._bytes[True] -= chunk.size
                self.elsewhere += chunk.left

    # -- the file ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the file, if there should be one; its chunks go before those that wait in memory."""
        if self._path is None:
            return
        from chipwatch.spool.sqlite import Busy, Store  # noqa: PLC0415  # SQLite takes 1 MB, only if points go to disk

        try:
            content = Store.load(self._path)
        except Busy as problem:
            self._fault("busy", f"{problem}; {IN_MEMORY}")
        except (OSError, *Store.failures) as problem:
            self._fault("disk", f"{file_of(problem) or self._path}: {os_text(problem)}; {IN_MEMORY}")
        else:
            self._store = content.store
            if content.repair:
                self._fault("corrupt", content.repair)
            self._add_old(content.chunks, content.entries)

    def _add_old(self, old: list[Chunk], entries: dict[str, int]) -> None:
        """Put the chunks of a file first, and compare its ledger with them."""
        kept = Ledger(spooled=sum([chunk.left for chunk in old]))
        kept.add(entries)
        lost = +Counter({"dropped:unreadable": kept.balance()})
        if lost:
            number = lost.total()
            self._fault("unreadable", f"{number} points of its file are in its ledger but not in its chunks")
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
            self._note_end(unknown)
            self._flush()
        self._divide()

    def _do(self, action: Callable[[Store], object]) -> bool:
        """Call `action`; return whether it succeeded; a corrupt file is set aside."""
        if self._store is None:
            return False
        store = self._store
        try:
            action(store)
        except store.failures as problem:
            if store.is_corruption(problem):
                self._replace(problem)
            else:
                self._fault("disk", f"{file_of(problem) or self._path}: {os_text(problem)}; {IN_MEMORY}")
            return False
        return True

    def _get(self, read: Callable[[Store], bytes]) -> bytes | None:
        """Return what `read` returns, or None if the file fails."""
        answers: list[bytes] = []
        self._do(lambda store: answers.append(read(store)))
        return answers[0] if answers else None

    def _memo(self, name: str) -> bytes:
        with self._lock:
            return self._get(lambda store: store.noted(name)) or b""

    def _note_end(
        self, change: Mapping[str, int], *, gone: int | None = None, front: tuple[int, int] | None = None
    ) -> None:
        """Note for `_flush`: add to the ledger, delete the chunk `gone`, store how many points of a chunk ended."""
        if self._store is None:
            return
        pending = self._pending = self._pending or PendingEnds()
        pending.entries.update(change)
        pending.front = front or pending.front
        if gone is not None:
            pending.gone.append(gone)

    def _note_state(self, state: bytes | None) -> None:
        """Note the state of the sink for `_flush`, if it has changed."""
        if state is not None:
            self._note_end({})
        if state is not None and self._pending is not None:
            self._pending.memos[self._state] = state

    def _flush(self) -> bool:
        """Write the changes that the file did not take; return whether none is left and the file is open."""
        if self._pending is not None and self._do(self._pending.write):
            self._pending = None
        return self._pending is None and self._store is not None

    def _replace(self, problem: Exception) -> None:
        """Close a corrupt file and set it aside; `_save` makes a new one."""
        assert self._path is not None
        assert self._store is not None
        from chipwatch.spool.sqlite import set_file_aside  # noqa: PLC0415  # loaded, since a file was open

        self._store.close()
        self._store = self._pending = None
        try:
            self._fault("corrupt", set_file_aside(self._path, problem))
        except OSError as error:
            self._fault("disk", f"{self._path}: {problem}, and cannot be renamed: {error}; {IN_MEMORY}")
            self._path = None
        self._drop_stored()

    def _drop_stored(self) -> None:
        """Drop what only the lost file held; the rest waits to be written to a new file."""
        if self.elsewhere:
            self.ledger.add({"dropped:unreadable": self.elsewhere})
            self.ledger.spooled -= self.elsewhere
            self.elsewhere = 0
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

    def _close_file(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = self._path = None

    def _fault(self, kind: str, text: str) -> None:
        """Count a fault of a kind, and log it once."""
        self.faults[kind] += 1
        self._logger.log(logging.WARNING if kind in HARMLESS else logging.ERROR, kind, text)

    # -- how much waits ------------------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """True if points wait for this destination."""
        return bool(self._queue)

    @property
    def is_on_disk(self) -> bool:
        """True while its file takes points."""
        return self._store is not None

    @property
    def bytes(self) -> int:
        """Bytes waiting, on disk and in memory."""
        return sum(self._bytes.values())

    def oldest(self) -> int | None:
        """Return when the newest point of the oldest chunk was measured (ns since the epoch), or None."""
        with self._lock:
            return self._queue[0].newest if self._queue else None

    def newest(self) -> int | None:
        """Return when the newest point that the file ever took was measured (ns since the epoch), or None."""
        memo = self._memo(NEWEST)
        return int.from_bytes(memo, "big", signed=True) if len(memo) == 8 else None
