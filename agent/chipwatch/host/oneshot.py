"""Runs a program that prints an answer and ends, at intervals and without waiting for it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chipwatch.host.pipe import CHUNK, MAX_READ
from chipwatch.host.supervised_process import GRACE, ChildProcess, exit_text


class QueryFailed(Exception):
    """A program or a library gave no usable answer."""


class ProgramOutput(NamedTuple):
    """The output of a run."""

    data: bytes
    """Standard output."""
    how: str
    """For a message about unusable output: how the run ended and the last line of standard error, or ""."""


class OneShot:
    """
    Runs a command periodically; `poll` returns its output without waiting.

    There is one run at a time. One that takes too long, or prints too much, gets SIGTERM, then SIGKILL; the next one
    begins after its end.
    """

    def __init__(self, interval: float, timeout: float) -> None:
        """`interval`: seconds from one start to the next; `timeout`: most seconds of a run."""
        self._interval, self._timeout = interval, timeout
        self._process: ChildProcess | None = None
        self._data = b""
        self._due = self._deadline = 0.0
        self._cancelled = False

    def poll(self, command: Sequence[str | Path], now: float, *, start: bool = True) -> ProgramOutput | None:
        """
        Return the output of a run once it has ended, else None; raise QueryFailed, once a run.

        Starts `command` if none runs, the interval is over and `start` is true. `now`: monotonic seconds.
        """
        process = self._process
        if process is None:
            if start and now >= self._due:
                self._start(command, now)
            return None
        code = process.child.poll()  # before its output is read, so that all of it is in the pipe
        more = b"".join(process.stdout.chunks(MAX_READ + 1 - len(self._data)))
        self._data += more
        process.read_stderr()
        if code is not None:
            self.close()
            how = f" ({exit_text(code)})" if code else ""
            return None if self._cancelled else ProgramOutput(self._data, how + process.last_error())
        if self._cancelled:
            if now > self._deadline:
                process.send(signal.SIGKILL)
            return None
        too_much = len(self._data) > MAX_READ
        # A run that had filled the pipe was waiting for this reading.
        if too_much or (now > self._deadline and len(more) < CHUNK // 2):
            self._cancelled, self._deadline = True, now + GRACE
            process.send(signal.SIGTERM)
            name = Path(command[0]).name
            raise QueryFailed(f"{name} {'printed too much' if too_much else f'gave no answer in {self._timeout:g} s'}")
        return None

    def run_now(self) -> None:
        """Let the next run start without waiting for the interval."""
        self._due = 0.0

    def close(self) -> None:
        """Kill the run, if any; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.end(signal.SIGKILL)

    def _start(self, command: Sequence[str | Path], now: float) -> None:
        self._data, self._cancelled = b"", False
        self._due, self._deadline = now + self._interval, now + self._timeout
        try:
            self._process = ChildProcess(command)
        except OSError as error:
            raise QueryFailed(f"{Path(command[0]).name} cannot be started: {error.strerror}") from error
