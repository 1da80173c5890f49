"""Writes points in batches, and finds the points at fault if the answer does not name them."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NoReturn

from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions
from chipwatch.contract.errors import BadBatch, Refused, Retryable, SinkClosed, text_of
from chipwatch.contract.extensions import IsSized
from chipwatch.contract.redaction import without_secrets
from chipwatch.contract.sink import Limits, Sink
from chipwatch.contract.text import count
from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.pipeline.validation import ForkGuard
from chipwatch.spool.queue import Spool

MAX_REASONS: Final = 50
"""Reasons of rejection that are counted separately; the rest is counted as `other`."""
SUSPECT: Final = 3
"""Failures in a row by a bug after which the points at fault are searched."""
REMEMBERED: Final = 3600.0
"""Seconds for which a series whose point was refused goes in requests apart from the others."""
MAX_REMEMBERED: Final = 10_000
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
            series = _series(point)
            if series in seen:
                return n
            seen.add(series)
    return min(len(points), limits.max_points)


def _series(point: Datapoint) -> tuple[str, Dimensions]:
    return point.metric.name, point.dims


def _shown(point: Datapoint) -> str:
    dims = {key: value[:100] for key, value in point.dims.items() if not key.startswith(HIDDEN)}
    return f"{point.metric.name} {dims}"


class BatchWriter:
    """
    Writes points in batches and acknowledges each batch in the spool before it writes the next.

    A batch that fails for its data is halved. A point that fails alone is doubted, and is given up only if it fails
    again after others were taken: a sink that fails on every point loses none. One batch of those others is sent twice
    if the process ends before the doubted points are settled. Used by one thread.

    For an hour the series of a refused point is not searched again: after the other points are taken, the points of
    each such metric follow in one request. If that is taken, they are forgotten; if not, its points are rejected.
    """

    def __init__(
        self,
        sink: Sink,
        spool: Spool,
        logger: ThrottledLogger,
        counts: Counter[str],
        failures: Counter[str],
        *,
        state: Callable[[], bytes | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Take counts of failed attempts by kind: all of them, which are added to, and those since a delivery.

        `state` returns what the sink must know after a restart, None if unchanged; `clock` monotonic seconds.
        """
        self._state = state
        self._clock = clock
        self._refused: dict[tuple[str, Dimensions], float] = {}  # series -> until when it is remembered
        self._sink, self._spool, self._logger = sink, spool, logger
        self._sized = sink if isinstance(sink, IsSized) else None  # asked once: isinstance takes microseconds
        self.guard = ForkGuard(logger)
        self._counts, self._failures = counts, failures
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
        most_doubted = self._most_doubted()
        self._doubted.clear()
        for batch in self._cut(points):
            self._is_taken = False
            if not (self._refused and self._write_others(batch)):
                self._deliver(batch, most_doubted)
        if self._doubted:
            self.end_doubted()

    def _cut(self, points: list[Datapoint]) -> Iterator[list[Datapoint]]:
        while points:
            n = first_batch(points, self._sink.limits, self._size)
            yield points if n == len(points) else points[:n]
            points = points[n:]

    def _size(self, point: Datapoint) -> int:
        """Return the bytes of a point; if the sink fails, the bytes of a whole request."""
        try:
            assert self._sized, "it has limits.max_bytes, and no method size"
            return self._sized.size(point)
        except Exception as bug:
            text = f"cannot tell the size of {point.metric.name}: {text_of(bug)}"
            self._logger.log(logging.ERROR, f"size {type(bug)}", text, traceback=True)
            assert self._sink.limits.max_bytes is not None
            return self._sink.limits.max_bytes

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
            self._counts["bug"] += 1
            text = f"does not return a list of Rejected, so its points count as sent: {text_of(bug)}"
            self._logger.log(logging.ERROR, "answer", text, traceback=True)
            reasons, example = [], ""
        if self._refused:
            for point in batch:
                self._refused.pop(_series(point), None)
        change = Counter(self._reject(reasons, example))
        change["sent"] = len(batch) - len(reasons)
        return change

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

    def _deliver(self, batch: list[Datapoint], most_doubted: int) -> None:
        """Write one batch and acknowledge it; halve it if a point is at fault and the answer does not say which."""
        change = self._try(batch)
        if isinstance(change, Counter):
            self._settle(change)
        elif half := len(batch) // 2:
            self._deliver(batch[:half], most_doubted)
            self._deliver(batch[half:], most_doubted)
        else:
            self._doubted += batch
            if len(self._doubted) >= most_doubted:
                self._fail_pass(change)

    def _write_others(self, batch: list[Datapoint]) -> bool:
        """Write the points of a batch whose series were not refused, then the rest; return False if that failed."""
        now = self._clock()
        self._refused = {series: until for series, until in self._refused.items() if until > now}
        refused = [point for point in batch if _series(point) in self._refused]
        others = [point for point in batch if _series(point) not in self._refused]
        if not refused or not others:
            return False
        change = self._try(others)
        if not isinstance(change, Counter):
            return False
        self._doubted += sorted(refused, key=lambda point: point.metric.name)
        self._settle(change)
        return True

    def _settle(self, change: Counter[str]) -> None:
        """Note that points were taken; end those that are doubted, then acknowledge all of them in order."""
        self._is_taken, self._failed_passes, self._ahead = True, 0, change
        self.end_doubted()

    def end_doubted(self) -> None:
        """Try each doubted point again; give up those that fail again if others were taken; acknowledge all."""
        aside: list[Datapoint] = []
        why = ""
        try:
            while self._doubted:
                group = self._first_doubted()
                change = self._try(group)
                if not isinstance(change, Counter):
                    if not self._is_taken:
                        self._fail_pass(change)
                    if isinstance(change, BadBatch):
                        reasons = ["refused by the service"] * len(group)
                        self._remember(group)
                        change = Counter(self._reject(reasons, f"{change}: {_shown(group[0])}"))
                    else:
                        why = f"{type(change).__name__}: {text_of(change)}"
                        aside += group
                        change = Counter({"dropped:set aside": len(group)})
                self._acknowledge(change)
                for _ in group:
                    self._doubted.popleft()
        finally:
            if aside:
                self._spool.set_aside(aside, without_secrets(why))
                text = f"{count(len(aside), 'are')} set aside: the sink fails on each of them, not on others: {why}"
                self._logger.log(logging.ERROR, f"aside {why}", text)
        ahead, self._ahead = self._ahead, Counter()
        self._acknowledge(ahead)

    def _acknowledge(self, change: Counter[str]) -> None:
        """End points, with the sink's state unless that knows points that cannot be acknowledged yet."""
        self._spool.acknowledge(change, None if self._ahead else self._state())

    def _first_doubted(self) -> list[Datapoint]:
        """Return the first doubted point; if its series was refused before, also all such points of its metric."""
        first, group = self._doubted[0], dict[tuple[str, Dimensions], Datapoint]()
        for point in self._doubted:
            series = _series(point)
            if point.metric.name != first.metric.name or series not in self._refused:
                break
            if series in group:  # one of them may be refused for its time
                return [first]
            group[series] = point
        points = [*group.values()] or [first]
        return points[: first_batch(points, self._sink.limits, self._size)]

    def _remember(self, points: Sequence[Datapoint]) -> None:
        until = self._clock() + REMEMBERED
        for point in points:
            if len(self._refused) < MAX_REMEMBERED:
                self._refused.setdefault(_series(point), until)

    def _fail_pass(self, problem: BaseException) -> NoReturn:
        """End a pass in which points fail and no later one was taken; raise Refused or `problem`."""
        self._failed_passes += 1
        if isinstance(problem, BadBatch):
            raise Refused(f"the sink rejects every point, so all are kept: {problem}") from problem
        raise problem

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
