"""What is logged to standard error: one line a record, and a bounded number of them from each who speaks."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from agent.logs.text import one_line, without_secrets

log = logging.getLogger(__name__)

BURST: Final = 20
"""Records that one speaker may log at once."""
REFILL: Final = 180.0
"""Seconds after which it may log one more: 20 an hour."""
HEAD: Final = 5
TAIL: Final = 25
"""Lines that are shown of a traceback, from its beginning and its end."""
WIDTH: Final = 200
"""Characters of a line of a traceback."""


class Formatter(logging.Formatter):
    """
    Writes a record on one line; the lines of a traceback follow indented.

    A traceback is shown of the agent's own records alone: a library may repeat in one what it must not tell.
    """

    def __init__(self) -> None:
        """Begin each line with time and level."""
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of `record`."""
        if record.exc_info and not hasattr(record, "who"):
            record = logging.makeLogRecord(record.__dict__)
            kind = record.exc_info and record.exc_info[0]
            record.msg, record.args = f"{record.getMessage()} ({kind.__name__ if kind else 'no error'})", None
            record.exc_info = record.exc_text = None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the standard library's name
        """Return the line of `record`."""
        record.message = one_line(record.message) + getattr(record, "unsaid", "")
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the standard library's name
        """Return the lines of a traceback."""
        lines = without_secrets(super().formatException(ei)).splitlines()
        if len(lines) > HEAD + TAIL:
            lines[HEAD:-TAIL] = [f"... {len(lines) - HEAD - TAIL} lines ..."]
        return "\n".join(f"    {' ' * min(4, len(line) - len(line.lstrip()))}{one_line(line, WIDTH)}" for line in lines)


class Handler(logging.StreamHandler[Any]):
    """
    Bounds what is logged from `info` up, by who speaks: a plugin (`who` of a record), else the name of the logger.

    What is above the bound is counted, and the count stands in the next record that is shown.
    """

    def __init__(self, stream: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to `stream`, else to standard error."""
        super().__init__(stream)
        self.setFormatter(Formatter())
        self._clock = clock
        self._speakers: dict[str, tuple[float, float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record`, or count it."""
        if record.levelno > logging.DEBUG:
            who, now = getattr(record, "who", record.name), self._clock()
            left, at, unsaid = self._speakers.get(who, (BURST, now, 0))
            left = min(BURST, left + (now - at) / REFILL)
            if left < 1:
                self._speakers[who] = (left, now, unsaid + 1)
                return
            self._speakers[who] = (left - 1, now, 0)
            if unsaid:
                record.unsaid = f" ({unsaid} messages before this one were not shown)"
        super().emit(record)


def to_stderr(level: str) -> None:
    """Log from `level` up to standard error; what ends a thread or the program unforeseen is logged as well."""
    logging.raiseExceptions = False
    logging.basicConfig(level=level.upper(), handlers=[Handler()], force=True)
    sys.excepthook = lambda *bug: log.critical("bug: the program ends", exc_info=bug, extra={"who": "agent"})
    threading.excepthook = _thread_ended


def _thread_ended(bug: threading.ExceptHookArgs) -> None:
    name = bug.thread.name if bug.thread else "?"
    if bug.exc_value is not None:
        what = (bug.exc_type, bug.exc_value, bug.exc_traceback)
        log.error("bug: thread %s has ended", name, exc_info=what, extra={"who": "agent"})
