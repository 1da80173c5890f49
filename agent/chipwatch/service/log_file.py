"""Logs to a file, for a run whose terminal belongs to another program."""

from __future__ import annotations

import io
import logging
import os
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.base.system import SAFE
from chipwatch.service import log_formats as formats

LOG_NAME: Final = "command.log"
"""Name of the file in the state folder."""
MAX_BYTES: Final = 2 << 20
"""Most bytes of the file, and of the file before it, whose name ends with `.1`."""
MAX_LINES: Final = 20
"""Most records that are kept in memory if the file cannot be written."""


class LogFile(io.TextIOBase):
    """
    A file of limited size, which only its owner may read; the first text creates it.

    Several processes may write to one file. `unwritten` has the last texts that could not be written.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, -1
        self.unwritten: deque[str] = deque(maxlen=MAX_LINES)

    def writable(self) -> bool:
        """Return True: `write` never waits or fails."""
        return True

    def write(self, text: str) -> int:
        data = text.encode(errors="backslashreplace")
        try:
            if self._file < 0:
                self._open()
            if os.fstat(self._file).st_size + len(data) > MAX_BYTES:
                self._rotate()
            os.write(self._file, data)
        except OSError:
            self.unwritten.append(text)
        return len(text)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | SAFE, 0o600)

    def _rotate(self) -> None:
        """Begin a new file, unless another process has already done so."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._file)):
                self._path.replace(f"{self._path}.1")
        self.close()
        self._open()


class FileHandler(formats.Handler):
    """Writes records to a LogFile; counts warnings and errors."""

    def __init__(self, path: Path) -> None:
        self._path, self._text = path, LogFile(path)
        super().__init__(self._text)
        self._counts: Counter[bool] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._counts[record.levelno >= logging.ERROR] += 1
        super().emit(record)

    def trouble(self, *, only_errors: bool) -> list[str]:
        """Return a line that names the file if warnings or errors were logged, then the texts that it lacks."""
        counts = {"error": self._counts[True], "warning": 0 if only_errors else self._counts[False]}
        totals = " and ".join(f"{n:,} {word}{'s' if n > 1 else ''}" for word, n in counts.items() if n)
        if not totals:
            return []
        lines = [line for text in self._text.unwritten for line in text.splitlines()]
        fault = ", which cannot be written:" if lines else ""
        return [one_line(f"chipwatch: {totals} logged in {self._path}{fault}"), *lines]


def to_file(level: str, path: Path) -> FileHandler:
    """Log records of `level` or above only to the file; return its handler."""
    handler = FileHandler(path)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return handler
