"""Logs a tick that hangs, and tells systemd while ticks go on."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from chipwatch.base.throttled import ThrottledLogger

log = logging.getLogger(__name__)

LONGEST: Final = 10.0
"""Seconds after which a tick hangs. A healthy tick takes little more than FIRST_READING."""
PERIOD: Final = 5.0
"""Seconds between two checks."""


class Progress:
    """Names the part of the agent that the clock's thread is busy with; other threads read it."""

    def __init__(self) -> None:
        self.since: float | None = None
        """Start of the tick in progress (monotonic seconds), or None between two ticks."""
        self.what = ""
        """The part of the agent that the tick is busy with, for people."""


class Watchdog:
    """
    Logs which part blocks a tick for more than LONGEST seconds, and when ticks go on again.

    It looks from the side thread, since the clock's thread cannot log while it is blocked. While a tick hangs, systemd
    gets no sign of life, so it restarts the agent if the unit sets WatchdogSec. Nothing else helps: a blocked read of a
    kernel's file cannot be interrupted.
    """

    def __init__(self, progress: Progress, alive: Callable[[], None] | None = None) -> None:
        """Call `alive` at each check while no tick hangs; by default, it tells systemd, if systemd asks for it."""
        self._progress, self._alive = progress, alive or sign_of_life(os.environ)
        self._logger = ThrottledLogger(log, "tick")

    def look(self) -> float:
        """Check once: log a tick that hangs, or give the sign of life. Return the seconds until the next check."""
        since, what = self._progress.since, self._progress.what
        seconds = 0.0 if since is None else time.monotonic() - since
        if seconds > LONGEST:
            self._logger.log(logging.ERROR, "hangs", f"takes {seconds:.0f} s so far: {what} does not return")
            return PERIOD
        self._logger.resolved("hangs", "goes on again")
        self._alive()
        return PERIOD


def sign_of_life(env: Mapping[str, str]) -> Callable[[], None]:
    """Return a function that tells systemd that this process is alive; it does nothing unless systemd asks for it."""
    address = env.get("NOTIFY_SOCKET", "")
    ours = f"{os.getpid()}"
    if not (address and "WATCHDOG_USEC" in env and env.get("WATCHDOG_PID", ours) == ours):
        return lambda: None
    name = f"\0{address[1:]}" if address.startswith("@") else address

    def tell() -> None:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
            there.setblocking(False)
            there.sendto(b"WATCHDOG=1", name)

    return tell
