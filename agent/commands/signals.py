"""Signals of a run: SIGTERM and SIGINT stop it, SIGHUP reads the configuration anew."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Final, Generic, TypeVar

from agent.errors import CommandError
from agent.pipeline.clock import Pipeline

log = logging.getLogger(__name__)
T = TypeVar("T")

STOPPING: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


def handle(signals: Iterable[int], handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Set the handler of several signals."""
    for number in signals:
        signal.signal(number, handler)


class Signals(Generic[T]):
    """
    Stops the current pipeline at a signal; at SIGHUP only when a new run is ready to follow it.

    A closed terminal sends SIGHUP, too: that stops the run. Where SIGHUP is ignored (nohup), it stays so.
    """

    def __init__(self, renew: Callable[[], T | None] | None) -> None:
        """`renew` returns the run of a new configuration, None if nothing changed; without it SIGHUP stops the run."""
        self._renew = renew
        self._pipeline: Pipeline | None = None
        self._lock = threading.Lock()
        self._next: T | None = None
        self._is_stopping = False
        self._terminals = [number for number in range(3) if os.isatty(number)]
        ignored = {number for number in STOPPING if signal.getsignal(number) is signal.SIG_IGN}
        handle(set(STOPPING) - ignored, self._handle)

    def watch(self, pipeline: Pipeline) -> None:
        """Stop this pipeline at the next signal, or at once if one came before."""
        self._pipeline = pipeline
        if self._is_stopping:
            pipeline.stop()

    def take_next(self) -> T | None:
        """Return the run that follows the one that has ended, if any."""
        with self._lock:
            self._pipeline, following, self._next = None, self._next, None
        return None if self._is_stopping else following

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        is_hang_up = number == getattr(signal, "SIGHUP", None) and all(map(os.isatty, self._terminals))
        if is_hang_up and self._renew is not None:
            threading.Thread(target=self._reload, args=(self._renew,), name="reload", daemon=True).start()
            return
        handle(STOPPING, signal.SIG_DFL)  # a second signal ends the process at once
        self._is_stopping = True
        if self._pipeline:
            self._pipeline.stop()

    def _reload(self, renew: Callable[[], T | None]) -> None:
        with self._lock:
            try:
                self._next = renew()
            except CommandError as problem:
                log.error("the new configuration is refused, the old one goes on: %s", problem)  # noqa: TRY400
                return
            if self._next is None:
                log.info("the configuration has not changed")
            elif self._pipeline:
                log.info("the configuration has changed; the new one starts")
                self._pipeline.stop()
