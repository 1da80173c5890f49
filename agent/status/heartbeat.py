"""The file that shows others that this agent is alive: no port, no thread, no request."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

try:
    import fcntl
except ImportError:  # Windows: that its process has died is told by the age of the last tick alone
    fcntl = None  # type: ignore[assignment]

from agent.logs.text import without_secrets

log = logging.getLogger(__name__)

NAME: Final = "alive"
"""Of the file, in the folder of the spools."""
SIZE: Final = 512
"""Bytes of the file: each record takes the place of the one before, so that it never grows."""
LONGEST: Final = 200
"""Characters that are kept of why it is not ready."""
MOST_LATE: Final = 3
"""Intervals without a tick after which the clock counts as hanging."""
LEAST_LATE: Final = 3.0
"""Seconds that it may always take."""
PAUSES: Final = (0.01, 0.02, 0.04)
"""Seconds between two attempts to lock the file."""


def state_folder(spool: Path | None, env: Mapping[str, str]) -> Path:
    """Return where an agent keeps its state: as configured, else systemd's folder, else root's or the user's."""
    if spool is not None:
        return spool
    if state := env.get("STATE_DIRECTORY"):
        return Path(state.partition(":")[0])
    if getattr(os, "geteuid", lambda: 1)() == 0:
        return Path("/var/lib/chipwatch")
    home = env.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "chipwatch"


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `[HOST:]PORT`, on loopback unless a host is given; raise ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"expected [HOST:]PORT, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def most_late(interval: float) -> float:
    """Return after how many seconds without a tick the clock counts as hanging."""
    return max(MOST_LATE * interval, LEAST_LATE)


class Heartbeat:
    """
    Says at each tick, in a file that it holds locked, when that was and whether the agent is ready.

    The kernel lets go of the lock when the process ends, however it ends. Used by the clock's thread.
    """

    def __init__(self, path: Path, interval: float) -> None:
        """Make and lock the file, readable by its owner only; raise OSError, also where another agent holds it."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._file: int = os.open(path, flags, 0o600)
        self._late = most_late(interval)
        try:
            self._lock()
            self._write({"at": None, "late": self._late})
        except OSError:
            os.close(self._file)
            raise

    def beat(self, why: str | None) -> None:
        """Say that a tick has ended just now, and why the agent is not ready; None: it is."""
        with contextlib.suppress(OSError):  # it then ages, which tells
            told = why and without_secrets(why[: 5 * LONGEST])[:LONGEST]
            self._write({"at": time.monotonic(), "late": self._late, "why": told})

    def close(self) -> None:
        """Let go of the file, which then says nothing more; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _lock(self) -> None:
        """Lock the file; one that asks whether it is locked may hold it for a moment."""
        if fcntl is None:
            return
        for pause in PAUSES:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(pause)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _write(self, record: Mapping[str, Any]) -> None:
        text = json.dumps({**record, "pid": os.getpid()}).encode()
        while len(text) >= SIZE:  # each character of a reason may take six
            record = {**record, "why": record["why"][: len(record["why"]) // 2]}
            text = json.dumps({**record, "pid": os.getpid()}).encode()
        os.lseek(self._file, 0, os.SEEK_SET)
        os.write(self._file, text.ljust(SIZE - 1) + b"\n")


def is_held(file: int) -> bool:
    """Tell whether some process holds the open file locked; where that cannot be told, it may."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def start(folder: Path, interval: float) -> Heartbeat | None:
    """Return a heartbeat in `folder`, or None where that cannot be; it is no reason to end a program."""
    try:
        return Heartbeat(folder / NAME, interval)
    except OSError as problem:
        log.info("no heartbeat for `agent health`: %s: %s", folder / NAME, problem.strerror or problem)
        return None
