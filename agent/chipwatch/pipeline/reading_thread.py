"""Threads that read collectors, one for all that read only the kernel's files; what threads wait for."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from chipwatch.contract.datapoint import Datapoint
from chipwatch.logs.throttled import ThrottledLogger

if TYPE_CHECKING:
    from chipwatch.pipeline.sampler import Sampler

log = logging.getLogger(__name__)
T = TypeVar("T")


def _drain(items: deque[T]) -> Iterator[T]:
    """Yield and remove the items that are there; another thread may add or remove some meanwhile."""
    with suppress(IndexError):
        while True:
            yield items.popleft()


class Wakeup:
    """
    A wait of one thread that each `set` ends, also one that came before it; several before a wait end one wait.

    `set` may be called from a signal handler. It is a lock, since Python's SimpleQueue waits for ever if a signal
    handler takes longer than the rest of its timeout, and threading.Event takes three times the CPU.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """End the wait, or else the next one."""
        with suppress(RuntimeError):  # it was set before, and nothing has waited since
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most `timeout` seconds; return whether it was."""
        return self._lock.acquire(timeout=-1 if timeout is None else max(0.0, timeout))


class ReadingBatch:
    """The readings of one thread in a tick, until they are handed over together."""

    def __init__(self, at: int, *, is_shared: bool) -> None:
        """Hold readings stamped `at`; `is_shared`: of collectors that may move to another thread."""
        self.at, self.is_shared = at, is_shared
        self.done: deque[CollectorReading] = deque()
        self.is_open = False
        """True if one of the collectors is open now."""
        self.is_over = False
        """True once they were handed over; a later one is handed over alone."""


class CollectorReading(NamedTuple):
    """The result of one call of `collect`, or of several for the same tick."""

    points: list[Datapoint]
    facts: Sequence[object] = ()
    batch: ReadingBatch | None = None


class ReadingQueue:
    """Readings for one thread, the clock. Signal handlers may call `put`, too."""

    def __init__(self) -> None:
        self._readings: deque[CollectorReading] = deque()
        self._wakeup = Wakeup()

    def put(self, reading: CollectorReading) -> None:
        """Add a reading, and end a wait."""
        self._readings.append(reading)
        self._wakeup.set()

    def empty(self) -> bool:
        """Return whether none is there."""
        return not self._readings

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for another reading; may return early. Return whether it ended early."""
        return self._wakeup.wait(timeout)

    def get(self, timeout: float) -> CollectorReading | None:
        """Return the oldest reading, or None if none comes within `timeout` seconds."""
        end = time.monotonic() + timeout
        while not self._readings and self.wait(timeout):
            timeout = end - time.monotonic()
        return next(_drain(self._readings), None)


_Task = tuple["Sampler | None", ReadingBatch | None]
"""A collector to read for a batch, or without one to close; without a collector: a batch to hand over, or END."""
END: Final[_Task] = None, None


class ReadingThread:
    """
    Reads collectors in turn on one daemon thread, and hands over the readings of a batch at once.

    The thread ends when none of a batch is open; the next batch starts it again.
    """

    def __init__(self, name: str, readings: ReadingQueue) -> None:
        """Put the readings on `readings`."""
        self._name, self._readings = name, readings
        self._logger = ThrottledLogger(log, f"thread {name}")
        self._tasks: deque[_Task] = deque()
        self._wakes: SimpleQueue[None] = SimpleQueue()  # one for all tasks of a tick
        self._lock = threading.Lock()
        self._is_running = False
        self._thread = threading.Thread()

    def read(self, samplers: Sequence[Sampler], at: int, *, is_shared: bool = False) -> ReadingBatch:
        """Begin readings stamped `at`."""
        batch = ReadingBatch(at, is_shared=is_shared)
        for sampler in samplers:
            sampler.thread, sampler.batch = self, batch
        self.put([*[(sampler, batch) for sampler in samplers], (None, batch)])
        return batch

    def close(self, samplers: Sequence[Sampler]) -> None:
        """Close these collectors, but not those that are absent, after the reading in progress; then end."""
        present = [sampler for sampler in samplers if sampler.unavailable is None]
        for sampler in present:
            sampler.is_busy = True
        if present or self._is_running:
            self.put([*[(sampler, None) for sampler in present], END])

    def end(self) -> None:
        """End after the reading in progress."""
        if self._is_running:
            self.put([END])

    def give_up(self, members: Sequence[Sampler], other: ReadingThread) -> Sampler | None:
        """
        Leave the thread to the collector among `members` whose call goes on, and everything else to `other`.

        Return that one; None, and nothing moves, if no call goes on.
        """
        tasks = [*_drain(self._tasks)]
        queued = {sampler for sampler, _ in tasks}
        mine = [sampler for sampler in members if sampler.thread is self]
        busy = next((sampler for sampler in mine if sampler.is_busy and sampler not in queued), None)
        if busy:
            self._thread.name = f"collect-{busy.name}"  # logged if it hangs at the stop
            for sampler in mine:
                sampler.thread = self if sampler is busy else other
            if END in tasks:
                self.put([END])
        if tasks:
            (other if busy else self).put(tasks)
        return busy

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the end; return whether it has ended."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def put(self, tasks: Sequence[_Task]) -> None:
        """Add tasks; start the thread unless it runs, and if that fails, try again with the next call."""
        with self._lock:
            self._tasks += tasks
            if self._tasks:
                self._wakes.put(None)
                try:
                    self._start()
                except RuntimeError as problem:
                    self._logger.log(logging.ERROR, "start", f"{problem}; tried again in the next tick")

    def start(self) -> None:
        """Start the thread before its first task; raise RuntimeError if that is not possible."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if not self._is_running:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
            self._is_running = True

    def _run(self) -> None:
        while True:
            try:
                task = self._tasks.popleft()
            except IndexError:
                self._wakes.get()
                continue
            if task is END:
                return
            if self._has_closed(*task):
                with self._lock:
                    if not self._tasks:
                        self._is_running = False
                        return

    def _has_closed(self, sampler: Sampler | None, batch: ReadingBatch | None) -> bool:
        """Do a task; return whether all that was handed over is of closed collectors."""
        if batch is None:
            assert sampler is not None
            sampler.close()
            sampler.is_busy = False
            return False
        if sampler is None:
            batch.is_over, is_open = True, batch.is_open
        else:
            batch.done.append(sampler.read(batch.at))
            is_open = sampler.is_open
            batch.is_open |= is_open
            sampler.is_busy = False
            if not batch.is_over:
                return False
        points, facts = list[Datapoint](), list[object]()
        for reading in _drain(batch.done):
            points += reading.points
            facts += reading.facts
        self._readings.put(CollectorReading(points, facts, batch))
        return not is_open
