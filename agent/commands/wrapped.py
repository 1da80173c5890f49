"""The command that is run and watched: `agent ... -- COMMAND`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess  # noqa: TID251  # the one place that starts what the user names; never through a shell
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Final, Self

from agent.errors import text_of

log = logging.getLogger(__name__)

FORWARDED: Final = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
    if hasattr(signal, name)
)


class NotStarted(Exception):
    """The command could not be started; `code` is what a shell would end with (127 not found, 126 not executable)."""

    def __init__(self, message: str, code: int) -> None:
        """Take what went wrong and the exit code."""
        super().__init__(message)
        self.code = code


class WrappedCommand:
    """
    A child process: it has our standard streams and our signals, and its end is ours.

    What the terminal sends to the whole foreground group (Ctrl-C) reaches the child by itself, so it is not passed
    on a second time.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Start `command`; raise NotStarted."""
        try:
            self._child = subprocess.Popen(list(command))  # noqa: S603  # what the user asked for, no shell
        except FileNotFoundError:
            raise NotStarted(f"{command[0]}: command not found", 127) from None
        except OSError as problem:
            raise NotStarted(f"{command[0]}: {problem.strerror or problem}", 126) from problem
        self.pid = self._child.pid

    def __enter__(self) -> Self:
        """Return this command."""
        return self

    def __exit__(self, kind: type[BaseException] | None, bug: BaseException | None, _: TracebackType | None) -> bool:
        """Say what ended the agent's own work, if something did: the command goes on and still gets our signals."""
        if bug is not None:
            log.error("the command goes on without metrics: %s: %s", type(bug).__name__, text_of(bug), exc_info=bug)
        return bug is not None

    def on_end(self, call: Callable[[], None]) -> None:
        """Have `call` called from another thread when the command has ended."""

        def wait() -> None:
            self._child.wait()
            call()

        threading.Thread(target=wait, name="watched", daemon=True).start()

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on: a handler for `signal.signal`."""
        del frame
        if number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and _from_terminal():
            return
        if self._child.returncode is None:
            self._child.send_signal(number)

    def code(self) -> int:
        """Wait for the child; return its exit code, 128 + N if signal N ended it, as a shell does."""
        code = self._child.wait()
        return code if code >= 0 else 128 - code


def _from_terminal() -> bool:
    """Tell whether we are in the foreground of a terminal, which then signals the child as well."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123  # a device, not a path
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, AttributeError):
        return False
