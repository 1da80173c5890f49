"""Parts that not every operating system has, each with what serves where it is missing."""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

SAFE: Final[int] = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""Flags of os.open for files of ours: no symbolic link is followed, and Windows writes line feeds as they are."""
NO_WAIT: Final[int] = getattr(os, "O_NONBLOCK", 0)
"""Flag of os.open for a file that may be a pipe."""
KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signal that no process can ignore."""


def lock(file: int, *, shared: bool = False) -> bool:
    """Lock an open file; False on Windows, without such locks. Raise BlockingIOError if another process holds it."""
    if sys.platform == "win32":
        return False
    import fcntl  # noqa: PLC0415  # not on Windows

    fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    return True


def sysconf(name: str) -> int:
    """Return a constant of the system, 0 where it has none of this name."""
    if sys.platform != "win32":
        return os.sysconf(name) if name in os.sysconf_names else 0
    return 0


def user_name(number: int) -> str:
    """Return the name of a user; raise KeyError if it has none."""
    if sys.platform == "win32":
        raise KeyError(number)
    import pwd  # noqa: PLC0415  # not on Windows

    return pwd.getpwuid(number).pw_name
