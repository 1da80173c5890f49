"""Delivers the points of one sink from its spool, and tries again after a failure."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions, new
from chipwatch.contract.errors import Refused, Retryable, SinkClosed, text_of
from chipwatch.contract.sink import Sink, destination_of
from chipwatch.engine.batching import BatchWriter
from chipwatch.engine.delivery_log import DeliveryLog, Pauses
from chipwatch.engine.spool.file import Ledger
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.validation import state_of

log = logging.getLogger(__name__)

IDENTITY_POLL: Final = 0.5
"""Seconds between two checks for an identity that is not known yet."""
HANG: Final = 120.0
"""Seconds without an answer after which a sink hangs: more than five requests of 15 s, and new credentials, take."""
MAX_MERGED: Final = 25_000
"""Merged dimensions that are remembered; then all are forgotten."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times of deliveries: every `flush` seconds (0: at once), shifted by `offset`, a share (0 to 1) of `flush`."""

    flush: float = 0.0
    offset: float = 0.0
    longest_first: float = math.inf
    """Upper limit of `first_wait` in seconds."""

    @property
    def first_wait(self) -> float:
        """Most seconds that the first points wait; they wait the share `offset` of it."""
        return min(self.flush, self.longest_first)

    def wait(self, now: float, *, is_first: bool) -> float:
        """Return the seconds from `now` (monotonic) until the next delivery."""
        period = self.first_wait if is_first else self.flush
        return (self.offset * period - now) % period if period else 0.0


class Completion:
    """Completes points before they are sent: adds the machine's dimensions, then renames them."""

    def __init__(
        self, common: Callable[[], Dimensions | None], rename: Callable[[Datapoint], Datapoint] | None
    ) -> None:
        """Take functions: for the machine's dimensions (None while they are not known), and to rename a point."""
        self.common, self._rename = common, rename
        self._machine: Dimensions | None = None
        self._merged: dict[Dimensions, Dimensions] = {}

    def complete(self, points: list[Datapoint], common: Dimensions | None) -> list[Datapoint]:
        """Return the points with `common` added, and renamed; a point's own dimensions win."""
        if common:
            if common is not self._machine or len(self._merged) > MAX_MERGED:
                self._machine, self._merged = common, {}
            merged, bare, points = self._merged, points, []
            for metric, value, own, at, start_time, start, summary, increase in bare:
                if (dims := merged.get(own)) is None:
                    dims = merged[own] = common | own
                points.append(new(Datapoint, (metric, value, dims, at, start_time, start, summary, increase)))
        return [self._rename(point) for point in points] if self._rename else points


class SinkHealth:
    """The counts and errors of the delivery to one sink. One thread writes them, others read them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ended = ledger.sent, ledger.rejected.total()
        self._rejecting: str | None = None
        self.counts: Counter[str] = Counter()
        """Failed attempts by kind: `retried`, `refused`, `bug`."""
        self.failures: Counter[str] = Counter()
        """Failed attempts by kind since the last delivery."""
        self.delivered: float | None = None
        """Time of the last delivery (monotonic seconds), or None."""
        self.last_error: str | None = None
        """The error of the last failed attempt, or None."""
        self.refused: str | None = None
        """Reason why the service refuses this set-up, or every point; None while it does not."""
        self.is_closed = False
        """True once the reader of the points has gone for good."""

    def fail(self, problem: BaseException) -> tuple[str, str, str]:
        """Count a failed attempt; return its kind, its cause (for the log's limit of one line an hour) and its text."""
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
        """Note that all points are delivered; `rejected` is the reason of the last rejected points."""
        ended = self._ledger.sent, sum(self._ledger.rejected.values())
        if ended != self._ended:
            self._rejecting = None if ended[0] > self._ended[0] else f"every point is rejected: {rejected}"
            self._ended = ended
        self.refused = self._rejecting


class SinkDelivery:
    """
    Delivers the points of one sink, oldest first, on the clock's thread. It is for sinks whose `write` never waits.

    All retries happen here. A batch is sent twice only if its answer was lost, or if the process ends while the
    BatchWriter searches for the points at fault.
    """

    def __init__(  # noqa: PLR0917  # most callers pass three
        self,
        name: str,
        sink: Sink,
        spool: Spool,
        common: Callable[[], Dimensions | None] = Dimensions,
        rename: Callable[[Datapoint], Datapoint] | None = None,
        schedule: Schedule = Schedule(),  # immutable
        pauses: Pauses = Pauses(),  # noqa: B008  # immutable
    ) -> None:
        """Call `common` for the machine's dimensions; send nothing while it returns None."""
        self.name, self.sink, self.spool, self.schedule = name, sink, spool, schedule
        self.destination: Mapping[str, str] = {}
        """The destination of the points, as far as the sink knew it before it was opened."""
        self.on_closed: Callable[[], None] = lambda: None
        """Function to call once the reader of the points has gone for good."""
        self._completion, self._pauses = Completion(common, rename), pauses
        self.health = SinkHealth(spool.ledger)
        logger = ThrottledLogger(log, name)
        self._batches = BatchWriter(sink, spool, logger, self.health.failures, self._state)
        self._log = DeliveryLog(name, spool.ledger)
        self._example: Dimensions | None = None  # dimensions of a point of the first batch
        self._is_open, self._due = False, 0.0
        limits = sink.limits
        self._is_simple = not (sink.needs.state or spool.file.path or limits.max_bytes or limits.one_per_series)
        """True if the spool only hands the points on."""

    # -- called by the clock's thread ------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""

    def accept(self, points: list[Datapoint], common: Dimensions | None) -> None:
        """
        Take the points of a window, and the machine's dimensions (None while they are not known); then deliver.

        While all is well, they go straight to the sink, and the spool gets them only if that fails.
        """
        is_well = self._log.is_quiet and not (self.spool.is_due or self.health.is_closed)
        if self._is_simple and is_well and common is not None and len(points) <= self.sink.limits.max_points:
            self._due = time.monotonic() + (self.turn(self._deliver_fresh, points, common) or 0.0)
        else:
            self.spool.append(points, common)
            self.wake()

    def wake(self) -> None:
        """Deliver what waits, unless it is too soon after a failure or the machine's dimensions are not known."""
        if time.monotonic() >= self._due and self._completion.common() is not None:
            self._due = time.monotonic() + (self.turn() or 0.0)

    def stop(self) -> None:
        """Request the last delivery; `join` makes it."""

    def join(self, timeout: float) -> bool:
        """Deliver what waits, for at most `timeout` seconds, then close the sink, once. Return True."""
        if self._due == math.inf:
            return True
        end, self._due = time.monotonic() + timeout, math.inf
        while self.spool.is_due and self._completion.common() is not None:
            pause = self.turn(is_last=True)
            if pause is None or time.monotonic() + pause > end:
                break
            time.sleep(pause)
        self._ask(self.sink.close, "failed to close")
        return True

    @property
    def seconds(self) -> float:
        """Seconds that the last `write` took."""
        return self._batches.seconds

    @property
    def stuck(self) -> str | None:
        """Reason why nothing is delivered although no call failed, or None."""
        return None

    def watch(self) -> None:
        """Log it if nothing is delivered although no call failed."""

    def describe(self) -> str:
        """Return where the points go, for people."""
        known = ", ".join(f"{key} {value}" for key, value in self.destination.items() if value)
        return known or f"{self._ask(self.sink.describe, 'cannot describe itself') or ''}"

    # -- the thread that delivers ------------------------------------------------------------------------------------

    def turn(self, deliver: Callable[..., None] | None = None, *args: Any, is_last: bool = False) -> float | None:
        """Deliver what waits, or call `deliver` instead; return the seconds to wait after a failure, else None."""
        if self.health.is_closed:
            self._end_all()
            return None
        self._batches.busy, pause = time.monotonic(), None
        try:
            (deliver or self._drain)(*args)
            self.health.be_well(self._batches.rejected)
            if not self._log.is_quiet:
                self._log.drained()
        except SinkClosed as end:
            self.health.is_closed = True
            log.info("%s: %s", self.name, end)
            self.on_closed()
            self._end_all()
        except BaseException as problem:  # also a SystemExit of a plugin
            if not self._batches.is_halfway:
                self.spool.release()
            event, cause, text = self.health.fail(problem)
            pause, longest = self._pauses.after(problem, self.health.failures[event])
            self._log.failed(event, cause, text, (pause, longest), is_last=is_last)
        if self.sink.needs.state and not self._batches.is_halfway:
            self.spool.file.remember(self._state())
        self._batches.busy = None
        return pause

    def _ask(self, method: Callable[[], Any], failure: str) -> Any:
        """Return what a method of the sink returns, or None after an exception, which is logged with `failure`."""
        return self._batches.guard.survive(method, failure)

    def _open(self) -> None:
        if self.sink.needs.state and (state := self.spool.file.recall()):
            self._ask(partial(self.sink.restore, state), "cannot take its state, it begins without")
        self._batches.guard.call(self.sink.open)
        self.spool.bind(self._batches.guard.call(destination_of, self.sink))
        self._log.opened()
        self._is_open = True

    def _state(self) -> bytes | None:
        """Return the state that the sink wants to keep over a restart, or None if it has not changed."""
        return self._ask(partial(state_of, self.sink), "cannot return its state") if self.sink.needs.state else None

    def _deliver_fresh(self, points: list[Datapoint], common: Dimensions) -> None:
        """Write points that are in no spool; if that fails, put them there."""
        try:
            change = self._batches.write(self._completion.complete(points, common))
        except BaseException:
            self.spool.append(points, common)
            raise
        self.spool.ledger.add({"collected": len(points), **change})
        self.health.delivered = time.monotonic()

    def _drain(self) -> None:
        """Deliver all points that wait."""
        if not self._is_open:
            self._open()
        while self.spool.is_due and self._deliver_some():
            self.health.failures.clear()
            self.health.delivered = time.monotonic()
            if not self._log.is_quiet:
                self._log.delivered(self._where)

    def _deliver_some(self) -> bool:
        """Take some points from the spool and deliver them; return whether more may wait."""
        if self._batches.is_halfway:
            self._batches.settle()
            return True
        machine, points = self._completion.common(), list[Datapoint]()
        for some, common in self.spool.take(self._batches.most):
            if common is None and machine is None:
                break
            points += self._completion.complete(some, machine if common is None else common)
        if not points:
            self.spool.release()
            return False
        self._example = self._example or min(points, key=lambda point: len(point.dims)).dims
        if self.sink.needs.state and self._batches.guard.call(self.sink.prepare, points):
            self.spool.file.remember(self._state())
        self._batches.write_all(points)
        return True

    def _end_all(self) -> None:
        """Drop all points that wait, since their reader has gone."""
        with suppress(Retryable):
            while parts := self.spool.take(self.sink.limits.max_points):
                self.spool.acknowledge({"dropped:reader gone": sum(len(points) for points, _ in parts)})

    def _where(self) -> str | None:
        """Return how a person finds the points in the service; None for sinks whose users need no such hint."""
        sink = self.sink
        if sink.limits.scraped:
            page, state = (self._ask(ask, "cannot say how it is") for ask in (sink.describe, sink.status))
            log.info("%s: serves %s; %s", self.name, page, state)
        if sink.limits.scraped or sink.limits.standard_output:
            return None
        shown = [key for key in self._example or () if not key.startswith(HIDDEN)]
        return self._ask(partial(sink.find, shown), "cannot say where its points are") or ""


class Worker(SinkDelivery):
    """Delivers the points of one sink on a separate daemon thread, so that a sink that hangs delays no other."""

    def __init__(self, name: str, sink: Sink, spool: Spool, *more: Any, **options: Any) -> None:
        """Take the arguments of SinkDelivery."""
        super().__init__(name, sink, spool, *more, **options)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sink-{name}", daemon=True)
        self._watcher, self._was_stuck = ThrottledLogger(log, name), False
        self._is_simple = False  # its thread takes them from the spool

    def start(self) -> None:
        """Start the thread; raise RuntimeError if the system cannot."""
        self._thread.start()

    def wake(self) -> None:
        """Note that points wait; the thread delivers them when they are due."""
        self._wake.set()

    def stop(self) -> None:
        """Request the last delivery, which is tried once."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait for the last delivery; return whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def stuck(self) -> str | None:
        """Reason why this sink's thread delivers nothing, or None."""
        if self._thread.ident and not self._thread.is_alive() and not self._stop.is_set():
            return "its thread has ended; restart the agent"
        begun = self._batches.busy
        seconds = 0.0 if begun is None else time.monotonic() - begun
        return f"hangs: no answer for {seconds:.0f} s" if seconds > HANG else None

    def watch(self) -> None:
        """Log it if the sink's thread hangs or has ended, and when it answers again."""
        if stuck := self.stuck:
            self._watcher.log(logging.ERROR, "stuck", f"{stuck}; {self._log.kept()}")
        elif self._was_stuck:
            self._watcher.resolved("stuck", "answers again")
        self._was_stuck = stuck is not None

    def _run(self) -> None:
        pause, is_last = None, False
        while not is_last:
            is_last = self._wait(pause)
            pause = self.turn(is_last=is_last)
        self._ask(self.sink.close, "failed to close")

    def _wait(self, pause: float | None) -> bool:
        """Wait until points are due, or `pause` seconds after a failure; return whether it is the last delivery."""
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
