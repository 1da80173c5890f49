"""Writes points in batches, and finds the points at fault if the answer does not name them."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NoReturn

from chipwatch.base.redaction import without_secrets
from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions
from chipwatch.contract.errors import BadBatch, Refused, Retryable, SinkClosed, text_of
from chipwatch.contract.sink import Limits, Sink
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.validation import ForkGuard

MAX_REASONS: Final = 50
"""Reasons of rejection that are counted separately; the rest is counted as `other`."""
SUSPECT: Final = 3
"""Failures in a row by a bug after which the points at fault are searched."""
MAX_DOUBTED: Final = 100
"""Points of one pass that may fail alone before another point is taken; then the pass ends without a loss."""


def first_batch(points: Sequence[Datapoint], limits: Limits, size: Callable[[Datapoint], int]) -> int:
    """Return how many of the first `points` one request may hold; at least 1."""
    if limits.max_bytes is None and not limits.one_per_series:
        return min(len(points), limits.max_points)
    bytes_left = limits.max_bytes
    seen: set[tuple[str, Dimensions]] = set()
    for n, point in enumerate(islice(points, limits.max_points)):
        if bytes_left is not None:
            bytes_left -= size(point)
            if bytes_left < 0:
                return max(1, n)
        if limits.one_per_series:
            series = point.metric.name, point.dims
            if series in seen:
                return n
            seen.add(series)
    return min(len(points), limits.max_points)


def _shown(point: Datapoint) -> str:
    dims = {key: value[:100] for key, value in point.dims.items() if not key.startswith(HIDDEN)}
    return f"{point.metric.name} {dims}"


class BatchWriter:
    """
    Writes points in batches and acknowledges each batch in the spool before it writes the next.

    A batch that fails for its data is halved. A point that fails alone is doubted, and is given up only if it fails
    again after others were taken: a sink that fails on every point loses none. One batch of those others is sent twice
    if the process ends before the doubted points are settled. Used by one thread.
    """

    def __init__(
        self,
        sink: Sink,
        spool: Spool,
        logger: ThrottledLogger,
        failures: Counter[str],
        state: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """
        Take counts of attempts that failed since a delivery, by kind.

        `state` returns what the sink must know after a restart, None if unchanged.
        """
        self._sink, self._spool, self._logger, self._failures, self._state = sink, spool, logger, failures, state
        self.guard = ForkGuard(logger)
        self._doubted: deque[Datapoint] = deque()
        self._is_taken = False  # whether a part of this batch was taken
        self._ahead: Counter[str] = Counter()  # outcomes of points taken while earlier ones are doubted
        self._failed_passes = 0  # in a row
        self.busy: float | None = None
        """Start of the call that the sink works on (monotonic seconds), or None."""
        self.seconds = 0.0
        """Seconds that the last write took."""
        self.rejected = ""
        """Why points were last rejected, with an example."""

    @property
    def is_halfway(self) -> bool:
        """True if points were taken that cannot be acknowledged before earlier ones."""
        return bool(self._ahead)

    @property
    def most(self) -> int:
        """Points that the next pass should take from the spool."""
        most = self._sink.limits.max_points
        return min(max(most, 2 * self._most_doubted()), 16 * most) if self._failed_passes else most

    def _most_doubted(self) -> int:
        """Return 100; after every 2nd failed pass in a row 16, after every 4th 32, and so on."""
        return 8 * (self._failed_passes & -self._failed_passes) or MAX_DOUBTED

    def write_all(self, points: list[Datapoint]) -> None:
        """Write and acknowledge `points`; raise what the sink raises if the rest must be sent again."""
        self._doubted.clear()
        while points:
            n = first_batch(points, self._sink.limits, self._size)
            self._is_taken = False
            self._deliver(points if n == len(points) else points[:n])
            points = points[n:]
        if self._doubted:
            self.settle()

    def _deliver(self, batch: list[Datapoint]) -> None:
        """Write one batch and acknowledge it; halve it if a point is at fault and the answer does not say which."""
        change = self._try(batch)
        if isinstance(change, Counter):
            self._is_taken, self._failed_passes, self._ahead = True, 0, change
            self.settle()
        elif half := len(batch) // 2:
            self._deliver(batch[:half])
            self._deliver(batch[half:])
        else:
            self._doubted += batch
            if len(self._doubted) >= self._most_doubted():
                self._fail_pass(change)

    def settle(self) -> None:
        """Try each doubted point again; give up those that fail again if others were taken; acknowledge all."""
        while self._doubted:
            point = self._doubted[0]
            change = self._try([point])
            if not isinstance(change, Counter):
                if not self._is_taken:
                    self._fail_pass(change)
                change = self._give_up(point, change)
            self._acknowledge(change)
            self._doubted.popleft()
        if self._ahead:
            change, self._ahead = self._ahead, Counter()
            self._acknowledge(change)

    def _try(self, batch: list[Datapoint]) -> Counter[str] | BaseException:
        """Write one batch; return the outcomes, or the problem if a point may be at fault; raise any other problem."""
        try:
            return self._write(batch)
        except (Retryable, Refused, SinkClosed):
            raise
        except BaseException as problem:
            if isinstance(problem, BadBatch) or self._failures["bug"] >= SUSPECT:
                return problem
            raise

    def _write(self, batch: list[Datapoint]) -> Counter[str]:
        """Write one batch; return the outcomes of its points, as entries of the ledger."""
        self.busy = begun = time.monotonic()
        try:
            rejected = self.guard.call(partial(self._sink.write, batch))
        finally:
            self.seconds = time.monotonic() - begun
        try:
            rejected = rejected[: len(batch)]
            words = {r.reason: without_secrets(r.reason.encode(errors="replace").decode()) for r in rejected}
            reasons = [words[r.reason] for r in rejected]
            example = _shown(rejected[0].point) if rejected else ""
        except Exception as bug:
            text = f"does not return a list of Rejected, so its points count as sent: {text_of(bug)}"
            self._logger.log(logging.ERROR, "answer", text, traceback=True)
            reasons, example = [], ""
        change = Counter(self._reject(reasons, example))
        change["sent"] = len(batch) - len(reasons)
        return change

    def _acknowledge(self, change: Counter[str]) -> None:
        """End points, with the sink's state unless that knows points that cannot be acknowledged yet."""
        self._spool.acknowledge(change, None if self._ahead else self._state())

    def _give_up(self, point: Datapoint, problem: BaseException) -> Counter[str]:
        """Return the outcome of a point that fails alone, and not for its neighbours."""
        if isinstance(problem, BadBatch):
            return Counter(self._reject(["refused by the service"], f"{problem}: {_shown(point)}"))
        why = f"{type(problem).__name__}: {text_of(problem)}"
        self._spool.set_aside([point], without_secrets(why))
        text = f"1 point is set aside, and perhaps more: the sink fails on each of them, not on others: {why}"
        self._logger.log(logging.ERROR, f"aside {why}", text)
        return Counter({"dropped:set aside": 1})

    def _fail_pass(self, problem: BaseException) -> NoReturn:
        """End a pass in which points fail and no later one was taken; raise Refused or `problem`."""
        self._failed_passes += 1
        if isinstance(problem, BadBatch):
            raise Refused(f"the sink rejects every point, so all are kept: {problem}") from problem
        raise problem

    def _size(self, point: Datapoint) -> int:
        """Return the bytes of a point; if the sink fails, the bytes of a whole request."""
        try:
            return self._sink.size(point)
        except Exception as bug:
            text = f"cannot tell the size of {point.metric.name}: {text_of(bug)}"
            self._logger.log(logging.ERROR, f"size {type(bug)}", text, traceback=True)
            assert self._sink.limits.max_bytes is not None
            return self._sink.limits.max_bytes

    def _reject(self, reasons: Sequence[str], example: str) -> list[str]:
        """Log each reason once; return the entries of the ledger."""
        counted_reasons = set(self._spool.ledger.rejected)
        entries = []
        for reason in reasons:
            counted = reason if reason in counted_reasons or len(counted_reasons) < MAX_REASONS else "other"
            counted_reasons.add(counted)
            self.rejected = f"{counted} (for example {example})"
            self._logger.log(logging.ERROR, f"rejected {counted}", f"points are rejected: {self.rejected}")
            entries.append(f"rejected:{counted}")
        return entries
