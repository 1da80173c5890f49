"""The side thread: one for all that answers others or looks after the clock's thread, so that none has a thread."""

from __future__ import annotations

import logging
import math
import os
import selectors
import threading
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

Turn = Callable[[], float | None]
"""Does what is due; returns the seconds until the next turn, or None to have it when the guest's file can be read."""


class SideThread:
    """
    Gives its guests, such as a server of pages or the watchdog, their turns on one daemon thread.

    A turn that takes long delays all other guests, so a guest never waits for a disk. A guest whose turn raises an
    exception has no further one. The thread starts with the first guest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[Turn, float] = {}
        """Turn -> its time at the latest (monotonic seconds)."""
        self._selector = selectors.DefaultSelector()
        self._rung, self._bell = os.pipe()
        self._selector.register(self._rung, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None

    def add(self, turn: Turn, file: int | None = None) -> None:
        """
        Call `turn` now, and whenever the descriptor `file` can be read.

        Raise RuntimeError if the system cannot start the thread.
        """
        with self._lock:
            if not self._thread:
                thread = threading.Thread(target=self._run, name="side", daemon=True)
                thread.start()
                self._thread = thread
            self._due[turn] = 0.0
            if file is not None:
                self._selector.register(file, selectors.EVENT_READ, turn)
        os.write(self._bell, b"!")

    def remove(self, turn: Turn) -> None:
        """Call `turn` no more; a call in progress goes on. To be used before the file is closed; safe to use twice."""
        with self._lock:
            self._due.pop(turn, None)
            for key in [key for key in self._selector.get_map().values() if key.data == turn]:
                self._selector.unregister(key.fileobj)

    def _run(self) -> None:
        following = 0.0
        while True:
            for key, _ in self._selector.select(None if following == math.inf else following - time.monotonic()):
                if key.data:
                    following = min(following, self._give_turn(key.data))
                else:
                    os.read(self._rung, 4096)
                    following = 0.0
            if (now := time.monotonic()) >= following:
                for turn in [turn for turn, due in [*self._due.items()] if due <= now]:
                    self._give_turn(turn)
                following = min([*self._due.values()], default=math.inf)

    def _give_turn(self, turn: Turn) -> float:
        """Call `turn`, unless it was removed; return the time of its next call at the latest (monotonic seconds)."""
        try:
            pause = turn() if turn in self._due else None
        except Exception:
            log.exception("a server or the watchdog ends by a bug")
            self.remove(turn)
            pause = None
        due = math.inf if pause is None else time.monotonic() + pause
        with self._lock:
            if turn in self._due:
                self._due[turn] = due
        return due


SIDE: Final = SideThread()
"""The side thread of this process."""
