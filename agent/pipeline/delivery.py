"""One thread a sink: spool -> batches -> write -> settle."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NoReturn

from agent.datapoint import HIDDEN, Datapoint, Dimensions
from agent.errors import BadBatch, Refused, Retryable, SinkClosed, text_of
from agent.logs.throttled import ThrottledLogger
from agent.sink import Limits, Sink
from agent.spool.queue import Spool

log = logging.getLogger(__name__)

DICE: Final = random.Random()  # noqa: S311  # not a secret
MOST_REASONS: Final = 50
"""Reasons of rejection counted apart; the rest is counted as `other`."""
REMEMBER: Final = 1.0
"""Seconds between two askings of a sink for its state while there is much to deliver: a kill costs no more of it."""
CATCH_UP: Final = 0.5
"""Seconds between two looks at an identity that is not known yet."""
HANG: Final = 120.0
"""Seconds without a sign of life after which a sink counts as hanging: five requests of 15 s, and new credentials."""
MOST_AFTER: Final = 900.0
"""Seconds that the far side may ask us to wait."""
SUSPECT: Final = 3
"""Failures in a row by a bug after which the points at fault are looked for."""
DOUBTS: Final = 100
"""Points of one pass that may fail alone before some other point is taken; then the pass ends, and nothing is lost."""


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
    A point that fails alone is doubted. It ends only if it fails again after others were taken: a sink that fails on
    every point loses none. Of those others one batch doubles, too, if the process ends before the doubts do.
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
        refused_cap: float = 60.0,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Send every `flush` seconds, `offset` (0 to 1) of a period after the full one; 0 is at once.

        `common` gives the dimensions of this machine, or None while they are not known: nothing is sent then.
        Back-off is a random share of `base` doubling up to `cap` seconds; for what was refused, the `refused_` ones.
        """
        self.name, self.sink, self.spool = name, sink, spool
        self._common, self._rename, self._on_closed = common, rename, on_closed
        self._flush, self._offset = flush, offset
        self._backoff, self._refused_backoff = (base, cap), (refused_base, refused_cap)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._sayer, self._watcher = ThrottledLogger(log, f"sink {name}"), ThrottledLogger(log, f"sink {name}")
        self._dressed: dict[Dimensions, Dimensions] = {}
        self._under: Dimensions | None = None
        self.counts: Counter[str] = Counter()
        """`retried`, `refused`, `bug`: attempts that failed so."""
        self._failures: Counter[str] = Counter()  # the same, since something was delivered
        self._doubts: deque[Datapoint] = deque()
        self._taken = False  # whether something of the batch at hand was taken
        self._ahead: Counter[str] = Counter()  # how points ended that were taken while earlier ones are in doubt
        self._vain = 0  # passes in a row that ended with doubts
        self._busy: float | None = None  # since when the sink is at work (monotonic seconds)
        self.seconds = 0.0
        """How long the last write took."""
        self.delivered: float | None = None
        """When something was last delivered (monotonic seconds), or None."""
        self.last_error: str | None = None
        """What the last failed attempt said, or None."""
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

    # -- the clock's side ---------------------------------------------------------------------------------------

    @property
    def stuck(self) -> str | None:
        """Why nothing comes of this sink's thread, if so."""
        if self._thread.ident and not self._thread.is_alive() and not self._stop.is_set():
            return "its thread has ended; restart the agent"
        begun = self._busy
        seconds = 0.0 if begun is None else time.monotonic() - begun
        return f"hangs: no answer for {seconds:.0f} s" if seconds > HANG else None

    def watch(self) -> None:
        """Say once that the sink's thread hangs or has ended, and that it answers again."""
        if stuck := self.stuck:
            self._watcher.say(logging.ERROR, "stuck", f"{stuck}; {self._kept()}")
        else:
            self._watcher.over("stuck", "answers again")

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        is_open, last_try, due = False, False, 0.0
        delay: float | None = None
        while not last_try:
            self._busy = None
            last_try = self._wait(delay)
            self._busy, delay = time.monotonic(), None
            try:
                if not is_open:
                    self._recall()
                    self.sink.open()
                    self.spool.bind(self.sink.destination())
                    is_open = True
                while self._deliver_some():
                    self._failures.clear()
                    self.delivered = time.monotonic()
                    if time.monotonic() >= due:
                        self._remember()
                        due = time.monotonic() + REMEMBER
                self._well()
            except SinkClosed as gone:
                log.info("sink %s: %s", self.name, gone)
                self._on_closed()
                self._busy = None
                self._end_all("reader gone")
                break
            except BaseException as problem:  # a plugin's SystemExit, too
                if not self._ahead:
                    self.spool.release()
                delay = self._delay(problem)
            self._remember()
        self._close()

    def _recall(self) -> None:
        """Give the sink what it must know of the time before a restart."""
        if state := self.spool.recall():
            self.sink.recall(state)

    def _remember(self) -> None:
        """Keep what the sink must know after a restart."""
        try:
            state = self.sink.state()
        except BaseException as bug:
            self._sayer.say(
                logging.ERROR, f"state {type(bug)}", f"cannot tell its state: {text_of(bug)}", traceback=True
            )
            return
        if state is not None:
            self.spool.remember(state)

    def _wait(self, delay: float | None) -> bool:
        """Wait until something may be sent, `delay` seconds after a failure; tell whether this is the last time."""
        while not self._stop.is_set():
            if not self.spool.is_due:
                self._wake.wait()
                self._wake.clear()
            elif self._common() is None:
                self._stop.wait(CATCH_UP)
            else:
                return self._stop.wait(self._until_flush() if delay is None else delay)
        return self._stop.is_set()

    def _until_flush(self) -> float:
        return (self._offset * self._flush - time.monotonic()) % self._flush if self._flush else 0.0

    def _deliver_some(self) -> bool:
        """Deliver the next batches; tell whether there may be more."""
        if self._ahead:
            self._judge()
            return True
        known = self._common()
        doubts = 8 * (self._vain & -self._vain) or DOUBTS  # at every 2nd failed pass 16, at every 4th 32, and so on
        most = self.sink.limits.max_points
        points, under = self.spool.take(min(max(most, 2 * doubts), 16 * most) if self._vain else most)
        if not points or (under is None and known is None):
            self.spool.release()
            return False
        points = self._dress(points, known if under is None else under)
        self._doubts.clear()
        for batch in self._cut(points):
            self._taken = False
            self._deliver(batch, doubts)
        if self._doubts:
            self._judge()
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
            n = first_batch(points, self.sink.limits, self._size)
            yield points[:n]
            points = points[n:]

    def _size(self, point: Datapoint) -> int:
        """Return the bytes of a point; one whose size the sink cannot tell fills a request alone."""
        try:
            return self.sink.size(point)
        except Exception as bug:
            text = f"cannot tell the size of {point.metric.name}: {text_of(bug)}"
            self._sayer.say(logging.ERROR, f"size {type(bug)}", text, traceback=True)
            assert self.sink.limits.max_bytes is not None
            return self.sink.limits.max_bytes

    def _write(self, batch: list[Datapoint]) -> Counter[str]:
        """Write one batch; return how its points ended, as entries of the ledger."""
        self._busy = begun = time.monotonic()
        try:
            rejected = self.sink.write(batch)
        finally:
            self.seconds = time.monotonic() - begun
        try:
            rejected = rejected[: len(batch)]
            reasons = [r.reason.encode(errors="replace").decode() for r in rejected]
            example = _shown(rejected[0].point) if rejected else ""
        except Exception as bug:
            self.counts["bug"] += 1
            text = f"does not return a list of Rejected, so its points count as sent: {text_of(bug)}"
            self._sayer.say(logging.ERROR, "answer", text, traceback=True)
            reasons, example = [], ""
        change = Counter(self._reject(reasons, example))
        change["sent"] = len(batch) - len(reasons)
        return change

    def _deliver(self, batch: list[Datapoint], doubts: int) -> None:
        """Write one batch and settle it; halve it where some point is at fault and nobody says which."""
        try:
            change = self._write(batch)
        except (Retryable, Refused, SinkClosed):
            raise
        except BaseException as problem:
            if not self._is_of_the_data(problem):
                raise
            if half := len(batch) // 2:
                self._deliver(batch[:half], doubts)
                self._deliver(batch[half:], doubts)
                return
            self._doubts += batch
            if len(self._doubts) >= doubts:
                self._give_up(problem)
            return
        self._taken, self._vain, self._ahead = True, 0, change
        self._judge()

    def _is_of_the_data(self, problem: BaseException) -> bool:
        return isinstance(problem, BadBatch) or self._failures["bug"] >= SUSPECT

    def _judge(self) -> None:
        """Try each doubted point once more; if others were taken, end those that fail again, then settle those."""
        aside: list[Datapoint] = []
        why = ""
        try:
            while self._doubts:
                point = self._doubts[0]
                try:
                    change = self._write([point])
                except (Retryable, Refused, SinkClosed):
                    raise
                except BaseException as problem:
                    if not self._is_of_the_data(problem):
                        raise
                    if not self._taken:
                        self._give_up(problem)
                    if isinstance(problem, BadBatch):
                        change = Counter(self._reject(["refused by the service"], f"{problem}: {_shown(point)}"))
                    else:
                        why = f"{type(problem).__name__}: {text_of(problem)}"
                        aside.append(point)
                        change = Counter({"dropped:set aside": 1})
                self.spool.acknowledge(change)
                self._doubts.popleft()
        finally:
            if aside:
                self.spool.set_aside(aside, why)
                text = f"{len(aside)} points are set aside: the sink fails on each of them, not on others: {why}"
                self._sayer.say(logging.ERROR, f"aside {why}", text)
        self.spool.acknowledge(self._ahead)
        self._ahead = Counter()

    def _give_up(self, problem: BaseException) -> NoReturn:
        """End a pass in which points fail and no other was taken after them."""
        self._vain += 1
        if isinstance(problem, BadBatch):
            raise Refused(f"every point is refused, so none is given up: {problem}") from problem
        raise problem

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

    def _kept(self) -> str:
        return f"{self.spool.ledger.spooled} points are kept"

    def _delay(self, problem: BaseException) -> float:
        """Say what failed; return the seconds to wait: what the far side named, or full jitter."""
        text = text_of(problem)
        kind = "retried" if isinstance(problem, Retryable) else "refused" if isinstance(problem, Refused) else "bug"
        self.counts[kind] += 1
        self._failures[kind] += 1
        self.last_error = text
        if isinstance(problem, Retryable):
            self._sayer.say(logging.WARNING, "retry", f"{text}; {self._kept()} and tried again")
            if problem.after is not None and problem.after > 0:
                return min(problem.after, MOST_AFTER)
        elif isinstance(problem, Refused):
            self.refused = text
            self._sayer.say(logging.ERROR, f"refused {text}", f"refused: {text}; {self._kept()}")
        else:
            text = f"{type(problem).__name__}: {text}"
            self.refused = f"it fails by a bug: {text}"
            text = f"failed by a bug: {text}; {self._kept()} and tried again"
            self._sayer.say(logging.ERROR, f"bug {type(problem)}", text, traceback=True)
        base, cap = self._refused_backoff if kind == "refused" else self._backoff
        return DICE.uniform(0, min(cap, base * 2.0 ** min(self._failures[kind] - 1, 30)))

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
                    self.spool.acknowledge({f"dropped:{reason}": len(points)})
            if not stopping:
                self._wake.wait()
                self._wake.clear()

    def _close(self) -> None:
        try:
            self.sink.close()
        except BaseException as bug:
            self._sayer.say(logging.ERROR, f"close {type(bug)}", f"failed to close: {text_of(bug)}", traceback=True)
