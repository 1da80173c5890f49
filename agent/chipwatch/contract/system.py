"""Flags and locks of the files that the agent keeps or reads."""

from __future__ import annotations

import fcntl
import os
from typing import Final

SAFE: Final = os.O_NOFOLLOW
"""Flag of os.open for files of ours: no symbolic link is followed."""
NO_WAIT: Final = os.O_NONBLOCK
"""Flag of os.open for a file that may be a pipe."""


def lock(file: int) -> None:
    """Lock an open file; raise BlockingIOError if another process holds it."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
