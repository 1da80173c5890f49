"""Trouble is said once for each cause, and again when it has lasted an hour."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

AGAIN: Final = 3600.0
MOST: Final = 200


class ThrottledLogger:
    """Logs under the name of one plugin; used by one thread at a time."""

    def __init__(self, log: logging.Logger, who: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Log to `log`, beginning with `who`."""
        self._log, self._who, self._clock = log, who, clock
        self._said: dict[str, float] = {}

    def say(self, level: int, cause: str, text: str, *, traceback: bool = False) -> None:
        """Log `text`, unless `cause` was said less than an hour ago."""
        now = self._clock()
        if now - self._said.get(cause, -AGAIN) < AGAIN:
            return
        if len(self._said) >= MOST:
            self._said.clear()
        self._said[cause] = now
        self._log.log(level, "%s: %s", self._who, text, exc_info=traceback, extra={"who": self._who})

    def over(self, cause: str, text: str | None = None) -> None:
        """Note that the trouble is over; if it had been said, log `text`."""
        if self._said.pop(cause, None) is not None and text:
            self._log.info("%s: %s", self._who, text, extra={"who": self._who})
