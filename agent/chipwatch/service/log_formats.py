"""Logs to standard error: one line for each record, at a limited rate for each source."""

from __future__ import annotations

import io
import json
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TextIO

from chipwatch.base.redaction import one_line, without_secrets

log = logging.getLogger(__name__)

BURST: Final = 20
"""Most records that one source may log at once."""
REFILL: Final = 180.0
"""Seconds after which a source may log one more record: 20 an hour."""
HEAD: Final = 5
TAIL: Final = 25
"""Number of first and last lines of a traceback that are logged."""
MOST: Final = 200
"""Most records that are kept in memory."""
WIDTH: Final = 200
"""Most characters in a line of a traceback."""
PIPE_BUF: Final[int] = getattr(select, "PIPE_BUF", 512)
"""Bytes that a pipe takes without blocking if it is ready; POSIX guarantees 512."""
OURS: Final = ("chipwatch.", "chipwatch_sinks.")
"""Prefixes of our own loggers' names."""
PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""Level -> syslog priority, which journald reads from a prefix such as <4>: sd-daemon(3)."""


class LogStyle(StrEnum):
    """The reader of log records: a person at a terminal, a log file, journald, or a program that reads JSON."""

    TERMINAL, PLAIN, JOURNALD, JSON = "terminal", "plain", "journald", "json"


def style_of(log_format: str, stream: TextIO, env: Mapping[str, str] = os.environ) -> LogStyle:
    """Return the style for `stream`; JSON if `log_format` asks for it."""
    if log_format == "json":
        return LogStyle.JSON
    with suppress(OSError, ValueError):
        status = os.fstat(stream.fileno())
        if env.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}":  # as sd_journal_stream_fd documents
            return LogStyle.JOURNALD
    return LogStyle.TERMINAL if stream.isatty() else LogStyle.PLAIN


class Formatter(logging.Formatter):
    """
    Formats a record as one line; a traceback follows as indented lines, in JSON as a list.

    Only the agent's records show their traceback: one of a library may contain secrets.
    """

    def __init__(self, style: LogStyle = LogStyle.PLAIN) -> None:
        super().__init__()
        self._form = style

    def format(self, record: logging.LogRecord) -> str:
        message, traceback = record.getMessage(), []
        if record.exc_info and hasattr(record, "who"):
            traceback = _lines(self.formatException(record.exc_info))
        elif record.exc_info:
            message += f" ({record.exc_info[0].__name__ if record.exc_info[0] else 'no error'})"
        message = one_line(message) + getattr(record, "suppressed", "")
        time = datetime.fromtimestamp(record.created, UTC)
        if self._form is LogStyle.JSON:
            fields = {"time": _rfc3339(time), "level": record.levelname.lower(), "message": message}
            return json.dumps(fields | ({"traceback": traceback} if traceback else {}))
        lines = [f"chipwatch: {message}", *(f"    {line}" for line in traceback)]
        if self._form is LogStyle.JOURNALD:
            return "\n".join(f"<{PRIORITIES.get(record.levelno, 6)}>{line}" for line in lines)
        shown = f"{time.astimezone():%H:%M:%S}" if self._form is LogStyle.TERMINAL else _rfc3339(time)
        return "\n".join([f"{shown} {lines[0]}", *lines[1:]])


def _rfc3339(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(traceback: str) -> list[str]:
    """Return the first and last lines of a traceback, each cut to WIDTH."""
    lines = without_secrets(traceback).splitlines()
    if len(lines) > HEAD + TAIL:
        lines[HEAD:-TAIL] = [f"... {len(lines) - HEAD - TAIL} lines ..."]
    return [f"{' ' * min(4, len(line) - len(line.lstrip()))}{one_line(line, WIDTH)}" for line in lines]


class Unblocked(io.TextIOBase):
    """
    Writes to a file descriptor without waiting for its reader, because threads that read hardware also log.

    The descriptor stays in blocking mode: other processes share that mode.
    """

    def __init__(self, number: int, encoding: str = "utf-8") -> None:
        self._number, self._encoding, self._rest = number, encoding, b""

    def writable(self) -> bool:
        """Return True if all text so far is written and the reader takes more now."""
        self._drain()
        return not self._rest and self._is_ready()

    def write(self, text: str) -> int:
        """Write as much as the reader takes now; the rest goes before the next text."""
        self._rest += text.encode(self._encoding, "backslashreplace")
        self._drain()
        return len(text)

    def _drain(self) -> None:
        with suppress(OSError):  # the descriptor is closed
            while self._rest and self._is_ready():  # a pipe that is ready takes PIPE_BUF bytes
                self._rest = self._rest[os.write(self._number, self._rest[:PIPE_BUF]) :]

    def _is_ready(self) -> bool:
        with suppress(OSError):
            return bool(select.select([], [self._number], [], 0)[1])
        return False


class Handler(logging.StreamHandler[Any]):
    """
    Limits the rate of records of each source, except for debug records.

    A source is the plugin in the record's `who`, or without it the logger. Records above the limit, and records that
    the reader of `stream` does not take, are counted; the next logged record of that source shows the count.
    """

    def __init__(
        self, stream: Any, style: LogStyle = LogStyle.PLAIN, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Write to `stream` in `style`."""
        super().__init__(stream)
        self.setFormatter(Formatter(style))
        self._clock = clock
        self._sources: dict[str, tuple[float, float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        who, now = getattr(record, "who", record.name), self._clock()
        price = record.levelno > logging.DEBUG
        tokens, at, suppressed = self._sources.get(who, (BURST, now, 0))
        tokens = min(BURST, tokens + (now - at) / REFILL)
        if tokens < price or not self.stream.writable():
            self._sources[who] = (tokens, now, suppressed + 1)
            return
        self._sources[who] = (tokens - price, now, 0)
        if suppressed:
            record.suppressed = f" ({suppressed} messages before this one were not shown)"
        super().emit(record)


class Recent(logging.Handler):
    """Keeps the last records in memory, as text."""

    def __init__(self) -> None:
        """Keep the last MOST records."""
        super().__init__()
        self.setFormatter(Formatter())
        self.lines: deque[str] = deque(maxlen=MOST)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def to_stderr(level: str, log_format: str = "text") -> None:
    """
    Log records of `level` or above, and exceptions that end a thread or the program, to standard error.

    Records of libraries are logged from `warning` on; at the level `debug`, all of them.
    """
    logging.raiseExceptions = False
    stream = sys.stderr or io.StringIO()
    handler = Handler(_unblocked(stream), style_of(log_format, stream))
    if level != "debug":
        handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name.startswith(OURS))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    sys.excepthook = lambda *bug: log.critical("bug: the program ends", exc_info=bug, extra={"who": "agent"})
    threading.excepthook = _thread_ended


def _unblocked(stream: TextIO) -> TextIO | Unblocked:
    """Return `stream` as an Unblocked; `stream` itself if it has no descriptor that can be waited for."""
    try:
        number = stream.fileno()
        select.select([], [number], [], 0)
    except (OSError, ValueError):  # a buffer in memory
        return stream
    return Unblocked(number, stream.encoding)


def _thread_ended(bug: threading.ExceptHookArgs) -> None:
    name = bug.thread.name if bug.thread else "?"
    if bug.exc_value is not None:
        what = (bug.exc_type, bug.exc_value, bug.exc_traceback)
        log.error("bug: thread %s has ended", name, exc_info=what, extra={"who": "agent"})
