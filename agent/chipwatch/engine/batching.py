"""Writes points to a sink in batches, and finds the points at fault if the service's answer does not name them."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
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
"""Different reasons of rejection that are counted; further ones are counted as `other`."""
SUSPECT: Final = 3
"""Bugs in a row after which the agent assumes that a point causes them, and searches for it."""
MAX_DOUBTED: Final = 100
"""Single points in a row that may fail before the search for the point at fault ends, with all points kept."""


def first_batch(points: Sequence[Datapoint], limits: Limits, size: Callable[[Datapoint], int]) -> int:
    """Return how many of the first `points` fit into one request; at least 1."""
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
    Writes points in batches, and acknowledges each batch in the spool before it writes the next.

    A batch that fails for its data is halved, down to single points. A point that fails alone is doubted. It is given
    up only if it fails again after the sink took other points: so a sink that fails on every point loses none. If the
    process ends before doubted points are settled, one batch of the others is sent twice. Used by one thread.
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
        Write points of `spool` to `sink`.

        `failures` are the attempts that failed since the last delivery, by kind. `state` returns the state that the
        sink wants to keep over a restart, or None if it has not changed.
        """
        self._sink, self._spool, self._logger, self._failures, self._state = sink, spool, logger, failures, state
        self.guard = ForkGuard(logger)
        self._doubted: deque[Datapoint] = deque()
        self._is_taken = False  # whether the sink took a part of this batch
        self._ahead: dict[str, int] = {}  # outcomes of points that the sink took, while earlier points are doubted
        self._failed_passes = 0  # passes in a row in which the sink took no point
        self.busy: float | None = None
        """Start of the call of the sink that has not returned (monotonic seconds), or None."""
        self.seconds = 0.0
        """Seconds that the last `write` took."""
        self.rejected = ""
        """Reason why points were last rejected, with an example."""

    @property
    def is_halfway(self) -> bool:
        """True if the sink took points that cannot be acknowledged yet, since earlier ones are doubted."""
        return bool(self._ahead)

    @property
    def most(self) -> int:
        """Number of points to take from the spool for the next pass."""
        most = self._sink.limits.max_points
        return min(max(most, 2 * self._most_doubted()), 16 * most) if self._failed_passes else most

    def _most_doubted(self) -> int:
        """Return how many points may be doubted: 100; 16 after every 2nd failed pass in a row, 32 after every 4th."""
        return 8 * (self._failed_passes & -self._failed_passes) or MAX_DOUBTED

    def write_all(self, points: list[Datapoint]) -> None:
        """Write and acknowledge `points`; raise the sink's exception if the rest must be sent again."""
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
        if isinstance(change, dict):
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
        """Try each doubted point again, and acknowledge all; give up one that fails again, if the sink took others."""
        while self._doubted:
            point = self._doubted[0]
            change = self._try([point])
            if not isinstance(change, dict):
                if not self._is_taken:
                    self._fail_pass(change)
                change = self._give_up(point, change)
            self._acknowledge(change)
            self._doubted.popleft()
        if self._ahead:
            change, self._ahead = self._ahead, {}
            self._acknowledge(change)

    def _try(self, batch: list[Datapoint]) -> dict[str, int] | BaseException:
        """Write one batch; return the outcomes, or the exception if a point may be at fault; raise any other one."""
        try:
            return self.write(batch)
        except (Retryable, Refused, SinkClosed):
            raise
        except BaseException as problem:
            if isinstance(problem, BadBatch) or self._failures["bug"] >= SUSPECT:
                return problem
            raise

    def write(self, batch: list[Datapoint]) -> dict[str, int]:
        """Write one batch; return the number of points by outcome (see `Ledger.add`), or raise what the sink raises."""
        self.busy = begun = time.monotonic()
        try:
            rejected = self.guard.call(self._sink.write, batch)
        finally:
            self.seconds = time.monotonic() - begun
        if rejected == []:
            return {"sent": len(batch)}
        try:
            rejected = rejected[: len(batch)]
            words = {r.reason: without_secrets(r.reason.encode(errors="replace").decode()) for r in rejected}
            reasons = [words[r.reason] for r in rejected]
            example = _shown(rejected[0].point) if rejected else ""
        except Exception as bug:
            text = f"does not return a list of Rejected, so its points count as sent: {text_of(bug)}"
            self._logger.log(logging.ERROR, "answer", text, traceback=True)
            reasons, example = [], ""
        return {**Counter(self._reject(reasons, example)), "sent": len(batch) - len(reasons)}

    def _acknowledge(self, change: dict[str, int]) -> None:
        """Acknowledge points, with the sink's state unless it covers points that cannot be acknowledged yet."""
        self._spool.acknowledge(change, None if self._ahead else self._state())

    def _give_up(self, point: Datapoint, problem: BaseException) -> dict[str, int]:
        """Give up a point that fails alone; return its outcome."""
        if isinstance(problem, BadBatch):
            return Counter(self._reject(["refused by the service"], f"{problem}: {_shown(point)}"))
        why = f"{type(problem).__name__}: {text_of(problem)}"
        self._spool.set_aside([point], without_secrets(why))
        text = f"1 point is set aside, and perhaps more: the sink fails on each of them, not on others: {why}"
        self._logger.log(logging.ERROR, f"aside {why}", text)
        return {"dropped:set aside": 1}

    def _fail_pass(self, problem: BaseException) -> NoReturn:
        """End a pass in which the sink took no point; raise Refused or `problem`, so that all points are kept."""
        self._failed_passes += 1
        if isinstance(problem, BadBatch):
            raise Refused(f"the sink rejects every point, so all are kept: {problem}") from problem
        raise problem

    def _size(self, point: Datapoint) -> int:
        """Return the bytes of a point; if the sink cannot tell them, return the limit of a request."""
        try:
            return self._sink.size(point)
        except Exception as bug:
            text = f"cannot tell the size of {point.metric.name}: {text_of(bug)}"
            self._logger.log(logging.ERROR, f"size {type(bug)}", text, traceback=True)
            assert self._sink.limits.max_bytes is not None
            return self._sink.limits.max_bytes

    def _reject(self, reasons: Sequence[str], example: str) -> list[str]:
        """Log each reason of rejected points once; return an entry of the ledger for each point."""
        counted_reasons = set(self._spool.ledger.rejected)
        entries = []
        for reason in reasons:
            counted = reason if reason in counted_reasons or len(counted_reasons) < MAX_REASONS else "other"
            counted_reasons.add(counted)
            self.rejected = f"{counted} (for example {example})"
            self._logger.log(logging.ERROR, f"rejected {counted}", f"points are rejected: {self.rejected}")
            entries.append(f"rejected:{counted}")
        return entries
