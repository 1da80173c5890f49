"""Flags, locks and the folder of the files that the agent keeps or reads."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

SAFE: Final = os.O_NOFOLLOW
"""Flag of os.open for files of ours: no symbolic link is followed."""
NO_WAIT: Final = os.O_NONBLOCK
"""Flag of os.open for a file that may be a pipe."""


def open_locked(path: Path, pauses: Sequence[float] = ()) -> FileIO:
    """
    Return a file that its owner alone may read, made if it is not there; it is locked until it is closed.

    The kernel releases the lock when the process ends, in any way. Raise BlockingIOError if another process holds it,
    also after `pauses` (seconds between attempts), or OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | SAFE, 0o600), "r+")
    try:
        for pause in pauses:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            time.sleep(pause)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def state_folder(spool: Path | None, env: Mapping[str, str]) -> Path:
    """Return the state folder: as configured, else systemd's, else root's or the user's."""
    if spool is not None:
        return spool
    if state := env.get("STATE_DIRECTORY"):
        return Path(state.partition(":")[0])
    if os.geteuid() != 0:
        if home := env.get("XDG_STATE_HOME"):
            return Path(home) / "chipwatch"
        with suppress(RuntimeError):  # a user without a home, as in some containers
            return Path.home() / ".local" / "state" / "chipwatch"
    return Path("/var/lib/chipwatch")
