"""Logs to standard error: one line for each record, and a limited number of records from each source."""

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
"""Records that one source may log at once."""
REFILL: Final = 180.0
"""Seconds after which it may log one more: 20 an hour."""
HEAD: Final = 5
TAIL: Final = 25
"""First and last lines of a traceback that are logged."""
WIDTH: Final = 200
"""Longest line of a traceback."""


class Formatter(logging.Formatter):
    """
    Formats a record as one line with time and level; the lines of a traceback follow indented.

    Only tracebacks of the agent's own records are logged, because those of libraries may contain secrets.
    """

    def __init__(self) -> None:
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
        record.message = one_line(record.message) + getattr(record, "suppressed", "")
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the standard library's name
        """Return the lines of a traceback."""
        lines = without_secrets(super().formatException(ei)).splitlines()
        if len(lines) > HEAD + TAIL:
            lines[HEAD:-TAIL] = [f"... {len(lines) - HEAD - TAIL} lines ..."]
        return "\n".join(f"    {' ' * min(4, len(line) - len(line.lstrip()))}{one_line(line, WIDTH)}" for line in lines)


class Handler(logging.StreamHandler[Any]):
    """
    Limits records from `info` up for each source: the plugin in the record's `who`, else the logger's name.

    Records above the limit are counted, and the next logged record shows the count.
    """

    def __init__(self, stream: Any = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to `stream`, by default to standard error."""
        super().__init__(stream)
        self.setFormatter(Formatter())
        self._clock = clock
        self._sources: dict[str, tuple[float, float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write or count `record`."""
        if record.levelno > logging.DEBUG:
            who, now = getattr(record, "who", record.name), self._clock()
            tokens, at, suppressed = self._sources.get(who, (BURST, now, 0))
            tokens = min(BURST, tokens + (now - at) / REFILL)
            if tokens < 1:
                self._sources[who] = (tokens, now, suppressed + 1)
                return
            self._sources[who] = (tokens - 1, now, 0)
            if suppressed:
                record.suppressed = f" ({suppressed} messages before this one were not shown)"
        super().emit(record)


def to_stderr(level: str) -> None:
    """Log records from `level` up to standard error, and exceptions that end a thread or the program."""
    logging.raiseExceptions = False
    logging.basicConfig(level=level.upper(), handlers=[Handler()], force=True)
    sys.excepthook = lambda *bug: log.critical("bug: the program ends", exc_info=bug, extra={"who": "agent"})
    threading.excepthook = _thread_ended


def _thread_ended(bug: threading.ExceptHookArgs) -> None:
    name = bug.thread.name if bug.thread else "?"
    if bug.exc_value is not None:
        what = (bug.exc_type, bug.exc_value, bug.exc_traceback)
        log.error("bug: thread %s has ended", name, exc_info=what, extra={"who": "agent"})
