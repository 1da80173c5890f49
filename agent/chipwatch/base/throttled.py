"""A logger that logs a problem once, and once an hour while it lasts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

REPEAT_AFTER: Final = 3600.0
"""Seconds after which the same cause is logged again."""
MAX_CAUSES: Final = 200


class ThrottledLogger:
    """Logs the problems of one part of the agent; used by one thread at a time."""

    def __init__(self, log: logging.Logger, who: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Log to `log`; each message begins with `who`. `clock` returns monotonic seconds."""
        self._log, self._who, self._clock = log, who, clock
        self._logged_at: dict[str, float] = {}

    def log(self, level: int, cause: str, text: str, *, traceback: bool = False) -> bool:
        """Log `text`, unless the same `cause` was logged less than an hour ago; return whether it was logged."""
        now = self._clock()
        if now - self._logged_at.get(cause, -REPEAT_AFTER) < REPEAT_AFTER:
            return False
        if len(self._logged_at) >= MAX_CAUSES:
            self._logged_at.clear()
        self._logged_at[cause] = now
        self._log.log(level, "%s: %s", self._who, text, exc_info=traceback, extra={"who": self._who})
        return True

    def resolved(self, cause: str, text: str | None = None) -> None:
        """Note that a problem is over; log `text`, but only if the problem itself was logged."""
        if self._logged_at.pop(cause, None) is not None and text:
            self._log.info("%s: %s", self._who, text, extra={"who": self._who})
