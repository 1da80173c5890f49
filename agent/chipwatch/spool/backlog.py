"""The chunks that wait for one sink, oldest first, in memory and in a file, and the counts of all points."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import chain, islice
from operator import methodcaller
from pathlib import Path
from typing import Final

from chipwatch.logs.text import count
from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.net.trusted_clock import TRUSTED_CLOCK
from chipwatch.spool import codec
from chipwatch.spool.chunk import STATE, Chunk, fits, label_of, shown
from chipwatch.spool.ledger import Ledger
from chipwatch.spool.memory import NoFile

log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 16 << 20
"""Most bytes that wait in memory: those of a sink that is not durable, and those that the disk did not take."""
POINT_BYTES: Final = 250
"""About the size of a point in memory; used for that bound alone."""
MAX_READS: Final = 10
"""Failed reads of a chunk after which it is dropped."""


class Backlog:
    """The chunks of a spool. Every method is called under the spool's lock."""

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

        `destination`: what is known of where the sink sends to; `drop_others`: drop points for another destination.
        `clock` returns the time, or None if it cannot be trusted: then no point is too old.
        """
        self.name, self._max_bytes, self._drop_others, self._clock = name, max_bytes, drop_others, clock
        self._max_age = None if max_age is None else int(max_age * 1e9)
        self._lock = threading.Lock()
        self._queue: deque[Chunk] = deque()  # by rising key
        self._apart: deque[Chunk] = deque()  # of other destinations, by rising key
        self._unsaved: deque[Chunk] = deque()  # those of the queue that are not on disk yet
        self._next_key = 0
        self._in_flight = 0  # number of chunks at the front of the queue that the worker has taken
        self._destination, self._label, self._is_bound = destination or {}, label_of(destination or {}), False
        self._state = f"{STATE} {self._label.decode()}" if destination else STATE
        self._bytes = {True: 0, False: 0}  # on disk, in memory
        self._logger = ThrottledLogger(log, f"spool {name}")
        self._file = self._file_at(path)
        self.ledger = Ledger()
        self.lost = 0
        """Points that were lost at the close, since no file took them."""
        self.faults = self._file.faults
        """Failures of the file by kind."""
        self._open()

    def _file_at(self, path: Path | None) -> NoFile:
        if path is None:
            return NoFile()
        from chipwatch.spool.disk import SpoolFile  # noqa: PLC0415  # SQLite takes 1 MB, only if points go to disk

        return SpoolFile(path, self._logger, self._forget_the_file)

    def _save(self) -> None:
        """Write the chunks that are in memory only, except those in flight; they stay there if the disk fails."""
        self._file.restore()
        if not self._file.is_open and not self._in_flight:
            self._open()
        if not self._file.flush():
            return
        in_flight = self._queue[self._in_flight - 1].key if self._in_flight else -1
        for chunk in [chunk for chunk in self._unsaved if chunk.key > in_flight]:
            if (body := self._encode(chunk)) is None:
                continue
            if not self._file.do(methodcaller("add", chunk, body)):
                return
            self._unsaved.remove(chunk)
            self._bytes[False] -= chunk.size
            chunk.size, chunk.stored = len(body), True
            self._bytes[True] += chunk.size
            if chunk is not self._queue[-1]:
                chunk.points = None
        self._file.resolved()

    def _encode(self, chunk: Chunk) -> bytes | None:
        """Return the points of `chunk` that have not ended; drop those that cannot be encoded; None if none is left."""
        assert chunk.points is not None
        chunk.points, chunk.count, chunk.done = chunk.points[chunk.done :], chunk.left, 0
        try:
            return codec.encode(chunk.points, chunk.common)
        except codec.UNWRITABLE as problem:
            fit = [point for point in chunk.points if codec.is_writable(point, chunk.common)]
            bad = chunk.count - len(fit)
            self._file.fault("unwritable", f"{bad} points cannot be written, and are dropped: {problem}")
            self._end(chunk, {"dropped:unwritable": bad})
            chunk.points, chunk.count, chunk.done = fit, len(fit), 0
            return codec.encode(fit, chunk.common) if fit else None

    def _trim(self) -> None:
        for stored, most, reason in ((True, self._max_bytes, "spool full"), (False, MEMORY_BYTES, "memory full")):
            while self._bytes[stored] > most:
                old = chain(self._apart, islice(self._queue, self._in_flight, len(self._queue) - 1))
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
            body = self._file.get(lambda store: store.read(chunk))
            if body is None:
                chunk.failed_reads += 1
                if chunk not in self._queue or chunk.failed_reads < MAX_READS:
                    return False
                raise LookupError(f"the disk failed {MAX_READS} times")  # noqa: TRY301
            chunk.points, chunk.common = codec.decode(body, chunk.count)
        except (codec.Unreadable, LookupError) as problem:
            self._queue.remove(chunk)
            self._file.fault("unreadable", f"{chunk.left} points of a chunk cannot be read, and are dropped: {problem}")
            why = str(problem)
            self._file.do(lambda store: store.set_aside(why, key=chunk.key))
            excess = min(max(-self.ledger.balance(), 0), chunk.left - 1)  # its number of points may be corrupt
            chunk.count -= excess
            self.ledger.spooled -= excess
            self._end(chunk, {"dropped:unreadable": chunk.left})
            return False
        return True

    def _end(self, chunk: Chunk, change: dict[str, int]) -> None:
        """Count points of `chunk` as ended, and remove it once all have; points never stored count as collected too."""
        ended = sum(change.values())
        chunk.done += ended
        self.ledger.add(change)
        self.ledger.spooled -= ended
        if not chunk.left:
            self._bytes[chunk.stored] -= chunk.size
            for chunks in (self._queue, self._apart, self._unsaved):
                if chunk in chunks:
                    chunks.remove(chunk)
        if not self._file.is_open:
            return
        if not chunk.stored:
            self._file.acknowledge({"collected": ended, **change})
        elif chunk.left:
            self._file.acknowledge(change, front=(chunk.key, chunk.done))
        else:
            self._file.acknowledge(change, gone=chunk.key)

    def _open(self) -> None:
        """Open the file; its chunks go before those that wait in memory."""
        found = self._file.open()
        if found is None:
            return
        old, entries, recorded = found
        held = Ledger(spooled=sum([chunk.left for chunk in old]))
        held.add(entries)
        corrupt = max(held.balance(), 0)
        missing = max(min(recorded.collected - held.collected + min(held.balance(), 0), recorded.unsent), 0)
        if corrupt:
            self._file.fault("unreadable", f"{corrupt} points of its file are in its ledger but not in its chunks")
        if missing:
            why = "it was set aside or deleted, or its write-ahead log was cut short"
            self._file.fault("missing", f"{missing} points that its file had taken are no longer there: {why}")
        if n := recorded.samples:
            lost_samples = f"the {n} samples of its open window are lost"
            self._file.fault("killed", f"the last run ended without a stop: {lost_samples}")
        lost = +Counter({"collected": missing, "dropped:unreadable": corrupt + missing})
        unknown = Counter(self.ledger.ended()) + lost
        for change in (entries, lost):
            self.ledger.add(change)
        self.ledger.spooled += held.spooled
        self._bytes[True] += sum([chunk.size for chunk in old])
        keys = old[-1].key + 1 if old else 0
        self._next_key += keys
        for chunk in self._queue:
            chunk.key += keys
        self._queue.extendleft(reversed(old))
        if unknown:
            self._file.acknowledge(unknown)
        self._divide()

    def _divide(self) -> None:
        """Put chunks for other destinations apart; a chunk whose destination was partly known gets the whole one."""
        if not self._is_bound:
            return
        chunks = sorted(chain(self._apart, self._queue), key=lambda chunk: chunk.key)
        ours = {label: fits(label, self._destination) for label in {chunk.destination for chunk in chunks}}
        self._apart = deque(chunk for chunk in chunks if chunk.stored and not ours[chunk.destination])
        self._queue = deque(chunk for chunk in chunks if not chunk.stored or ours[chunk.destination])
        for chunk in self._queue:
            chunk.destination = self._label
        for label in [label for label, is_ours in ours.items() if is_ours and label != self._label]:
            self._file.do(methodcaller("readdress", label, self._label))
        others: Counter[bytes] = Counter()
        for chunk in self._apart:
            others[chunk.destination] += chunk.left
        for label, points in others.items():
            where = f"{count(points)} for another destination ({shown(label)}; now: {shown(self._label)})"
            where += " is" if points == 1 else " are"
            if not self._drop_others:
                what = "kept apart until it is set again; --drop-other-destinations drops them"
                self._logger.log(logging.WARNING, f"apart {shown(label)}", f"{where} {what}")
                continue
            self._logger.log(logging.ERROR, f"apart {shown(label)}", f"{where} dropped (--drop-other-destinations)")
            for chunk in [chunk for chunk in self._apart if chunk.destination == label]:
                if chunk in self._apart:  # else the file was corrupt, and all of its chunks have ended
                    self._end(chunk, {"dropped:other destination": chunk.left})

    def _forget_the_file(self) -> None:
        """Drop what only the file held, since its content is lost; the rest waits to be written to a new file."""
        for chunk in [*self._apart, *self._queue]:
            if not chunk.stored:
                continue
            if chunk.points is None:
                self._end(chunk, {"dropped:unreadable": chunk.left})
            else:
                self._bytes[True] -= chunk.size
                chunk.size, chunk.stored = chunk.count * POINT_BYTES, False
                self._bytes[False] += chunk.size
        self._unsaved = deque(chunk for chunk in self._queue if not chunk.stored)
