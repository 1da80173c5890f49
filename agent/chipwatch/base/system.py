"""Opens files safely, locks files, and finds the state folder."""

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
"""Flag of os.open for the agent's own files: do not follow a symbolic link."""
NO_WAIT: Final = os.O_NONBLOCK
"""Flag of os.open for a file that may be a pipe: do not wait for its writer."""


def open_locked(path: Path, pauses: Sequence[float] = ()) -> FileIO:
    """
    Open a file that only its owner can read, or make it, and lock it until it is closed.

    The kernel also releases the lock when the process ends or is killed. If another process has the lock, try again
    after each of `pauses` (seconds), then raise BlockingIOError. Raise OSError for other problems.
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
    """Return the state folder: the configured one, else systemd's, else the usual one of root or of the user."""
    if spool is not None:
        return spool
    if state := env.get("STATE_DIRECTORY"):
        return Path(state.partition(":")[0])
    if os.geteuid() != 0:
        with suppress(RuntimeError):  # a user without a home, as in some containers
            return Path(env.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "chipwatch"
    return Path("/var/lib/chipwatch")
