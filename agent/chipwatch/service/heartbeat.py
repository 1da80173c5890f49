"""The heartbeat file: it shows to probes that the agent runs, without a port or a thread."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Final

from chipwatch.base.redaction import without_secrets
from chipwatch.base.system import open_locked
from chipwatch.contract.errors import os_text

log = logging.getLogger(__name__)

NAME: Final = "alive"
"""Name of the file in the state folder."""
SIZE: Final = 512
"""Size of the file (bytes); each record overwrites the last one."""
MAX_AFTER: Final = 470
"""Most bytes of a record after its time."""
MAX_REASON: Final = 200
"""Most characters of the reason why the agent is not ready."""
MAX_MISSED: Final = 3
"""Intervals without a tick after which the clock counts as hanging."""
MIN_TIMEOUT: Final = 3.0
"""Seconds without a tick after which the clock counts as hanging, at the least."""
PAUSES: Final = (0.01, 0.02, 0.04)
"""Seconds between attempts to lock the file, because a probe may hold it for a moment."""


def tick_timeout(interval: float) -> float:
    """Return the seconds without a tick after which the clock counts as hanging."""
    return max(MAX_MISSED * interval, MIN_TIMEOUT)


class Heartbeat:
    """
    Writes the time of each tick, and why the agent is not ready, to a file that it holds locked.

    Used by the clock's thread.
    """

    def __init__(self, path: Path, interval: float) -> None:
        """Create and lock the file, readable only by its owner; raise OSError, also if another agent holds it."""
        self._file, self._late = open_locked(path, PAUSES), tick_timeout(interval)
        try:
            self._write("null", None)
        except OSError:
            self.close()
            raise

    def beat(self, why: str | None) -> None:
        """Record that a tick has ended now; `why`: the reason why the agent is not ready, or None."""
        with contextlib.suppress(OSError, ValueError):  # a probe then sees that the last record is old
            self._write(repr(time.monotonic()), why)

    def close(self) -> None:
        """Unlock and close the file; safe to call twice."""
        self._file.close()

    def _write(self, at: str, why: str | None) -> None:
        self._file.seek(0)
        self._file.write(f'{{"at":{at},{_after_time(self._late, why, os.getpid())}'.encode().ljust(SIZE - 1) + b"\n")


@lru_cache(maxsize=2)
def _after_time(late: float, why: str | None, pid: int) -> str:
    """Return the part of a record that follows its time."""
    reason = why and without_secrets(why[: 5 * MAX_REASON])[:MAX_REASON].encode(errors="replace").decode()
    while len(text := json.dumps({"late": late, "why": reason, "pid": pid}, separators=(",", ":"))) > MAX_AFTER:
        reason = (reason or "")[: len(reason or "") // 2]  # JSON may write a character as six bytes
    return text[1:]


def start(folder: Path, interval: float, level: int = logging.INFO) -> Heartbeat | None:
    """Return a heartbeat in `folder`; log at `level` and return None if its file cannot be used."""
    try:
        return Heartbeat(folder / NAME, interval)
    except OSError as problem:
        why = "another agent holds it" if isinstance(problem, BlockingIOError) else os_text(problem)
        log.log(level, "no heartbeat for `chipwatch status --health`: %s: %s", folder / NAME, why)
        return None
