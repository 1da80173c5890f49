"""Delivers points from the spool to one sink, on a thread of its own, and backs off after failures."""

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
from typing import Final, TypeVar

from chipwatch.datapoint import HIDDEN, Datapoint, Dimensions
from chipwatch.errors import Refused, Retryable, SinkClosed, text_of
from chipwatch.extensions import HasConsole, KeepsState, Prepares, destination_of, state_of
from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.pipeline.batching import BatchWriter
from chipwatch.pipeline.delivery_log import DeliveryLog
from chipwatch.sink import Sink
from chipwatch.spool.queue import Spool

log = logging.getLogger(__name__)
T = TypeVar("T")

DICE: Final = random.Random()  # noqa: S311  # not a secret
SAVE_INTERVAL: Final = 1.0
"""Seconds between two savings of a sink's state while there is much to deliver; a kill loses at most the rest."""
IDENTITY_POLL: Final = 0.5
"""Seconds between two checks for an identity that is not known yet."""
HANG: Final = 120.0
"""Seconds without an answer after which a sink counts as hanging: five requests of 15 s, and new credentials."""
MAX_AFTER: Final = 900.0
"""Longest pause in seconds that a service may ask for."""
MAX_MERGED: Final = 20_000
"""Dimensions that are remembered together with the machine's."""
_make: Final = Datapoint._make
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
        self.destination: Mapping[str, str] = {}
        """Where the points go, as far as the sink knew before it was opened."""
        self._common, self._rename, self._on_closed = common, rename, on_closed
        self._flush, self._offset = flush, offset
        self.first_wait = min(flush, first_wait)
        """The most seconds that the first points wait, of which `offset` is a share."""
        self._backoff, self._refused_backoff = (base, cap), (refused_base, refused_cap)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._logger, self._watcher = ThrottledLogger(log, name), ThrottledLogger(log, name)
        self._merged: dict[Dimensions, Dimensions] = {}
        self._machine: Dimensions | None = None
        self.counts: Counter[str] = Counter()
        """`retried`, `refused`, `bug`: attempts that failed so."""
        self._failures: Counter[str] = Counter()  # the same, since something was delivered
        self._batches = BatchWriter(sink, spool, self._logger, self.counts, self._failures)
        self.delivered: float | None = None
        """When points were last delivered (monotonic seconds), or None."""
        self.last_error: str | None = None
        """The error of the last failed attempt, or None."""
        self.refused: str | None = None
        """Why the service refuses this set-up, or every point, while it does."""
        self.is_closed = False
        """Whether the reader of the points has left for good."""
        self._rejecting: str | None = None
        self._counts = self._ended()
        self._kept_before = spool.ledger.spooled
        self._log = DeliveryLog(name, spool.ledger, lambda: spool.apart)
        self._example: Datapoint | None = None  # a point with few dimensions, of the first batch
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Tell the thread that the spool has new points."""
        self._wake.set()

    def stop(self) -> None:
        """Request a last delivery of what is kept, tried once."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait for the last delivery; return whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- called by the clock's thread ------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """How long the last write took."""
        return self._batches.seconds

    @property
    def stuck(self) -> str | None:
        """Why this sink's thread delivers nothing, or None."""
        if self._thread.ident and not self._thread.is_alive() and not self._stop.is_set():
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
        if stuck := self.stuck:
            self._watcher.log(logging.ERROR, "stuck", f"{stuck}; {self._log.kept()}")
        else:
            self._watcher.resolved("stuck", "answers again")

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_open, last_try, due = False, False, 0.0
        delay: float | None = None
        while not last_try:
            self._batches.busy = None
            last_try = self._wait(delay)
            self._batches.busy, delay = time.monotonic(), None
            try:
                if not is_open:
                    if isinstance(self.sink, KeepsState) and (state := self.spool.recall()):
                        self._call(partial(self.sink.restore, state), "cannot take its state, it begins without")
                    self._batches.guard.call(self.sink.open)
                    self.spool.bind(self._batches.guard.call(partial(destination_of, self.sink)))
                    self._log.is_behind = self._kept_before > self.spool.apart
                    is_open = True
                while self._deliver_some():
                    self._failures.clear()
                    self.delivered = time.monotonic()
                    self._log.delivered(self._where)
                    if time.monotonic() >= due:
                        self._save_state()
                        due = time.monotonic() + SAVE_INTERVAL
                self._well()
            except SinkClosed as end:
                self.is_closed = True
                log.info("%s: %s", self.name, end)
                self._on_closed()
                self._batches.busy = None
                self._end_all("reader gone")
                break
            except BaseException as problem:  # a plugin's SystemExit, too
                if not self._batches.is_halfway:
                    self.spool.release()
                delay = self._delay(problem, is_last=last_try)
            self._save_state()
        self._call(self.sink.close, "failed to close")

    def _save_state(self) -> None:
        """Save what the sink must know after a restart."""
        if not isinstance(self.sink, KeepsState):
            return
        if (state := self._call(partial(state_of, self.sink), "cannot return its state")) is not None:
            self.spool.remember(state)

    def _call(self, method: Callable[[], T], failure: str) -> T | None:
        """Return what `method` of the sink returns; log an exception, and return None."""
        try:
            return self._batches.guard.call(method)
        except BaseException as bug:
            self._logger.log(logging.ERROR, f"{failure} {type(bug)}", f"{failure}: {text_of(bug)}", traceback=True)
            return None

    def _wait(self, delay: float | None) -> bool:
        """Wait until points may be sent, `delay` seconds after a failure; return whether this is the last time."""
        while not self._stop.is_set():
            if not self.spool.is_due:
                self._wake.wait()
                self._wake.clear()
            elif self._common() is None:
                self._stop.wait(IDENTITY_POLL)
            else:
                return self._stop.wait(self._until_flush() if delay is None else delay)
        return self._stop.is_set()

    def _where(self) -> str | None:
        """Return how a person finds the points in the service; None if they are on standard output."""
        if self.sink.limits.standard_output:
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
        known = self._common()
        points, common = self.spool.take(self._batches.most)
        if not points or (common is None and known is None):
            self.spool.release()
            return False
        points = self._complete(points, known if common is None else common)
        if self._example is None:
            self._example = min(points, key=lambda point: len(point.dims))
        if isinstance(self.sink, Prepares) and self._batches.guard.call(partial(self.sink.prepare, points)):
            self._save_state()
        self._batches.write_all(points)
        return True

    def _complete(self, points: list[Datapoint], common: Dimensions | None) -> list[Datapoint]:
        """Add the machine's dimensions to each point, whose own take precedence, and rename it."""
        if common:
            if common is not self._machine or len(self._merged) > MAX_MERGED:
                self._machine, self._merged = common, {}
            known, bare = self._merged, points
            points = []
            for metric, value, own, at, start_time, start, summary, increase in bare:
                if (dims := known.get(own)) is None:
                    dims = known[own] = common | own
                points.append(_make((metric, value, dims, at, start_time, start, summary, increase)))
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
        if isinstance(problem, Retryable) and problem.after is not None and problem.after > 0:
            wait = min(problem.after, MAX_AFTER)
        else:
            wait = DICE.uniform(0, min(most, base * 2.0 ** min(self._failures[kind] - 1, 30)))
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

    def _end_all(self, reason: str) -> None:
        """Drop what is kept and what still comes, until the stop."""
        stopping = False
        while not stopping:
            stopping = self._stop.is_set()
            with contextlib.suppress(Retryable):
                while points := self.spool.take(self.sink.limits.max_points)[0]:
                    self.spool.acknowledge({f"dropped:{reason}": len(points)})
            if not stopping:
                self._wake.wait()
                self._wake.clear()
