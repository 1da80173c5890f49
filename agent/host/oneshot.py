"""A command-line tool that answers and ends: run now and then as a child, and never waited for."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agent.host.supervised_process import CHUNK, MOST, PATIENCE, TAIL, begun, end, how_ended, read_now, said_last, tell

if TYPE_CHECKING:
    import subprocess  # noqa: TID251  # the type alone


class Trouble(Exception):
    """A tool gave nothing to be used; says why."""


class Answer(NamedTuple):
    """What a run gave."""

    data: bytes
    """Its output."""
    how: str
    """For a message, where the output is of no use: how it ended and what it said on standard error, or nothing."""


class OneShot:
    """
    Owns a tool that is run at a pace of its own, and heard when a tick asks.

    At most one run at a time. One that takes too long, or prints too much, is told to end, and killed if it does not:
    as long as it lives no other one begins. What runs when the agent ends is killed by `close`.
    """

    def __init__(self, pace: float, patience: float) -> None:
        """Take the seconds from one start to the next, and how many a run may take."""
        self._pace, self._patience = pace, patience
        self._child: subprocess.Popen[bytes] | None = None
        self._data = self._tail = b""
        self._due = self._deadline = 0.0
        self._late = False

    def poll(self, command: Sequence[str | Path], now: float, *, start: bool = True) -> Answer | None:
        """
        Return what a run gave, in the tick that finds it ended, else None; never wait; raise Trouble, once for a run.

        Where none runs, `command` is begun if that is due and `start` allows it. `now` in s, of a steady clock.
        """
        name, child = Path(command[0]).name, self._child
        if child is None:
            if start and now >= self._due:
                self._begin(command, now)
            return None
        code = child.poll()  # before it is read: what it printed last is then in the pipe
        more = read_now(child.stdout, MOST + 1 - len(self._data))[0]
        self._data += more
        self._tail = (self._tail + read_now(child.stderr, MOST)[0])[-TAIL:]
        if code is not None:
            self.close()
            how = f" ({how_ended(code)})" if code else ""
            return None if self._late else Answer(self._data, how + said_last(self._tail))
        if self._late:
            if now > self._deadline:  # it is deaf
                tell(child, signal.SIGKILL)
            return None
        too_much = len(self._data) > MOST
        # One that had filled the pipe waited for us, not we for it.
        if too_much or (now > self._deadline and len(more) < CHUNK // 2):
            self._late, self._deadline = True, now + PATIENCE
            tell(child, signal.SIGTERM)
            raise Trouble(f"{name} {'printed too much' if too_much else f'gave no answer in {self._patience:g} s'}")
        return None

    def again(self) -> None:
        """Let the next run begin at once."""
        self._due = 0.0

    def close(self) -> None:
        """Kill what runs; safe to call twice."""
        child, self._child = self._child, None
        if child is not None:
            end(child, signal.SIGKILL)

    def _begin(self, command: Sequence[str | Path], now: float) -> None:
        self._data, self._tail, self._late = b"", b"", False
        self._due, self._deadline = now + self._pace, now + self._patience
        try:
            self._child = begun(command)
        except OSError as error:
            raise Trouble(f"{Path(command[0]).name} cannot be started: {error.strerror}") from error
