"""The wrapped command of `agent ... -- COMMAND`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess  # noqa: TID251  # starts the user's command, never through a shell
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Final, Self

from agent.errors import CommandError, text_of

log = logging.getLogger(__name__)

FORWARDED: Final = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCONT")
    if hasattr(signal, name)
)


class NotStarted(CommandError):
    """The command could not be started; `code` is a shell's exit code (127 not found, 126 not executable)."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class WrappedCommand:
    """
    A child process with our standard streams; signals are forwarded to it, and the agent ends when it ends.

    A signal that the terminal sends to the foreground process group (Ctrl-C) is not forwarded, because the child has
    already received it.
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
        """Log the exception that ended the agent's work; the command goes on and still receives our signals."""
        if bug is not None:
            log.error("the command goes on without metrics: %s: %s", type(bug).__name__, text_of(bug), exc_info=bug)
        return bug is not None

    def on_end(self, call: Callable[[], None]) -> None:
        """Call `call` on another thread when the command has ended."""

        def wait() -> None:
            self._child.wait()
            call()

        threading.Thread(target=wait, name="watched", daemon=True).start()

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Forward a signal; a handler for `signal.signal`."""
        del frame
        if number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and _from_terminal():
            return
        if self._child.returncode is None:
            self._child.send_signal(number)

    def code(self) -> int:
        """Wait for the child; return its exit code, or 128 + N if signal N ended it, as in a shell."""
        code = self._child.wait()
        return code if code >= 0 else 128 - code


def _from_terminal() -> bool:
    """Return whether this process is in the foreground of a terminal, which signals the child too."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123  # a device, not a path
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except (OSError, AttributeError):
        return False
