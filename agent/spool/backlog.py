"""What is owed to one sink: its chunks, oldest first, in memory and in a file, and the count of each point's end."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final

from agent.logs.throttled import ThrottledLogger
from agent.net.trusted_clock import TRUSTED_CLOCK
from agent.spool import codec
from agent.spool.chunk import UNWRITABLE, Chunk, fits, is_writable, label_of, shown
from agent.spool.disk import SpoolFile
from agent.spool.ledger import Ledger
from agent.spool.sqlite import Store

log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 16 << 20
"""Bound of what waits in memory: all of a sink that is not durable, or what the disk did not take."""
NOT_SENT: Final = "not sent at the stop"
"""Why points of a sink that is not durable end when the program does."""
POINT_BYTES: Final = 250
"""About what a point takes in memory; used for that bound alone."""
STATE: Final = "sink"
"""Memo of what the sink must know after a restart, with the destination behind it where that has a name."""
PATIENCE: Final = 10
"""How often a chunk that the disk withholds is asked for."""


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

        `destination` is what is known of where the sink sends to; with `drop_others`, points for another are dropped.
        `clock` gives the time, or None where it cannot be trusted: then no point is too old.
        """
        self.name, self._max_bytes = name, max_bytes
        self._max_age = None if max_age is None else int(max_age * 1e9)
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[Chunk] = deque()  # by rising key
        self._next = 0  # key
        self._destination, self._label, self._is_bound = destination or {}, label_of(destination or {}), False
        self._drop_others = drop_others
        self._state = f"{STATE} {self._label.decode()}" if destination else STATE
        self._apart: deque[Chunk] = deque()  # of other destinations, by rising key
        self._flight = 0  # how many chunks at the front the worker has in hand
        self._unsaved: deque[Chunk] = deque()  # those of the queue that the disk has yet to take
        self._bytes = {True: 0, False: 0}  # on disk, in memory
        self._logger = ThrottledLogger(log, f"spool {name}")
        self._file = SpoolFile(path, self._logger, self._forget_the_file)
        self.ledger = Ledger()
        self.lost = 0
        """Points that ended with the program, since no file took them."""
        self.faults = self._file.faults
        """Times that the file failed, by kind of trouble."""
        self._open()

    def _save(self) -> None:
        """Write what only memory has, unless the worker has it in hand; what the disk does not take waits here."""
        self._file.look_after()
        if not self._file.is_open and not self._flight:
            self._open()
        if not self._file.pay():
            return
        in_hand = self._queue[self._flight - 1].key if self._flight else -1
        waiting = [chunk for chunk in self._unsaved if chunk.left]
        self._unsaved.clear()
        for n, chunk in enumerate(waiting):
            if chunk.key <= in_hand:
                self._unsaved.append(chunk)
                continue
            assert chunk.points is not None
            left = chunk.points[chunk.done :]
            try:
                body = codec.encode(left, chunk.common)
            except UNWRITABLE as problem:
                fit = [point for point in left if is_writable(point, chunk.common)]
                bad = len(left) - len(fit)
                self._file.fault("unwritable", f"{bad} points cannot be written, and are dropped: {problem}")
                if not fit:
                    self._queue.remove(chunk)
                self._end(chunk, {"dropped:unwritable": bad})
                if not fit:
                    continue
                left = chunk.points = fit
                chunk.count, chunk.done = len(fit), 0
                body = codec.encode(left, chunk.common)
            change = {"collected": chunk.left}
            add = partial(Store.add, key=chunk.key, newest=chunk.newest, body=body, change=change)
            if not self._file.do(partial(add, destination=chunk.destination)):
                self._unsaved.extend(p for p in waiting[n:] if not p.stored and p not in self._unsaved)
                return
            self._bytes[False] -= chunk.size
            chunk.count, chunk.done, chunk.size, chunk.stored = len(left), 0, len(body), True
            chunk.points = left if chunk is self._queue[-1] else None
            self._bytes[True] += chunk.size
        self._file.well()

    def _trim(self) -> None:
        for stored, most, reason in ((True, self._max_bytes, "spool full"), (False, MEMORY_BYTES, "memory full")):
            while self._bytes[stored] > most:
                old = chain(self._apart, islice(self._queue, self._flight, len(self._queue) - 1))
                chunk = next((chunk for chunk in old if chunk.stored is stored), None)
                if chunk is None:
                    break
                self._drop(chunk, reason)

    def _drop(self, chunk: Chunk, reason: str) -> None:
        (self._queue if chunk in self._queue else self._apart).remove(chunk)
        self._logger.log(logging.ERROR, reason, f"the oldest points are dropped: {reason} ({chunk.left} and counting)")
        self._end(chunk, {f"dropped:{reason}": chunk.left})

    def _load(self, chunk: Chunk) -> bool:
        """Read a chunk back; one that makes no sense, or that the disk withholds for long, is set aside and counted."""
        found: list[bytes] = []
        try:
            if not self._file.do(lambda s: found.append(s.read(chunk.key, chunk.count, chunk.newest))):
                chunk.withheld += 1
                if chunk not in self._queue or chunk.withheld < PATIENCE:
                    return False
                raise LookupError("the disk withholds it")  # noqa: TRY301
            points, common = codec.decode(found[0], chunk.count)
        except (codec.Unreadable, LookupError) as problem:
            self._queue.remove(chunk)
            self._file.fault("unreadable", f"a chunk of {chunk.left} points cannot be read, set aside: {problem}")
            why = str(problem)
            self._file.do(lambda s: s.set_aside(chunk.key, why))
            excess = min(max(-self.ledger.balance(), 0), chunk.left - 1)  # it may be its number of points that rotted
            chunk.count -= excess
            self.ledger.spooled -= excess
            self._end(chunk, {"dropped:unreadable": chunk.left})
            return False
        chunk.points, chunk.common = points, common
        return True

    def _end(self, chunk: Chunk, change: dict[str, int]) -> None:
        """Book the end of points of `chunk`; what the disk never held enters its ledger only now, from both sides."""
        ended = sum(change.values())
        chunk.done += ended
        self.ledger.book(change)
        self.ledger.spooled -= ended
        if not chunk.left:
            self._bytes[chunk.stored] -= chunk.size
            if chunk in self._unsaved:
                self._unsaved.remove(chunk)
        if not self._file.is_open:
            return
        if not chunk.stored:
            self._file.owe({"collected": ended, **change})
        elif chunk.left:
            self._file.owe(change, front=(chunk.key, chunk.done))
        else:
            self._file.owe(change, gone=chunk.key)
        self._file.pay()

    def _open(self) -> None:
        """Open the file; what it still owes comes before what waits in memory."""
        found = self._file.open()
        if found is None:
            return
        rows, entries, before = found
        old = [
            Chunk(key, count, size, newest, label, done, stored=True) for key, count, done, newest, size, label in rows
        ]
        held = Ledger(spooled=sum([chunk.left for chunk in old]))
        held.book(entries)
        rotten = max(held.balance(), 0)
        missing = max(min(before.collected - held.collected + min(held.balance(), 0), before.owed), 0)
        if rotten:
            self._file.fault("unreadable", f"{rotten} points of its file cannot be read, by its ledger")
        if missing:
            why = "it was set aside or deleted, or its write-ahead log was cut short"
            self._file.fault("missing", f"{missing} points that its file had taken are no longer there: {why}")
        if before.samples:
            n = before.samples
            self._file.fault(
                "killed", f"the last run ended without a stop: the {n} samples of its open window are lost"
            )
        lost = {"collected": missing, "dropped:unreadable": rotten + missing} if rotten + missing else {}
        if unknown := Counter(self.ledger.ended()) + Counter(lost):
            self._file.owe(unknown)
        for change in (entries, lost):
            self.ledger.book(change)
        self.ledger.spooled += held.spooled
        self._bytes[True] += sum([chunk.size for chunk in old])
        keys = old[-1].key + 1 if old else 0
        self._next += keys
        for chunk in self._queue:
            chunk.key += keys
        self._queue.extendleft(reversed(old))
        self._divide()
        self._file.pay()

    def _divide(self) -> None:
        """Put apart what the file owes to other destinations; what was not known of one is known from now on."""
        if not self._is_bound:
            return
        chunks = sorted(chain(self._apart, self._queue), key=lambda chunk: chunk.key)
        ours = {label: fits(label, self._destination) for label in {chunk.destination for chunk in chunks}}
        self._apart = deque(chunk for chunk in chunks if chunk.stored and not ours[chunk.destination])
        self._queue = deque(chunk for chunk in chunks if not chunk.stored or ours[chunk.destination])
        for chunk in self._queue:
            chunk.destination = self._label
        for label in [label for label, is_ours in ours.items() if is_ours and label != self._label]:
            self._file.do(partial(Store.readdress, old=label, new=self._label))
        others: Counter[bytes] = Counter()
        for chunk in self._apart:
            others[chunk.destination] += chunk.left
        for label, points in others.items():
            where = f"{points} points for another destination ({shown(label)}; now: {shown(self._label)})"
            if not self._drop_others:
                what = "are kept apart until it is set again; --drop-other-destinations drops them"
                self._logger.log(logging.WARNING, f"apart {shown(label)}", f"{where} {what}")
                continue
            self._logger.log(logging.ERROR, f"apart {shown(label)}", f"{where} are dropped, as was asked for")
            for chunk in [chunk for chunk in self._apart if chunk.destination == label]:
                self._apart.remove(chunk)
                self._end(chunk, {"dropped:other destination": chunk.left})

    def _forget_the_file(self) -> None:
        """Count as lost what only the file held, since it has been set aside; the rest waits to be written anew."""
        for chunk in [*self._apart, *self._queue]:
            if not chunk.stored:
                continue
            if chunk.points is None:
                (self._queue if chunk in self._queue else self._apart).remove(chunk)
                self._end(chunk, {"dropped:unreadable": chunk.left})
            else:
                self._bytes[True] -= chunk.size
                chunk.size, chunk.stored = chunk.count * POINT_BYTES, False
                self._bytes[False] += chunk.size
        self._unsaved = deque(chunk for chunk in self._queue if not chunk.stored)
