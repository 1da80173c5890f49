"""Notices a tick that hangs, and tells the service manager that ticks go on, from another thread."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from chipwatch.base.throttled import ThrottledLogger

log = logging.getLogger(__name__)

LONGEST: Final = 10.0
"""Seconds after which a tick counts as hanging: it waits for nobody longer than FIRST_READING."""
PERIOD: Final = 5.0
"""Seconds between two looks."""


class Progress:
    """Names the part of the agent that the clock's thread is busy with; other threads read it."""

    def __init__(self) -> None:
        self.since: float | None = None
        """When the tick in progress began (monotonic seconds), or None between two ticks."""
        self.what = ""
        """The part of the agent that the tick is busy with."""


class Watchdog:
    """
    Logs once which part holds a tick up for more than LONGEST seconds, and that ticks go on again.

    The clock's thread cannot do that itself. While a tick hangs the service manager gets no sign of life, so that it
    starts the agent again (WatchdogSec of systemd): a file of the kernel that does not answer cannot be interrupted.
    """

    def __init__(self, progress: Progress, alive: Callable[[], None] | None = None) -> None:
        """`alive` is called at each look while no tick hangs; by default it tells systemd, if that asks for it."""
        self._progress, self._alive = progress, alive or sign_of_life(os.environ)
        self._logger = ThrottledLogger(log, "tick")
        self._is_over = threading.Event()
        self._hangs = False

    def start(self) -> None:
        """Start the thread; without one, nobody looks."""
        with suppress(RuntimeError):
            threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """End the thread; does not wait."""
        self._is_over.set()

    def look(self) -> None:
        """Log a tick that hangs, else give a sign of life."""
        since, what = self._progress.since, self._progress.what
        seconds = 0.0 if since is None else time.monotonic() - since
        if seconds > LONGEST:
            self._hangs = True
            self._logger.log(logging.ERROR, "hangs", f"takes {seconds:.0f} s so far: {what} does not return")
            return
        if self._hangs:
            self._hangs = False
            self._logger.resolved("hangs", "goes on again")
        self._alive()

    def _run(self) -> None:
        self.look()
        while not self._is_over.wait(PERIOD):
            self.look()


def sign_of_life(env: Mapping[str, str]) -> Callable[[], None]:
    """Return what tells systemd that this process is alive; it does nothing where systemd does not ask for it."""
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
