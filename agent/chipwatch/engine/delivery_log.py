"""Logs the delivery to one sink: the first points, failures and recovery; and tells the pause after a failure."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from chipwatch.base.text import count, duration
from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.errors import Refused, Retryable
from chipwatch.engine.notices import NOTICES
from chipwatch.engine.spool.file import Ledger

log = logging.getLogger(__name__)

MAX_AFTER: Final = 900.0
"""Longest pause in seconds that a service can ask for; a longer one is cut."""
BLIP: Final = 5.0
"""A first failure is not logged if the next attempt follows within these seconds: most succeed."""
LONG: Final = 60.0
"""Seconds after which an outage is logged, even if the hour since the line about the last one is not over."""
PROGRESS: Final = 60.0
"""Seconds of catching up after which progress is logged; then after twice as long, and so on."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """
    Seconds to wait after a failure: a random share of `base`, which doubles with each failure up to `cap`.

    If the service refuses the set-up (Refused), `refused_base` and `refused_cap` count.
    """

    base: float = 1.0
    cap: float = 60.0
    refused_base: float = 30.0
    refused_cap: float = 60.0

    def after(self, problem: BaseException, failures: int) -> tuple[float, float]:
        """Return the seconds to wait after this number of failures in a row, and the most that it could have been."""
        base, cap = (self.refused_base, self.refused_cap) if isinstance(problem, Refused) else (self.base, self.cap)
        after: Any = problem.after if isinstance(problem, Retryable) else None
        if isinstance(after, int | float) and after > 0:  # a plugin may set a text here
            pause = min(after, MAX_AFTER)
        else:
            from random import Random

            pause = Random().uniform(0, min(cap, base * 2.0 ** min(failures - 1, 30)))  # noqa: S311  # no secret
        return pause, max(pause, cap)


class DeliveryLog:
    """
    Logs the first delivery, failures and recovery, with the counts of the ledger.

    A failure is logged if the second attempt fails too, or at once if the next attempt is far away; then once an hour,
    even if short outages follow one another. Used by the thread that delivers.
    """

    def __init__(self, name: str, ledger: Ledger, clock: Callable[[], float] = time.monotonic) -> None:
        """Compare later counts of the ledger with the counts of this moment."""
        self._name, self._ledger, self._clock = name, ledger, clock
        self._failures = ThrottledLogger(log, name, clock)
        self._attempts = 0  # failed attempts since the last success
        self._is_logged = False  # whether one of these attempts was logged
        self._outage = 0.0, ledger.sent, ledger.dropped.total()  # start of the outage; points sent and dropped then
        self._sent = ledger.sent  # points sent before this run, or before catching up
        self._is_first = True
        self._kept_before = ledger.spooled
        self._is_behind = self.is_quiet = False
        """`is_quiet`: the next delivery needs no line. `_is_behind`: points of an earlier run wait to be sent."""
        self._began: float | None = None  # start of catching up
        self._next_progress = PROGRESS

    def failed(self, event: str, cause: str, text: str, pause: tuple[float, float], *, is_last: bool) -> None:
        """Log that points cannot be sent; `pause` is the seconds to the next attempt, and the most that it can be."""
        wait, most = pause
        level, is_bug = NOTICES["sink"][event].level, event == "bug"
        now, ledger = self._clock(), self._ledger
        self.is_quiet = False
        if not self._attempts:
            self._outage = now, ledger.sent, ledger.dropped.total()
        self._attempts += 1
        since = self._outage[0]
        if self._attempts == 1 and wait < BLIP and not (is_last or is_bug):
            return
        past = f" for {duration(now - since, 2)}" if now - since >= 60 else ""
        plan = "" if is_last else f", next try within {math.ceil(most)} s"
        lost = f", {self._lost:,} lost" if self._lost else ""
        what = f" {count(ledger.due)}" if is_last else f"{past}, {self.kept()}{lost}"
        text = f"cannot send{what}{plan}: {text}"
        if not self._is_logged and now - since >= LONG:
            self._failures = ThrottledLogger(log, self._name, self._clock)
        self._is_logged |= self._failures.log(level, cause, text, traceback=is_bug)

    def delivered(self, where: Callable[[], str | None]) -> None:
        """Log recovery, progress, and the first delivery; `where` returns how to find the points (None: no line)."""
        now, ledger = self._clock(), self._ledger
        if self._is_logged:
            since, self._sent, _ = self._outage
            points, past = ledger.sent - self._sent + ledger.due, duration(now - since, 2)
            self._info(f"sending again after {past}; {count(points)} kept, {self._lost:,} lost")
            self._began, self._next_progress = now, PROGRESS
        self._attempts, self._is_logged = 0, False
        done = ledger.sent - self._sent
        if self._is_first and done:
            self._is_first = False
            if (place := where()) is not None:
                self._info("; see ".join(filter(None, (f"first {count(done)} accepted", place))))
            if self._is_behind:
                self._began = now
        if self._began is not None and now - self._began >= self._next_progress:
            self._next_progress *= 2
            left = duration((now - self._began) * ledger.due / max(done, 1), 2)
            self._info(f"catching up: {count(done)} sent, {self.kept()}, about {left} left")
        self.is_quiet = self._began is None and not self._is_first

    def drained(self) -> None:
        """Log that the sink has caught up, if it was behind; called when no points wait."""
        if self._began is not None:
            points = self._ledger.sent - self._sent
            self._info(f"caught up: {count(points)} in {duration(self._clock() - self._began, 2)}")
            self._began = None
        self.is_quiet = not self._is_first and not self._attempts

    def opened(self) -> None:
        """Note that the destination is known now, and with it whether points of an earlier run wait."""
        self._is_behind = self._kept_before > self._ledger.elsewhere

    def kept(self) -> str:
        """Return in words how many points wait for this destination, and how many for others."""
        others = self._ledger.elsewhere
        more = f" and {others:,} for other destinations" if others else ""
        return f"{count(self._ledger.due)} kept{more}"

    @property
    def _lost(self) -> int:
        return self._ledger.dropped.total() - self._outage[2]

    def _info(self, text: str) -> None:
        log.info("%s: %s", self._name, text, extra={"who": self._name})
