"""Delivers points from the spool to one sink on its own thread, backs off after failures, and logs each change."""

from __future__ import annotations

import contextlib
import logging
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions
from chipwatch.contract.errors import Refused, Retryable, SinkClosed, text_of
from chipwatch.contract.extensions import (
    HasConsole,
    IsScraped,
    KeepsState,
    NeverWaits,
    Prepares,
    destination_of,
    state_of,
)
from chipwatch.contract.sink import Sink
from chipwatch.contract.text import count, duration
from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.pipeline.batching import BatchWriter
from chipwatch.spool.ledger import Ledger
from chipwatch.spool.queue import Spool

log = logging.getLogger(__name__)
T = TypeVar("T")

IDENTITY_POLL: Final = 0.5
"""Seconds between two checks for an identity that is not known yet."""
HANG: Final = 120.0
"""Seconds without an answer after which a sink counts as hanging: five requests of 15 s, and new credentials."""
MAX_AFTER: Final = 900.0
"""Longest pause in seconds that a service may ask for."""
MAX_MERGED: Final = 20_000
"""Dimensions that are remembered together with the machine's."""
BLIP: Final = 5.0
"""Seconds to the next attempt below which the first failure is not logged: most single failures are over then."""
SLOW: Final = 1.0
"""Seconds of a write after which a sink that never waits gets its thread back: it must not hold up the clock."""
LONG: Final = 60.0
"""Seconds after which an outage is logged although its cause was logged within the hour, for an earlier one."""
PROGRESS: Final = 60.0
"""Seconds of catching up after which its progress is logged; then after twice as long, and so on."""
_new: Final = tuple.__new__
"""Makes a point from a tuple in half the time of a call with its fields."""


class Worker:
    """
    Delivers the points of one sink, oldest first; the only place where a write is tried again.

    A batch is sent twice only if its answer was lost, or if the process ends while points are doubted.
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
        first_wait: float = math.inf,
        base: float = 1.0,
        cap: float = 60.0,
        refused_base: float = 30.0,
        refused_cap: float = 60.0,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Send every `flush` seconds (0: at once), delayed by the share `offset` (0 to 1) of that.

        The first points wait `first_wait` seconds at most.

        `common` returns the dimensions of this machine, or None while they are not known: nothing is sent then.
        After a failure wait a random share of `base` seconds, which double up to `cap`; if the set-up is refused, of
        the `refused_` ones.
        """
        self.name, self.sink, self.spool = name, sink, spool
        self._keeper = sink if isinstance(sink, KeepsState) else None  # asked once: isinstance takes microseconds
        self._preparer = sink if isinstance(sink, Prepares) else None
        self.destination: Mapping[str, str] = {}
        """The destination of the points, as far as the sink knew before it was opened."""
        self._common, self._rename, self._on_closed = common, rename, on_closed
        self._flush, self._offset = flush, offset
        self.first_wait = min(flush, first_wait)
        """The most seconds that the first points wait, of which `offset` is a share."""
        self._backoff, self._refused_backoff = (base, cap), (refused_base, refused_cap)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._logger, self._watcher = ThrottledLogger(log, name), ThrottledLogger(log, name)
        self._was_stuck = False
        self._merged: dict[Dimensions, Dimensions] = {}
        self._machine: Dimensions | None = None
        self.counts: Counter[str] = Counter()
        """`retried`, `refused`, `bug`: attempts that failed so."""
        self._failures: Counter[str] = Counter()  # the same, since something was delivered
        self._batches = BatchWriter(sink, spool, self._logger, self.counts, self._failures, state=self._state)
        self._call = self._batches.guard.survive
        self.delivered: float | None = None
        """When points were last delivered (monotonic seconds), or None."""
        self.last_error: str | None = None
        """The error of the last failed attempt, or None."""
        self.refused: str | None = None
        """Why the service refuses this set-up, or every point, while it does."""
        self.is_closed = False
        """True once the reader of the points has left for good."""
        self._rejecting: str | None = None
        self._counts = self._ended()
        self._kept_before = spool.ledger.spooled
        self._log = DeliveryLog(name, spool.ledger, lambda: spool.apart)
        self._example: Datapoint | None = None  # a point with few dimensions, of the first batch
        self._thread = threading.Thread()
        self._never_waits = isinstance(sink, NeverWaits) and sink.never_waits is True
        self._is_open = self._is_inline = False
        """`_is_inline`: the thread has ended, and the clock's thread delivers."""

    def start(self, delay: float | None = None) -> None:
        """Start the thread, `delay` seconds before the next attempt after a failure."""
        self._is_inline = False
        self._thread = threading.Thread(target=self._run, args=(delay,), name=f"sink-{self.name}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Deliver what is new if the sink never waits, is open and did not fail, else wake the thread."""
        if not self._is_inline:
            self._wake.set()
        elif self._common() is not None:
            delay = self._turn()
            self._never_waits &= self.seconds < SLOW
            if delay is not None or not self._never_waits:
                try:
                    self.start(delay)
                except RuntimeError:  # no thread can be started
                    self._is_inline = True

    def stop(self) -> None:
        """Request a last delivery of what is kept, tried once."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait for the last delivery; return whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        with contextlib.suppress(RuntimeError):  # no thread can be started
            if self._is_inline:
                self.start()  # for the last delivery
                self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- called by the clock's thread ------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Seconds that the last write took."""
        return self._batches.seconds

    @property
    def stuck(self) -> str | None:
        """Why this sink's thread delivers nothing, or None."""
        has_ended = self._thread.ident and not self._thread.is_alive() and not self._is_inline
        if has_ended and not self._stop.is_set():
            return "its thread has ended; restart the agent"
        begun = self._batches.busy
        seconds = 0.0 if begun is None else time.monotonic() - begun
        return f"hangs: no answer for {seconds:.0f} s" if seconds > HANG else None

    def describe(self) -> str:
        """Return where the points go, in words."""
        known = ", ".join(f"{key} {value}" for key, value in self.destination.items() if value)
        return known or f"{self._call(self.sink.describe, 'cannot describe itself') or ''}"

    def watch(self) -> None:
        """Log that the sink's thread hangs or has ended, and that it answers again."""
        stuck = self.stuck
        if stuck:
            self._watcher.log(logging.ERROR, "stuck", f"{stuck}; {self._log.kept()}")
        elif self._was_stuck:
            self._watcher.resolved("stuck", "answers again")
        self._was_stuck = stuck is not None

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self, delay: float | None = None) -> None:
        while not (last_try := self._wait(delay)):
            delay = self._turn()
            if self._never_waits and self._is_open and delay is None:
                self._is_inline = True  # last of all: from here on the clock's thread may start another one
                return
        self._turn(is_last=last_try)
        self._call(self.sink.close, "failed to close")

    def _turn(self, *, is_last: bool = False) -> float | None:
        """Open the sink if it is not open, and deliver what waits; return the seconds to wait after a failure."""
        if self.is_closed:
            self._end_all()
            return None
        self._batches.busy, delay = time.monotonic(), None
        try:
            if not self._is_open:
                if self._keeper and (state := self.spool.recall()):
                    self._call(partial(self._keeper.restore, state), "cannot take its state, it begins without")
                self._batches.guard.call(self.sink.open)
                self.spool.bind(self._batches.guard.call(partial(destination_of, self.sink)))
                self._log.is_behind = self._kept_before > self.spool.apart
                self._is_open = True
            while self.spool.is_due and self._deliver_some():
                self._failures.clear()
                self.delivered = time.monotonic()
                self._log.delivered(self._where)
            self._well()
        except SinkClosed as end:
            self.is_closed = True
            log.info("%s: %s", self.name, end)
            self._on_closed()
            self._end_all()
        except BaseException as problem:  # a plugin's SystemExit, too
            if not self._batches.is_halfway:
                self.spool.release()
            delay = self._delay(problem, is_last=is_last)
        if not self._batches.is_halfway:
            self._save_state()
        self._batches.busy = None
        return delay

    def _state(self) -> bytes | None:
        """Return what the sink must know after a restart, or None if that has not changed."""
        return self._call(partial(state_of, self._keeper), "cannot return its state") if self._keeper else None

    def _save_state(self) -> None:
        if (state := self._state()) is not None:
            self.spool.remember(state)

    def _wait(self, delay: float | None) -> bool:
        """Wait until points may be sent, `delay` seconds after a failure; return whether this is the last time."""
        while not self._stop.is_set():
            if not self.spool.is_due:
                self._wake.wait()
                self._wake.clear()
            elif self._common() is None:
                self._stop.wait(IDENTITY_POLL)
            else:
                pause = self._until_flush() if delay is None else delay
                return self._stop.wait(pause) if pause > 0 else self._stop.is_set()
        return self._stop.is_set()

    def _where(self) -> str | None:
        """Return how a person finds the points in the service; None if that is not logged, or said here."""
        if self.sink.limits.standard_output or isinstance(self.sink, IsScraped):
            if isinstance(self.sink, IsScraped):
                asked = (self.sink.describe, self.sink.status)
                page, state = (self._call(ask, "cannot say how it is") for ask in asked)
                log.info("%s: serves %s; %s", self.name, page, state)
            return None
        if not isinstance(self.sink, HasConsole):
            return ""
        keys = self._example.dims if self._example else ()
        shown = [key for key in keys if not key.startswith(HIDDEN)]
        return self._call(partial(self.sink.find, shown), "cannot say where its points are") or ""

    def _until_flush(self) -> float:
        period = self._flush if self.delivered else self.first_wait
        return (self._offset * period - time.monotonic()) % period if period else 0.0

    def _deliver_some(self) -> bool:
        """Deliver the next batches; return whether there may be more."""
        if self._batches.is_halfway:
            self._batches.end_doubted()
            return True
        machine = self._common()
        points, common = self.spool.take(self._batches.most)
        if not points or (common is None and machine is None):
            self.spool.release()
            return False
        points = self._complete(points, machine if common is None else common)
        if self._example is None:
            self._example = min(points, key=lambda point: len(point.dims))
        if self._preparer and self._batches.guard.call(partial(self._preparer.prepare, points)):
            self._save_state()
        self._batches.write_all(points)
        return True

    def _complete(self, points: list[Datapoint], common: Dimensions | None) -> list[Datapoint]:
        """Add the machine's dimensions to each point, whose own take precedence, and rename it."""
        if common:
            if common is not self._machine or len(self._merged) > MAX_MERGED:
                self._machine, self._merged = common, {}
            merged, bare = self._merged, points
            points = []
            for metric, value, own, at, start_time, start, summary, increase in bare:
                if (dims := merged.get(own)) is None:
                    dims = merged[own] = common | own
                points.append(_new(Datapoint, (metric, value, dims, at, start_time, start, summary, increase)))
        return [self._rename(point) for point in points] if self._rename else points

    def _delay(self, problem: BaseException, *, is_last: bool = False) -> float:
        """Log what failed; return the seconds to wait: as the service asked, or full jitter."""
        text, kind, level = text_of(problem), "bug", logging.ERROR
        cause = f"bug {type(problem)}"
        if isinstance(problem, Retryable):
            cause = kind = "retried"
            level = logging.WARNING
        elif isinstance(problem, Refused):
            kind, cause, self.refused = "refused", f"refused {text}", text
        else:
            text = f"{type(problem).__name__}: {text}"
            self.refused = f"it fails by a bug: {text}"
            text = f"bug: {text}"
        self.counts[kind] += 1
        self._failures[kind] += 1
        self.last_error = text
        base, most = self._refused_backoff if kind == "refused" else self._backoff
        after: Any = problem.after if isinstance(problem, Retryable) else None
        if isinstance(after, int | float) and after > 0:  # a plugin may pass on the text of a header
            wait = min(after, MAX_AFTER)
        else:
            most_now = min(most, base * 2.0 ** min(self._failures[kind] - 1, 30))
            wait = random.Random().uniform(0, most_now)  # noqa: S311  # not a secret
        self._log.failed(level, cause, text, wait, max(wait, most), is_last=is_last, traceback=kind == "bug")
        return wait

    def _ended(self) -> tuple[int, int]:
        """Return how many points were sent and rejected."""
        return self.spool.ledger.sent, self.spool.ledger.rejected.total()

    def _well(self) -> None:
        counts, before = self._ended(), self._counts
        if counts != before:
            self._counts = counts
            self._rejecting = None if counts[0] > before[0] else f"every point is rejected: {self._batches.rejected}"
        self.refused = self._rejecting
        self._log.drained()

    def _end_all(self) -> None:
        """Drop what waits: the reader has gone."""
        with contextlib.suppress(Retryable):
            while points := self.spool.take(self.sink.limits.max_points)[0]:
                self.spool.acknowledge({"dropped:reader gone": len(points)})


class DeliveryLog:
    """
    Logs the first delivery, failures, and the recovery from them, with the counts of the ledger.

    A failure is logged at its second attempt or before a long wait, then once an hour, also where short outages follow
    one another. Used by the worker's thread.
    """

    def __init__(
        self, name: str, ledger: Ledger, apart: Callable[[], int] = int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Count from the ledger as it is now; `apart` returns how many of its points are for other destinations."""
        self._name, self._ledger, self._apart, self._clock = name, ledger, apart, clock
        self._failures = ThrottledLogger(log, name, clock)
        self._attempts = 0  # failed, since the last success
        self._since = 0.0  # when the first of them failed
        self._is_logged = False  # whether one of them was
        self._before, self._dropped = ledger.sent, ledger.dropped.total()  # before them
        self._sent = ledger.sent  # at the start, or before catching up
        self._is_first = True
        self.is_behind = False
        """True if points for this destination are kept from before."""
        self._began: float | None = None  # when catching up began
        self._next_progress = PROGRESS

    def failed(
        self, level: int, cause: str, text: str, wait: float, most: float, *, is_last: bool, traceback: bool = False
    ) -> None:
        """Log that points cannot be sent because of `text`; the next attempt comes after `wait` of `most` seconds."""
        now, ledger = self._clock(), self._ledger
        if not self._attempts:
            self._since, self._before, self._dropped = now, ledger.sent, ledger.dropped.total()
        self._attempts += 1
        if self._attempts == 1 and wait < BLIP and not (is_last or traceback):
            return
        past = f" for {duration(now - self._since, 2)}" if now - self._since >= 60 else ""
        plan = "" if is_last else f", next try within {math.ceil(most)} s"
        lost = f", {self._lost:,} lost" if self._lost else ""
        what = f" {count(ledger.spooled - self._apart())}" if is_last else f"{past}, {self.kept()}{lost}"
        text = f"cannot send{what}{plan}: {text}"
        if not self._is_logged and now - self._since >= LONG:
            self._failures = ThrottledLogger(log, self._name, self._clock)
        self._is_logged |= self._failures.log(level, cause, text, traceback=traceback)

    def delivered(self, where: Callable[[], str | None]) -> None:
        """Log what changed with a delivery; `where` returns how to find the points, None if the first is not logged."""
        now, ledger = self._clock(), self._ledger
        if self._is_logged:
            self._sent = self._before
            points, past = ledger.sent - self._sent + ledger.spooled - self._apart(), duration(now - self._since, 2)
            self._info(f"sending again after {past}; {count(points)} kept, {self._lost:,} lost")
            self._began, self._next_progress = now, PROGRESS
        self._attempts, self._is_logged = 0, False
        done = ledger.sent - self._sent
        if self._is_first and done:
            self._is_first = False
            if (place := where()) is not None:
                self._info("; see ".join(filter(None, (f"first {count(done)} accepted", place))))
            if self.is_behind:
                self._began = now
        if self._began is not None and now - self._began >= self._next_progress:
            self._next_progress *= 2
            left = duration((now - self._began) * (ledger.spooled - self._apart()) / max(done, 1), 2)
            self._info(f"catching up: {count(done)} sent, {self.kept()}, about {left} left")

    def drained(self) -> None:
        """Log that no points wait any more, if they were behind."""
        if self._began is not None:
            points = self._ledger.sent - self._sent
            self._info(f"caught up: {count(points)} in {duration(self._clock() - self._began, 2)}")
            self._began = None

    def kept(self) -> str:
        """Return how many points wait for this destination, and how many for others."""
        others = self._apart()
        more = f" and {others:,} for other destinations" if others else ""
        return f"{count(self._ledger.spooled - others)} kept{more}"

    @property
    def _lost(self) -> int:
        return self._ledger.dropped.total() - self._dropped

    def _info(self, text: str) -> None:
        log.info("%s: %s", self._name, text, extra={"who": self._name})
