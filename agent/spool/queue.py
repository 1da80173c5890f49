"""What is owed to one sink: a queue of points, oldest first, on disk where that is wanted and works."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final

from agent.datapoint import NO_DIMENSIONS, Datapoint, Dimensions
from agent.errors import Retryable
from agent.logs.throttled import ThrottledLogger
from agent.net.trusted_clock import TRUSTED_CLOCK
from agent.spool import codec
from agent.spool.disk import SpoolFile
from agent.spool.ledger import Ledger
from agent.spool.sqlite import NEWEST, Store

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


UNWRITABLE: Final = (TypeError, ValueError, OverflowError)
"""What points raise that no chunk can hold."""


def _is_writable(point: Datapoint, common: Dimensions | None) -> bool:
    try:
        codec.encode([point], common)
    except UNWRITABLE:
        return False
    return True


def label_of(destination: Mapping[str, str]) -> bytes:
    """Return a destination as the file has it."""
    return json.dumps(dict(destination), sort_keys=True).encode()


def shown(label: bytes) -> str:
    """Return a destination as a person reads it: the words that say something."""
    return ", ".join(f"{word}={value}" for word, value in json.loads(label).items() if value) or "not known"


def fits(label: bytes, destination: Mapping[str, str]) -> bool:
    """Tell whether nothing that is known of one destination speaks against the other."""
    return all(destination.get(word) == value for word, value in json.loads(label).items())


@dataclass(slots=True, eq=False)
class _Chunk:
    """One window's points, of which the first `done` have ended; `points` is None if only the disk has them."""

    key: int
    count: int
    size: int
    newest: int
    destination: bytes
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

    `append` is called by the clock's thread, `take`, `acknowledge` and `release` by the worker's. Bounded in bytes and
    in age, the oldest go first and are counted. Where the disk fails, points wait in memory and are written later.
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

        `destination` is what is known of where the sink sends to; with `drop_others`, points for another are dropped.
        `clock` gives the time, or None where it cannot be trusted: then no point is too old.
        """
        self.name, self._max_bytes = name, max_bytes
        self._max_age = None if max_age is None else int(max_age * 1e9)
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Chunk] = deque()  # by rising key
        self._next = 0  # key
        self._destination, self._label, self._is_bound = destination or {}, label_of(destination or {}), False
        self._drop_others = drop_others
        self._state = f"{STATE} {self._label.decode()}" if destination else STATE
        self._apart: deque[_Chunk] = deque()  # of other destinations, by rising key
        self._flight = 0  # how many chunks at the front the worker has in hand
        self._unsaved: deque[_Chunk] = deque()  # those of the queue that the disk has yet to take
        self._bytes = {True: 0, False: 0}  # on disk, in memory
        self._logger = ThrottledLogger(log, f"spool {name}")
        self._file = SpoolFile(path, self._logger, self._forget_the_file)
        self.ledger = Ledger()
        self.lost = 0
        """Points that ended with the program, since no file took them."""
        self.faults = self._file.faults
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
            count, size = len(points), len(points) * POINT_BYTES
            fresh = _Chunk(self._next, count, size, newest, self._label, points=list(points), common=common)
            self._next += 1
            self._queue.append(fresh)
            self._bytes[False] += fresh.size
            self.ledger.collected += fresh.count
            self.ledger.spooled += fresh.count
            if self._file.wanted:
                self._unsaved.append(fresh)
                self._save()
            self._trim()

    def refuse(self, points: int, reason: str) -> None:
        """Count points that are not to be sent at all."""
        with self._lock:
            change = {"collected": points, f"dropped:{reason}": points}
            self.ledger.book(change)
            if self._file.is_open:
                self._file.owe(change)
                self._file.pay()

    def note_samples(self, samples: int) -> None:
        """Note how many samples the open window holds, for who starts after a kill."""
        with self._lock:
            self._file.do(lambda store: store.note_samples(samples))

    def _save(self) -> None:
        """Write what only memory has, unless the worker has it in hand; what the disk does not take waits here."""
        self._file.look_after()
        if not self._file.is_open and not self._flight:
            self._open()
        if not self._file.pay():
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
                body = codec.encode(left, part.common)
            except UNWRITABLE as problem:
                fit = [point for point in left if _is_writable(point, part.common)]
                bad = len(left) - len(fit)
                self._file.fault("unwritable", f"{bad} points cannot be written, and are dropped: {problem}")
                if not fit:
                    self._queue.remove(part)
                self._end(part, {"dropped:unwritable": bad})
                if not fit:
                    continue
                left = part.points = fit
                part.count, part.done = len(fit), 0
                body = codec.encode(left, part.common)
            change = {"collected": part.left}
            add = partial(Store.add, key=part.key, newest=part.newest, body=body, change=change)
            if not self._file.do(partial(add, destination=part.destination)):
                self._unsaved.extend(p for p in waiting[n:] if not p.stored and p not in self._unsaved)
                return
            self._bytes[False] -= part.size
            part.count, part.done, part.size, part.stored = len(left), 0, len(body), True
            part.points = left if part is self._queue[-1] else None
            self._bytes[True] += part.size
        self._file.well()

    def _trim(self) -> None:
        for stored, most, reason in ((True, self._max_bytes, "spool full"), (False, MEMORY_BYTES, "memory full")):
            while self._bytes[stored] > most:
                old = chain(self._apart, islice(self._queue, self._flight, len(self._queue) - 1))
                part = next((part for part in old if part.stored is stored), None)
                if part is None:
                    break
                self._drop(part, reason)

    def _drop(self, part: _Chunk, reason: str) -> None:
        (self._queue if part in self._queue else self._apart).remove(part)
        self._logger.log(logging.ERROR, reason, f"the oldest points are dropped: {reason} ({part.left} and counting)")
        self._end(part, {f"dropped:{reason}": part.left})

    # -- the worker's side --------------------------------------------------------------------------------------

    def take(self, most: int) -> tuple[list[Datapoint], Dimensions | None]:
        """
        Return up to `most` of the oldest points, and the dimensions of the machine that they were measured on.

        They are safe from trimming until settled or released. Raises Retryable where the disk fails for now.
        """
        with self._lock:
            self._flight = 0
            if self._max_age is not None and (now := self._clock()) is not None:
                for parts in (self._apart, self._queue):
                    while parts and parts[0].newest < now - self._max_age:
                        self._drop(parts[0], "too old")
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
            if not taken and self._queue and self._file.is_open:
                raise Retryable("the spool's file cannot be read now")
            return taken, common

    def _load(self, part: _Chunk) -> bool:
        """Read a chunk back; one that makes no sense, or that the disk withholds for long, is set aside and counted."""
        found: list[bytes] = []
        try:
            if not self._file.do(lambda s: found.append(s.read(part.key, part.count, part.newest))):
                part.withheld += 1
                if part not in self._queue or part.withheld < PATIENCE:
                    return False
                raise LookupError("the disk withholds it")  # noqa: TRY301
            points, common = codec.decode(found[0], part.count)
        except (codec.Unreadable, LookupError) as problem:
            self._queue.remove(part)
            self._file.fault("unreadable", f"a chunk of {part.left} points cannot be read, set aside: {problem}")
            why = str(problem)
            self._file.do(lambda s: s.set_aside(part.key, why))
            excess = min(max(-self.ledger.balance(), 0), part.left - 1)  # it may be its number of points that rotted
            part.count -= excess
            self.ledger.spooled -= excess
            self._end(part, {"dropped:unreadable": part.left})
            return False
        part.points, part.common = points, common
        return True

    def acknowledge(self, change: Mapping[str, int]) -> None:
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
        """Keep a copy of points on disk, for a person to look at; how they end is for `acknowledge`."""
        try:
            body = codec.encode(points, None)
        except UNWRITABLE:
            return
        with self._lock:
            self._file.do(lambda store: store.keep_aside(ascii(why), body))

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
        if not self._file.is_open:
            return
        if not part.stored:
            self._file.owe({"collected": ended, **change})
        elif part.left:
            self._file.owe(change, front=(part.key, part.done))
        else:
            self._file.owe(change, gone=part.key)
        self._file.pay()

    def _open(self) -> None:
        """Open the file; what it still owes comes before what waits in memory."""
        found = self._file.open()
        if found is None:
            return
        rows, entries, before = found
        old = [
            _Chunk(key, count, size, newest, label, done, stored=True) for key, count, done, newest, size, label in rows
        ]
        held = Ledger(spooled=sum([part.left for part in old]))
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
        self._bytes[True] += sum([part.size for part in old])
        keys = old[-1].key + 1 if old else 0
        self._next += keys
        for part in self._queue:
            part.key += keys
        self._queue.extendleft(reversed(old))
        self._divide()
        self._file.pay()

    def bind(self, destination: Mapping[str, str]) -> None:
        """
        Learn where the sink sends to, all of it; called before anything is taken.

        What was taken for another destination stays apart, until it is this one again or its time is over.
        """
        with self._lock:
            self._destination, self._label, self._is_bound = destination, label_of(destination), True
            self._divide()

    def _divide(self) -> None:
        """Put apart what the file owes to other destinations; what was not known of one is known from now on."""
        if not self._is_bound:
            return
        parts = sorted(chain(self._apart, self._queue), key=lambda part: part.key)
        ours = {label: fits(label, self._destination) for label in {part.destination for part in parts}}
        self._apart = deque(part for part in parts if part.stored and not ours[part.destination])
        self._queue = deque(part for part in parts if not part.stored or ours[part.destination])
        for part in self._queue:
            part.destination = self._label
        for label in [label for label, is_ours in ours.items() if is_ours and label != self._label]:
            self._file.do(partial(Store.readdress, old=label, new=self._label))
        others: Counter[bytes] = Counter()
        for part in self._apart:
            others[part.destination] += part.left
        for label, points in others.items():
            where = f"{points} points for another destination ({shown(label)}; now: {shown(self._label)})"
            if not self._drop_others:
                what = "are kept apart until it is set again; --drop-other-destinations drops them"
                self._logger.log(logging.WARNING, f"apart {shown(label)}", f"{where} {what}")
                continue
            self._logger.log(logging.ERROR, f"apart {shown(label)}", f"{where} are dropped, as was asked for")
            for part in [part for part in self._apart if part.destination == label]:
                self._apart.remove(part)
                self._end(part, {"dropped:other destination": part.left})

    @property
    def is_due(self) -> bool:
        """Whether points wait for this destination."""
        return bool(self._queue)

    def _forget_the_file(self) -> None:
        """Count as lost what only the file held, since it has been set aside; the rest waits to be written anew."""
        for part in [*self._apart, *self._queue]:
            if not part.stored:
                continue
            if part.points is None:
                (self._queue if part in self._queue else self._apart).remove(part)
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
        return self._memo(self._state) or self._memo(STATE)

    def remember(self, state: bytes) -> None:
        """Keep what the sink must know after a restart; lost where the file fails."""
        with self._lock:
            self._file.do(lambda store: store.note(self._state, state))

    def _memo(self, name: str) -> bytes:
        found: list[bytes] = []
        with self._lock:
            self._file.do(lambda store: found.append(store.noted(name)))
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
            if self._file.wanted:
                self._save()
            lost = [part for part in self._queue if not part.stored]
            for part in lost:
                self._queue.remove(part)
                self.lost += part.left
                self._end(part, {f"dropped:{NOT_SENT}": part.left})
            self._file.close()
        if lost:
            log.error("spool %s: %d points are lost, they were not sent", self.name, self.lost)
