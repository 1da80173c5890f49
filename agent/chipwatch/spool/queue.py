"""A queue of points between the windows of one sink and its worker, on disk if that is wanted and works."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from chipwatch.datapoint import NO_DIMENSIONS, Datapoint, Dimensions
from chipwatch.errors import Retryable
from chipwatch.logs.text import count
from chipwatch.spool import codec
from chipwatch.spool.backlog import POINT_BYTES, Backlog
from chipwatch.spool.chunk import NEWEST, STATE, Chunk, label_of

log = logging.getLogger(__name__)


class Spool(Backlog):
    """
    A queue of points between the windows and one sink's worker.

    The clock's thread calls `append`, `refuse` and `note_samples`; the worker's calls `bind`, `take`, `acknowledge`
    and `release`. When the spool is full or points are too old, the oldest are dropped and counted.
    While the disk fails, points wait in memory and are written later.
    """

    def append(self, points: Sequence[Datapoint], common: Dimensions | None = NO_DIMENSIONS) -> None:
        """
        Add one window's points, and the dimensions of the machine or None while they are not known.

        Never raises, never waits for the sink.
        """
        if not points:
            return
        with self._lock:
            last = self._queue[-1] if self._queue else None
            if last is not None and last.stored and self._in_flight < len(self._queue):
                last.points = None  # only the newest is kept in memory too
            newest = max([point.at for point in points])
            number, size = len(points), len(points) * POINT_BYTES
            chunk = Chunk(self._next_key, number, size, newest, self._label, points=list(points), common=common)
            self._next_key += 1
            self._queue.append(chunk)
            self._bytes[False] += size
            self.ledger.collected += number
            self.ledger.spooled += number
            if self._file.wanted:
                self._unsaved.append(chunk)
                self._save()
            self._trim()

    def refuse(self, points: int, reason: str) -> None:
        """Count points that are dropped before they are spooled."""
        with self._lock:
            change = {"collected": points, f"dropped:{reason}": points}
            self.ledger.add(change)
            if self._file.is_open:
                self._file.acknowledge(change)

    def note_samples(self, samples: int) -> None:
        """Note how many samples the open window holds; the next run reports them as lost after a kill."""
        with self._lock:
            self._file.do(lambda store: store.note_samples(samples))

    def take(self, most: int) -> tuple[list[Datapoint], Dimensions | None]:
        """
        Return up to `most` of the oldest points, and the dimensions of the machine that they were measured on.

        They are not dropped until acknowledged or released. Raises Retryable if the disk fails for now.
        """
        with self._lock:
            self._in_flight = 0
            if self._max_age is not None and (now := self._clock()) is not None:
                for chunks in (self._apart, self._queue):
                    while chunks and chunks[0].newest < now - self._max_age:
                        self._drop(chunks[0], "too old")
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
                taken += chunk.points[chunk.done : chunk.done + most - len(taken)]
                self._in_flight += 1
            if not taken and self._queue and self._file.is_open:
                raise Retryable("the spool's file cannot be read now")
            return taken, common

    def acknowledge(self, change: Mapping[str, int]) -> None:
        """End the oldest points taken, as many as `change` counts (`sent`, `rejected:reason`, `dropped:reason`)."""
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
                self._end(chunk, {entry: points for entry, points in share.items() if points})

    def set_aside(self, points: Sequence[Datapoint], why: str) -> None:
        """Keep a copy of points on disk for a person to look at; `acknowledge` ends them."""
        try:
            body = codec.encode(points, None)
        except codec.UNWRITABLE:
            return
        with self._lock:
            self._file.do(lambda store: store.set_aside(ascii(why), body=body))

    def release(self) -> None:
        """Give back the points that were taken and not acknowledged."""
        with self._lock:
            self._in_flight = 0

    def bind(self, destination: Mapping[str, str]) -> None:
        """
        Set the whole destination of the sink; called before anything is taken.

        Points for another destination are kept apart until that one is set again or they are too old.
        """
        with self._lock:
            self._destination, self._label, self._is_bound = destination, label_of(destination), True
            self._divide()

    @property
    def is_due(self) -> bool:
        """Whether points wait for this destination."""
        return bool(self._queue)

    @property
    def apart(self) -> int:
        """Points that wait for other destinations."""
        with self._lock:
            return sum(chunk.left for chunk in self._apart)

    def newest(self) -> int | None:
        """Return when the newest point that the file ever took was measured (ns since the epoch), or None."""
        found = self._memo(NEWEST)
        return int.from_bytes(found, "big", signed=True) if len(found) == 8 else None

    def recall(self) -> bytes:
        """Return what `remember` kept last, also before a restart, or b"" if there is nothing."""
        return self._memo(self._state) or self._memo(STATE)

    def remember(self, state: bytes) -> None:
        """Keep what the sink must know after a restart; it is lost if the file fails."""
        with self._lock:
            self._file.do(lambda store: store.note(self._state, state))

    def _memo(self, name: str) -> bytes:
        with self._lock:
            return self._file.get(lambda store: store.noted(name)) or b""

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
            self._in_flight = 0
            if self._file.wanted:
                self._save()
            lost = [chunk for chunk in self._queue if not chunk.stored]
            for chunk in lost:
                self.lost += chunk.left
                self._end(chunk, {"dropped:not sent at the stop": chunk.left})
            self._file.close()
        if lost:
            log.error("spool %s: %s lost: neither sent nor written to disk", self.name, count(self.lost, "are"))
