"""A queue of points between the windows of one sink and its worker, on disk where that is wanted and works."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from agent.datapoint import NO_DIMENSIONS, Datapoint, Dimensions
from agent.errors import Retryable
from agent.spool import codec
from agent.spool.backlog import NOT_SENT, POINT_BYTES, STATE, Backlog
from agent.spool.chunk import UNWRITABLE, Chunk, label_of
from agent.spool.sqlite import NEWEST

log = logging.getLogger(__name__)


class Spool(Backlog):
    """
    A queue of points between the windows and one sink's worker.

    `append` is called by the clock's thread, `take`, `acknowledge` and `release` by the worker's. Bounded in bytes and
    in age, the oldest go first and are counted. Where the disk fails, points wait in memory and are written later.
    """

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
            fresh = Chunk(self._next, count, size, newest, self._label, points=list(points), common=common)
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

    # -- the worker's side --------------------------------------------------------------------------------------

    def take(self, most: int) -> tuple[list[Datapoint], Dimensions | None]:
        """
        Return up to `most` of the oldest points, and the dimensions of the machine that they were measured on.

        They are safe from trimming until settled or released. Raises Retryable where the disk fails for now.
        """
        with self._lock:
            self._flight = 0
            if self._max_age is not None and (now := self._clock()) is not None:
                for chunks in (self._apart, self._queue):
                    while chunks and chunks[0].newest < now - self._max_age:
                        self._drop(chunks[0], "too old")
            taken: list[Datapoint] = []
            common: Dimensions | None = None
            while len(taken) < most and self._flight < len(self._queue):
                chunk = self._queue[self._flight]
                if chunk.points is None and not self._load(chunk):
                    if chunk in self._queue:
                        break
                    continue
                assert chunk.points is not None
                if self._flight and chunk.common != common:
                    break
                common = chunk.common
                taken += chunk.points[chunk.done : chunk.done + most - len(taken)]
                self._flight += 1
            if not taken and self._queue and self._file.is_open:
                raise Retryable("the spool's file cannot be read now")
            return taken, common

    def acknowledge(self, change: Mapping[str, int]) -> None:
        """End the oldest points taken, as many as `change` counts (`sent`, `rejected:reason`, `dropped:reason`)."""
        rest = dict(change)
        with self._lock:
            while self._queue and (left := sum(rest.values())):  # a worker may come back after `close`
                chunk = self._queue[0]
                ended = min(left, chunk.left)
                share: dict[str, int] = {}
                for entry, points in rest.items():
                    share[entry] = min(points, ended - sum(share.values()))
                rest = {entry: points - share[entry] for entry, points in rest.items()}
                if ended == chunk.left:
                    self._queue.popleft()
                    self._flight -= 1
                self._end(chunk, {entry: points for entry, points in share.items() if points})

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

    def bind(self, destination: Mapping[str, str]) -> None:
        """
        Learn where the sink sends to, all of it; called before anything is taken.

        What was taken for another destination stays apart, until it is this one again or its time is over.
        """
        with self._lock:
            self._destination, self._label, self._is_bound = destination, label_of(destination), True
            self._divide()

    # -- both ---------------------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether points wait for this destination."""
        return bool(self._queue)

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
            lost = [chunk for chunk in self._queue if not chunk.stored]
            for chunk in lost:
                self._queue.remove(chunk)
                self.lost += chunk.left
                self._end(chunk, {f"dropped:{NOT_SENT}": chunk.left})
            self._file.close()
        if lost:
            log.error("spool %s: %d points are lost, they were not sent", self.name, self.lost)
