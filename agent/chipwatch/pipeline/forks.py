"""Ends copies of the agent that a plugin forks."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from chipwatch.logs.throttled import ThrottledLogger

T = TypeVar("T")

WIDTH: Final = 8
"""Bytes of a pid in the shared memory."""
NONE: Final = bytes(64 * WIDTH)
"""The shared memory where no child was ended."""


class ForkGuard:
    """
    Calls methods of a plugin; a child process that the plugin forked ends where it would return into the agent.

    There it would be a second agent. A child that ends in the plugin, as those of multiprocessing do, is not touched.
    """

    def __init__(self, logger: ThrottledLogger) -> None:
        self._logger = logger
        self._ended = mmap.mmap(-1, len(NONE))
        """The pids of children that were ended, each at its own place; child processes share this memory."""

    def call(self, method: Callable[[], T]) -> T:
        """Return what `method` returns, or raise what it raises."""
        pid = os.getpid()
        try:
            return method()
        finally:
            if (now := os.getpid()) != pid:
                place = now * WIDTH % len(NONE)
                self._ended[place : place + WIDTH] = now.to_bytes(WIDTH, "little")
                os._exit(1)
            if (ended := self._ended[:]) != NONE:
                self._reap(ended)

    def _reap(self, ended: bytes) -> None:
        """Wait for the children that were ended, and log that there are such."""
        for place in range(0, len(ended), WIDTH):
            if pid := int.from_bytes(ended[place : place + WIDTH], "little"):
                self._ended[place : place + WIDTH] = bytes(WIDTH)
                with suppress(OSError):
                    os.waitpid(pid, 0)
        text = "forked a copy of the agent, which was ended; a child process has to end in the plugin"
        self._logger.log(logging.ERROR, "forked", text)
