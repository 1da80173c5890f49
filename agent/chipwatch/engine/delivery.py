"""Delivers points from the spool to one sink, with a pause after a failure."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions
from chipwatch.contract.errors import Refused, Retryable, SinkClosed, text_of
from chipwatch.contract.sink import Sink, destination_of
from chipwatch.engine.batching import BatchWriter
from chipwatch.engine.delivery_log import DeliveryLog
from chipwatch.engine.spool.file import Ledger
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.validation import state_of

log = logging.getLogger(__name__)

IDENTITY_POLL: Final = 0.5
"""Seconds between two checks for an identity that is not known yet."""
HANG: Final = 120.0
"""Seconds without an answer after which a sink counts as hanging: five requests of 15 s, and new credentials."""
MAX_AFTER: Final = 900.0
"""Longest pause in seconds that a service may ask for."""
MAX_MERGED: Final = 20_000
"""Dimensions that are remembered together with the machine's."""
_new: Final = tuple.__new__
"""Makes a point from a tuple in half the time of a call with its fields."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """Pauses after failures: a random share of `base` seconds, which double up to `cap`; with `refused_` if refused."""

    base: float = 1.0
    cap: float = 60.0
    refused_base: float = 30.0
    refused_cap: float = 60.0

    def after(self, problem: BaseException, failures: int) -> tuple[float, float]:
        """Return a pause after the last of so many failures, and the longest that it may be."""
        is_refused = isinstance(problem, Refused)
        base, cap = (self.refused_base, self.refused_cap) if is_refused else (self.base, self.cap)
        after: Any = problem.after if isinstance(problem, Retryable) else None
        if isinstance(after, int | float) and after > 0:  # a plugin may pass on the text of a header
            pause = min(after, MAX_AFTER)
        else:
            pause = random.Random().uniform(0, min(cap, base * 2.0 ** min(failures - 1, 30)))  # noqa: S311  # no secret
        return pause, max(pause, cap)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Deliveries every `flush` seconds (0: at once), delayed by the share `offset` (0 to 1) of that."""

    flush: float = 0.0
    offset: float = 0.0
    longest_first: float = math.inf
    """The most seconds that the first points wait, of which `offset` is a share."""

    @property
    def first_wait(self) -> float:
        """The most seconds that the first points wait."""
        return min(self.flush, self.longest_first)

    def wait(self, now: float, *, is_first: bool) -> float:
        """Return the seconds from `now` (monotonic) until the next delivery."""
        period = self.first_wait if is_first else self.flush
        return (self.offset * period - now) % period if period else 0.0


class Completion:
    """Adds the machine's dimensions to points, whose own take precedence, and renames them."""

    def __init__(
        self, common: Callable[[], Dimensions | None], rename: Callable[[Datapoint], Datapoint] | None
    ) -> None:
        """Take what returns the dimensions of this machine, or None while they are not known."""
        self.common, self._rename = common, rename
        self._machine: Dimensions | None = None
        self._merged: dict[Dimensions, Dimensions] = {}

    def complete(self, points: list[Datapoint], common: Dimensions | None) -> list[Datapoint]:
        """Return the points as they are sent."""
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


class SinkHealth:
    """Counts and errors of the delivery to one sink; one thread writes them, others read them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ended = ledger.sent, ledger.rejected.total()
        self._rejecting: str | None = None
        self.counts: Counter[str] = Counter()
        """`retried`, `refused`, `bug`: attempts that failed so."""
        self.failures: Counter[str] = Counter()
        """The same, since something was delivered."""
        self.delivered: float | None = None
        """When points were last delivered (monotonic seconds), or None."""
        self.last_error: str | None = None
        """The error of the last failed attempt, or None."""
        self.refused: str | None = None
        """Why the service refuses this set-up, or every point, while it does."""
        self.is_closed = False
        """True once the reader of the points has left for good."""

    def fail(self, problem: BaseException) -> tuple[str, str, str]:
        """Count a failed attempt; return its event, its cause and its text."""
        text = text_of(problem)
        if isinstance(problem, Retryable):
            event = cause = "retried"
        elif isinstance(problem, Refused):
            event, cause, self.refused = "refused", f"refused {text}", text
        else:
            event, cause, text = "bug", f"bug {type(problem)}", f"{type(problem).__name__}: {text}"
            self.refused = f"it fails by a bug: {text}"
            text = f"bug: {text}"
        self.counts[event] += 1
        self.failures[event] += 1
        self.last_error = text
        return event, cause, text

    def be_well(self, rejected: str) -> None:
        """Note that nothing waits; `rejected` is why points were last rejected."""
        ended = self._ledger.sent, self._ledger.rejected.total()
        if ended != self._ended:
            self._rejecting = None if ended[0] > self._ended[0] else f"every point is rejected: {rejected}"
            self._ended = ended
        self.refused = self._rejecting


class SinkDelivery:
    """
    Delivers the points of one sink, oldest first, on the clock's thread: for a sink whose `write` never waits.

    It is the only place where a write is tried again. A batch is sent twice only if its answer was lost, or if the
    process ends while points are doubted.
    """

    def __init__(  # noqa: PLR0917  # the first three, as a rule
        self,
        name: str,
        sink: Sink,
        spool: Spool,
        common: Callable[[], Dimensions | None] = Dimensions,
        rename: Callable[[Datapoint], Datapoint] | None = None,
        schedule: Schedule = Schedule(),  # immutable
        pauses: Pauses = Pauses(),  # immutable
    ) -> None:
        """Send nothing while `common` returns None instead of the dimensions of this machine."""
        self.name, self.sink, self.spool, self.schedule = name, sink, spool, schedule
        self.destination: Mapping[str, str] = {}
        """The destination of the points, as far as the sink knew before it was opened."""
        self.on_closed: Callable[[], None] = lambda: None
        """Called once the reader of the points has left for good."""
        self._completion, self._pauses = Completion(common, rename), pauses
        self.health = SinkHealth(spool.ledger)
        logger = ThrottledLogger(log, name)
        self._batches = BatchWriter(sink, spool, logger, self.health.failures, self._state)
        self._log = DeliveryLog(name, spool.ledger)
        self._example: Dimensions | None = None  # of a point with few dimensions, of the first batch
        self._is_open, self._keeps_state = False, type(sink).needs.state
        self._due = 0.0

    # -- called by the clock's thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""

    def wake(self) -> None:
        """Deliver what is new, unless the pause after a failure goes on or the machine is not known."""
        if time.monotonic() >= self._due and self._completion.common() is not None:
            self._due = time.monotonic() + (self.turn() or 0.0)

    def stop(self) -> None:
        """Request a last delivery of what is kept; `join` makes it."""

    def join(self, timeout: float) -> bool:
        """Deliver what is kept, for at most `timeout` seconds, and close the sink; once. Return True."""
        if self._due == math.inf:
            return True
        end, self._due = time.monotonic() + timeout, math.inf
        while self.spool.is_due and self._completion.common() is not None:
            pause = self.turn(is_last=True)
            if pause is None or time.monotonic() + pause > end:
                break
            time.sleep(pause)
        self._close()
        return True

    @property
    def seconds(self) -> float:
        """Seconds that the last write took."""
        return self._batches.seconds

    @property
    def stuck(self) -> str | None:
        """Why nothing is delivered although nothing failed, or None."""
        return None

    def watch(self) -> None:
        """Log that nothing is delivered although nothing failed."""

    def describe(self) -> str:
        """Return where the points go, in words."""
        known = ", ".join(f"{key} {value}" for key, value in self.destination.items() if value)
        return known or f"{self._ask(self.sink.describe, 'cannot describe itself') or ''}"

    # -- the thread that delivers ------------------------------------------------------------------------------------

    def turn(self, *, is_last: bool = False) -> float | None:
        """Open the sink if it is not open, and deliver what waits; return the seconds to wait after a failure."""
        if self.health.is_closed:
            self._end_all()
            return None
        self._batches.busy, pause = time.monotonic(), None
        try:
            if not self._is_open:
                self._open()
            while self.spool.is_due and self._deliver_some():
                self.health.failures.clear()
                self.health.delivered = time.monotonic()
                if not self._log.is_quiet:
                    self._log.delivered(self._where)
            self.health.be_well(self._batches.rejected)
            if not self._log.is_quiet:
                self._log.drained()
        except SinkClosed as end:
            self.health.is_closed = True
            log.info("%s: %s", self.name, end)
            self.on_closed()
            self._end_all()
        except BaseException as problem:  # a plugin's SystemExit, too
            if not self._batches.is_halfway:
                self.spool.release()
            pause = self._fail(problem, is_last=is_last)
        if not self._batches.is_halfway:
            self._save_state()
        self._batches.busy = None
        return pause

    def _ask(self, method: Callable[[], Any], failure: str) -> Any:
        """Return what a method of the sink returns; log an exception with what failed by it, and return None."""
        return self._batches.guard.survive(method, failure)

    def _open(self) -> None:
        if self._keeps_state and (state := self.spool.file.recall()):
            self._ask(partial(self.sink.restore, state), "cannot take its state, it begins without")
        self._batches.guard.call(self.sink.open)
        self.spool.bind(self._batches.guard.call(partial(destination_of, self.sink)))
        self._log.opened()
        self._is_open = True

    def _close(self) -> None:
        self._ask(self.sink.close, "failed to close")

    def _state(self) -> bytes | None:
        """Return what the sink must know after a restart, or None if that has not changed."""
        failure = "cannot return its state"
        return self._batches.guard.survive(partial(state_of, self.sink), failure) if self._keeps_state else None

    def _save_state(self) -> None:
        if (state := self._state()) is not None:
            self.spool.file.remember(state)

    def _deliver_some(self) -> bool:
        """Deliver the next batches; return whether there may be more."""
        if self._batches.is_halfway:
            self._batches.settle()
            return True
        machine = self._completion.common()
        points, common = self.spool.take(self._batches.most)
        if not points or (common is None and machine is None):
            self.spool.release()
            return False
        points = self._completion.complete(points, machine if common is None else common)
        self._example = self._example or min(points, key=lambda point: len(point.dims)).dims
        if self._keeps_state and self._batches.guard.call(partial(self.sink.prepare, points)):
            self._save_state()
        self._batches.write_all(points)
        return True

    def _fail(self, problem: BaseException, *, is_last: bool) -> float:
        """Count and log what failed; return the seconds to wait."""
        event, cause, text = self.health.fail(problem)
        pause, longest = self._pauses.after(problem, self.health.failures[event])
        self._log.failed(event, cause, text, (pause, longest), is_last=is_last)
        return pause

    def _end_all(self) -> None:
        """Drop what waits: the reader has gone."""
        with suppress(Retryable):
            while points := self.spool.take(self.sink.limits.max_points)[0]:
                self.spool.acknowledge({"dropped:reader gone": len(points)})

    def _where(self) -> str | None:
        """Return how a person finds the points in the service; None if that is not logged, or said here."""
        sink = self.sink
        if sink.limits.scraped:
            page, state = (self._ask(ask, "cannot say how it is") for ask in (sink.describe, sink.status))
            log.info("%s: serves %s; %s", self.name, page, state)
        if sink.limits.scraped or sink.limits.standard_output:
            return None
        shown = [key for key in self._example or () if not key.startswith(HIDDEN)]
        return self._ask(partial(sink.find, shown), "cannot say where its points are") or ""


class Worker(SinkDelivery):
    """Delivers the points of one sink on a daemon thread: a sink that hangs holds nobody up."""

    def __init__(self, name: str, sink: Sink, spool: Spool, *more: Any, **options: Any) -> None:
        """Take what a SinkDelivery takes."""
        super().__init__(name, sink, spool, *more, **options)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._watcher = ThrottledLogger(log, name)
        self._was_stuck = False

    def start(self) -> None:
        """Start the thread; raise RuntimeError if that is not possible."""
        self._thread.start()

    def wake(self) -> None:
        """Deliver what is new when it is time."""
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

    @property
    def stuck(self) -> str | None:
        """Why this sink's thread delivers nothing, or None."""
        if self._thread.ident and not self._thread.is_alive() and not self._stop.is_set():
            return "its thread has ended; restart the agent"
        begun = self._batches.busy
        seconds = 0.0 if begun is None else time.monotonic() - begun
        return f"hangs: no answer for {seconds:.0f} s" if seconds > HANG else None

    def watch(self) -> None:
        """Log that the sink's thread hangs or has ended, and that it answers again."""
        stuck = self.stuck
        if stuck:
            self._watcher.log(logging.ERROR, "stuck", f"{stuck}; {self._log.kept()}")
        elif self._was_stuck:
            self._watcher.resolved("stuck", "answers again")
        self._was_stuck = stuck is not None

    def _run(self) -> None:
        pause, is_last = None, False
        while not is_last:
            is_last = self._wait(pause)
            pause = self.turn(is_last=is_last)
        self._close()

    def _wait(self, pause: float | None) -> bool:
        """Wait until points may be sent, `pause` seconds after a failure; return whether this is the last time."""
        while not self._stop.is_set():
            if not self.spool.is_due:
                self._wake.wait()
                self._wake.clear()
            elif self._completion.common() is None:
                self._stop.wait(IDENTITY_POLL)
            else:
                is_first = self.health.delivered is None
                seconds = self.schedule.wait(time.monotonic(), is_first=is_first) if pause is None else pause
                return self._stop.wait(seconds) if seconds > 0 else self._stop.is_set()
        return self._stop.is_set()
