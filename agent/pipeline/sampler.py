"""A thread for each collector that has something to read: a driver call that hangs, hangs there."""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from agent.collector import Collector
from agent.datapoint import Datapoint, Level
from agent.errors import InputEnded, PartlyCollected, Unavailable, text_of
from agent.logs.throttled import ThrottledLogger
from agent.pipeline.validation import Validation

log = logging.getLogger(__name__)

RETRY: Final = 300.0
"""Seconds after which a collector that was not available is opened again."""


class Reading(NamedTuple):
    """What one call of `collect` gave."""

    at: int
    points: list[Datapoint]


class Sampler:
    """
    Runs one collector: never twice at once, and from `open` to `close` on one thread, which is a daemon.

    Long-lived, because psutil keeps its baselines by thread. A reading that does not come back costs this thread
    and nothing else: the collector is skipped and counted until it returns. A collector that finds nothing to read is
    closed, and its thread ends; another one opens it at the next try.
    """

    def __init__(
        self,
        name: str,
        collector: Collector,
        level: Level,
        readings: queue.SimpleQueue[Reading],
        *,
        retry: float = RETRY,
        learn: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        """
        Put readings of at most `level` on `readings`; try what was not available again after `retry` seconds.

        `learn` is told, on this sampler's thread, what readings say of this machine's identity.
        """
        self.name, self.collector, self._readings = name, collector, readings
        collector.level = level
        self._retry, self._retry_at = retry, -math.inf
        self._due: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._busy = self._open = self._is_parked = False
        self._logger = ThrottledLogger(log, f"collector {name}")
        self.validation = Validation(level, self._logger)
        self._learn = learn
        self._told: Mapping[str, str] = {}
        self.ended: InputEnded | None = None
        """How the collector's input ended for good, if it has."""
        self.unavailable: str | None = None
        """Why there is nothing to read, or None."""
        self.ok: bool | None = None
        """Whether the last reading succeeded in time; None before the first, and where there is nothing to read."""
        self.trouble: str | None = None
        """What went wrong in the last reading, or None."""
        self.earlier: str | None = None
        """The same of the reading before."""
        self.yielded = 0
        """Points of the last reading."""
        self.seconds = 0.0
        """How long the last reading took."""
        self.failed = self.partial = self.skipped = 0
        self._thread = threading.Thread()

    def start(self) -> None:
        """Start the thread."""
        self._is_parked = False
        self._thread = threading.Thread(target=self._run, name=f"collect-{self.name}", daemon=True)
        self._thread.start()

    def request(self, at: int) -> bool:
        """Ask for a reading stamped `at`; tell whether one will come. Called by the clock's thread."""
        if self.ended:
            return False
        if self._busy:
            self.skipped += 1
            self.ok = False
            self._logger.log(logging.WARNING, "busy", "the last reading has not come back; skipped until it does")
            return False
        if not self._open and time.monotonic() < self._retry_at:
            return False
        self._busy = True
        self._due.put(at)
        if self._is_parked:
            self.start()
        return True

    def stop(self) -> None:
        """End the thread after the reading in progress, if that ever ends."""
        self._due.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the thread to have closed the collector."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while (at := self._due.get()) is not None:
            begun = time.monotonic()
            points: list[Datapoint] = []
            self.earlier, self.trouble = self.trouble, None
            self.validation.problems.clear()
            try:
                self._read(at, points)
            except BaseException as bug:
                self.ok = False
                self.failed += 1
                self.trouble = f"{type(bug).__name__}: {text_of(bug)}"
                is_bug = not isinstance(bug, OSError)  # that is the host's trouble
                self._logger.log(logging.ERROR, type(bug).__name__, f"failed: {text_of(bug)}", traceback=is_bug)
            self.trouble = "; ".join(filter(None, (self.trouble, *self.validation.problems.values()))) or None
            self.seconds, self.yielded = time.monotonic() - begun, len(points)
            if is_parked := self.unavailable is not None and not self._open:
                self._close()
                self._is_parked = True
            self._busy = False  # from here on, where this thread is to end, the collector is another thread's
            self._readings.put(Reading(at, points))
            if is_parked:
                return
        self._close()

    def _read(self, at: int, points: list[Datapoint]) -> None:
        """Read once; whatever else is raised is a bug of the collector, of which nothing comes further than here."""
        try:
            if not self._open:
                self._retry_at = time.monotonic() + self._retry
                self.collector.open()
                self._open, self.unavailable = True, None
                self._logger.resolved("unavailable", "available now")
            self.validation.take(self.collector.collect(at), at, points)
            self.ok = True
            self._logger.resolved("busy", "readings come back again")
        except InputEnded as end:
            self._partly(end.problems)
            self.ok, self.ended = True, end
        except Unavailable as reason:
            self._open, self.unavailable, self.ok = False, str(reason), None
            self._logger.log(logging.INFO, "unavailable", f"nothing to read: {reason}")
        except PartlyCollected as partly:
            self._partly(partly.problems)
            self.ok = True
        if self._open and (words := self.collector.identity()) is not self._told:
            self._told = words
            self._learn(words)

    def _partly(self, problems: Sequence[str]) -> None:
        self.partial += len(problems)
        self.trouble = "; ".join(problems) or None
        for problem in problems:
            self._logger.log(logging.WARNING, problem, problem)

    def _close(self) -> None:
        self._open = False
        try:
            self.collector.close()
        except BaseException as bug:
            self._logger.log(
                logging.ERROR, f"close {type(bug).__name__}", f"failed to close: {text_of(bug)}", traceback=True
            )
