"""The signals that a run obeys: SIGTERM and SIGINT stop it, SIGHUP reloads the configuration."""

from __future__ import annotations

import _thread
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Final, Generic, TypeVar

from chipwatch.contract.errors import CommandError
from chipwatch.engine.clock import Pipeline

log = logging.getLogger(__name__)
T = TypeVar("T")

LIMIT: Final = 7.5
"""Seconds after the signal at which the process ends, even if something hangs."""
TELLING: Final = 0.25
"""Seconds for logging the threads that hang."""
STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def handle(signals: Iterable[int], handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Set one handler for several signals."""
    for number in signals:
        signal.signal(number, handler)


def note_hang_ups() -> list[int]:
    """Return a list to which each SIGHUP is added from now on, also a blocked one. An ignored SIGHUP stays ignored."""
    noted: list[int] = []
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda number, _: noted.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    return noted


def end_in_time(code: int = 1) -> None:
    """End the process with `code` after LIMIT seconds; runs on a daemon thread."""
    time.sleep(LIMIT)
    _thread.start_new_thread(_tell_who_hangs, ())  # on a thread, because logging may hang, too
    time.sleep(TELLING)
    os._exit(code)


def _tell_who_hangs() -> None:
    names = ", ".join(thread.name for thread in threading.enumerate())
    log.error("the stop takes over %g s and is cut short; still running: %s", LIMIT, names)


class Signals(Generic[T]):
    """
    Stops the current pipeline at a signal. SIGHUP stops it only when a run with a new configuration is ready.

    A terminal that closes also sends SIGHUP: that stops the run. If SIGHUP is ignored (nohup), it stays ignored.
    """

    def __init__(
        self, current: T, renew: Callable[[T, T | None], T | None] | None, earlier: Iterable[int] = ()
    ) -> None:
        """
        `renew` builds a run from the present configuration, None if that has not changed. Without it, SIGHUP stops.

        Its arguments are the newest run, and the run that waits to start, or None.
        `earlier`: signals that came before; they are handled now.
        """
        self._newest, self._renew = current, renew
        self._pipeline: Pipeline | None = None
        self._lock = threading.Lock()
        self._next: T | None = None
        self._is_stopping = self._is_asked = False
        self._terminals = [number for number in range(3) if os.isatty(number)]
        ignored = {number for number in STOPPING if signal.getsignal(number) is signal.SIG_IGN}
        handle(set(STOPPING) - ignored, self._handle)
        for number in earlier:
            self._handle(number, None)

    def watch(self, pipeline: Pipeline) -> None:
        """Stop this pipeline at the next signal; at once if one came before, or if the next run is ready."""
        self._pipeline = pipeline
        if self._is_stopping or self._next:
            pipeline.stop()

    def take_next(self) -> T | None:
        """Return the run to start after the one that has ended; None if there is none."""
        if self._is_stopping:
            return None  # without the lock: a reload may hang in a file system
        with self._lock:
            self._pipeline, following, self._next = None, self._next, None
        return following

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        is_hang_up = number == signal.SIGHUP and all(map(os.isatty, self._terminals))
        if is_hang_up and self._renew is not None:
            if self._is_asked:
                return  # a reload already waits, and will read the newest file
            self._is_asked = True
            try:
                threading.Thread(target=self._reload, args=(self._renew,), name="reload", daemon=True).start()
            except RuntimeError:  # no thread can be started; the error must not reach the interrupted code
                self._is_asked = False
            return
        handle(STOPPING, signal.SIG_DFL)  # a second signal ends the process at once
        self._is_stopping = True
        with suppress(RuntimeError):  # no thread can be started
            _thread.start_new_thread(end_in_time, ())  # the thread that was interrupted may hold threading's lock
        if self._pipeline:
            self._pipeline.stop()

    def _reload(self, renew: Callable[[T, T | None], T | None]) -> None:
        with self._lock:
            self._is_asked = False
            try:
                renewed = renew(self._newest, self._next)
            except CommandError as problem:
                log.error("the new configuration is refused, the old one goes on: %s", problem)  # noqa: TRY400
                return
            if renewed is None:
                log.info("the configuration has not changed")
            else:
                self._newest = self._next = renewed
                log.info("the configuration has changed; the new one starts")
                if self._pipeline:
                    self._pipeline.stop()
