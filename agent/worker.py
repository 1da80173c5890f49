"""One thread a sink: spool -> batches -> write -> settle."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from agent.datapoint import HIDDEN, Datapoint, Dimensions
from agent.errors import BadBatch, Gone, Refused, Retryable
from agent.say import Sayer
from agent.sink import Limits, Sink
from agent.spool import Spool

log = logging.getLogger(__name__)

MOST_REASONS: Final = 50
"""Reasons of rejection counted apart; the rest is counted as `other`."""
REMEMBER: Final = 1.0
"""Seconds between two askings of a sink for its state while there is much to deliver: a kill costs no more of it."""
CATCH_UP: Final = 0.5
"""Seconds between two looks at an identity that is not known yet."""


def first_batch(points: Sequence[Datapoint], limits: Limits, size: Callable[[Datapoint], int]) -> int:
    """Return how many of `points`, from the first on, one request may hold; at least 1."""
    if limits.max_bytes is None and not limits.one_per_series:
        return min(len(points), limits.max_points)
    bytes_left = limits.max_bytes
    seen: set[tuple[str, Dimensions]] = set()
    for n, point in enumerate(points[: limits.max_points]):
        if bytes_left is not None:
            bytes_left -= size(point)
            if bytes_left < 0:
                return max(1, n)
        if limits.one_per_series:
            series = (point.metric.name, point.dims)
            if series in seen:
                return n
            seen.add(series)
    return min(len(points), limits.max_points)


def _shown(point: Datapoint) -> str:
    return (
        f"{point.metric.name} { {key: word[:100] for key, word in point.dims.items() if not key.startswith(HIDDEN)} }"
    )


class Worker:
    """
    Delivers what one sink is owed, oldest first; the only place where a write is tried again.

    Each batch is settled in the spool before the next is written, so only a batch whose answer was lost can double.
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        spool: Spool,
        *,
        common: Callable[[], Dimensions | None] = Dimensions,
        rename: Callable[[Datapoint], Datapoint] | None = None,
        flush: float = 0.0,
        offset: float = 0.0,
        base: float = 1.0,
        cap: float = 60.0,
        refused_base: float = 30.0,
        refused_cap: float = 900.0,
        on_gone: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Send every `flush` seconds, `offset` (0 to 1) of a period after the full one; 0 is at once.

        `common` gives the dimensions of this machine, or None while they are not known: nothing is sent then.
        Back-off is a random share of `base` doubling up to `cap` seconds; for what was refused, the `refused_` ones.
        """
        self.name, self.sink, self.spool = name, sink, spool
        self._common, self._rename, self._on_gone = common, rename, on_gone
        self._flush, self._offset = flush, offset
        self._backoff, self._refused_backoff = (base, cap), (refused_base, refused_cap)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._sayer = Sayer(log, f"sink {name}")
        self._dressed: dict[Dimensions, Dimensions] = {}
        self._under: Dimensions | None = None
        self.counts: Counter[str] = Counter()
        """`retried`, `refused`, `bug`: writes that failed so."""
        self.seconds = 0.0
        """How long the last write took."""
        self.refused: str | None = None
        """Why the far side refuses this set-up, or every point, while it does."""
        self._rejecting: str | None = None
        self._rejected = ""
        """Why, and for one which, points were last rejected."""
        self._counts = self._ended()
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Say that the spool has something new."""
        self._wake.set()

    def stop(self) -> None:
        """Ask for a last delivery of what is owed, tried once."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait for the last delivery; tell whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_open, failures, due = False, 0, 0.0
        while True:
            last_try = self._wait()
            try:
                if not is_open:
                    self._recall()
                    self.sink.open()
                    self.spool.bind(self.sink.destination())
                    is_open = True
                while self._deliver_some():
                    failures = 0
                    if time.monotonic() >= due:
                        self._remember()
                        due = time.monotonic() + REMEMBER
                self._well()
            except (Retryable, Refused) as problem:
                self.spool.release()
                failures += 1
                delay = self._delay(problem, failures)
                if not last_try:
                    self._stop.wait(delay)
            except Gone as gone:
                log.info("sink %s: %s", self.name, gone)
                self._on_gone()
                self._end_all("reader gone")
                break
            except Exception as bug:  # of `open` or `recall`: a bug of `write` ends where it happens
                self._sayer.say(logging.ERROR, f"open {type(bug)}", f"failed to open: {bug}", traceback=True)
                self.counts["bug"] += 1
                self._stop.wait(self._refused_backoff[0])
            self._remember()
            if last_try:
                break
        self._close()

    def _recall(self) -> None:
        """Give the sink what it must know of the time before a restart."""
        if state := self.spool.recall():
            self.sink.recall(state)

    def _remember(self) -> None:
        """Keep what the sink must know after a restart."""
        try:
            state = self.sink.state()
        except Exception as bug:
            self._sayer.say(logging.ERROR, f"state {type(bug)}", f"cannot tell its state: {bug}", traceback=True)
            return
        if state is not None:
            self.spool.remember(state)

    def _wait(self) -> bool:
        """Wait until something may be sent; tell whether this is the last time."""
        while not self._stop.is_set():
            if not self.spool.is_due:
                self._wake.wait()
                self._wake.clear()
            elif self._common() is None:
                self._stop.wait(CATCH_UP)
            elif not self._flush or self._stop.wait(self._until_flush()):
                break
            else:
                return False
        return self._stop.is_set()

    def _until_flush(self) -> float:
        return (self._offset * self._flush - time.monotonic()) % self._flush

    def _deliver_some(self) -> bool:
        """Deliver the next batches; tell whether there may be more."""
        known = self._common()
        points, under = self.spool.take(self.sink.limits.max_points)
        if not points or (under is None and known is None):
            self.spool.release()
            return False
        points = self._dress(points, known if under is None else under)
        for batch in self._cut(points):
            self._deliver(batch)
        return True

    def _dress(self, points: list[Datapoint], under: Dimensions | None) -> list[Datapoint]:
        """Lay the machine's dimensions under each point's own, and give it the name that was asked for."""
        if under:
            if under != self._under or len(self._dressed) > 100_000:
                self._under, self._dressed = under, {}
            known, dressed = self._dressed, []
            for point in points:
                dims = known.get(point.dims)
                if dims is None:
                    dims = known[point.dims] = under | point.dims
                dressed.append(Datapoint(point.metric, point.value, dims, *point[3:]))
            points = dressed
        return [self._rename(point) for point in points] if self._rename else points

    def _cut(self, points: list[Datapoint]) -> Iterator[list[Datapoint]]:
        while points:
            try:
                n = first_batch(points, self.sink.limits, self.sink.size)
            except Exception as bug:
                self._lose(points, bug)
                return
            yield points[:n]
            points = points[n:]

    def _deliver(self, batch: list[Datapoint]) -> None:
        """Write one batch and settle it; halve it where some point is at fault and nobody says which."""
        begun = time.monotonic()
        try:
            rejected = self.sink.write(batch)[: len(batch)]
            reasons = [r.reason.encode(errors="replace").decode() for r in rejected]
            example = _shown(rejected[0].point) if rejected else ""
        except BadBatch as problem:
            if len(batch) > 1:
                half = len(batch) // 2
                self._deliver(batch[:half])
                self._deliver(batch[half:])
                return
            self._reject(["refused by the service"], f"{problem}: {_shown(batch[0])}")
            self.spool.settle({"rejected:refused by the service": 1})
            return
        except (Retryable, Refused, Gone):
            raise
        except Exception as bug:
            self._lose(batch, bug)
            return
        finally:
            self.seconds = time.monotonic() - begun
        change = Counter(self._reject(reasons, example))
        change["sent"] = len(batch) - len(reasons)
        self.spool.settle(change)

    def _lose(self, batch: Sequence[Datapoint], bug: Exception) -> None:
        self.counts["bug"] += 1
        self._sayer.say(logging.ERROR, f"{type(bug)}", f"failed, {len(batch)} points are lost: {bug}", traceback=True)
        self.spool.settle({"dropped:bug": len(batch)})

    def _reject(self, reasons: Sequence[str], example: str) -> list[str]:
        """Say each reason once; return the entries of the ledger."""
        known = set(self.spool.ledger.rejected)
        entries = []
        for reason in reasons:
            word = reason if reason in known or len(known) < MOST_REASONS else "other"
            known.add(word)
            self._rejected = f"{word} (for one, {example})"
            self._sayer.say(logging.ERROR, f"rejected {word}", f"points are rejected: {self._rejected}")
            entries.append(f"rejected:{word}")
        return entries

    def _delay(self, problem: Retryable | Refused, failures: int) -> float:
        """Say what failed; return the seconds to wait: what the far side named, or full jitter."""
        kept = f"{self.spool.ledger.spooled} points are kept"
        if isinstance(problem, Refused):
            base, cap = self._refused_backoff
            self.counts["refused"] += 1
            self.refused = str(problem)
            self._sayer.say(logging.ERROR, f"refused {problem}", f"refused: {problem}; {kept}")
        else:
            base, cap = self._backoff
            self.counts["retried"] += 1
            self._sayer.say(logging.WARNING, "retry", f"{problem}; {kept} and tried again")
            if problem.after is not None and problem.after > 0:
                return min(problem.after, self._refused_backoff[1])
        return random.uniform(0, min(cap, base * 2.0 ** min(failures, 30)))  # noqa: S311  # not a secret

    def _ended(self) -> tuple[int, int]:
        """Return how many points were sent, and rejected."""
        return self.spool.ledger.sent, self.spool.ledger.rejected.total()

    def _well(self) -> None:
        counts, before = self._ended(), self._counts
        if counts != before:
            self._counts = counts
            self._rejecting = None if counts[0] > before[0] else f"every point is rejected: {self._rejected}"
        self.refused = self._rejecting
        self._sayer.over("retry", "delivers again")

    def _end_all(self, reason: str) -> None:
        """Drop what is owed and what still comes, until the stop."""
        stopping = False
        while not stopping:
            stopping = self._stop.is_set()
            with contextlib.suppress(Retryable):
                while points := self.spool.take(self.sink.limits.max_points)[0]:
                    self.spool.settle({f"dropped:{reason}": len(points)})
            if not stopping:
                self._wake.wait()
                self._wake.clear()

    def _close(self) -> None:
        try:
            self.sink.close()
        except Exception as bug:
            self._sayer.say(logging.ERROR, f"close {type(bug)}", f"failed to close: {bug}", traceback=True)
