"""The command that a user wraps: `chipwatch run -- COMMAND` starts it, and ends when it ends."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
import subprocess  # noqa: TID251  # starts the user's command, never through a shell
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

from chipwatch.contract.errors import CommandError, os_text, text_of

log = logging.getLogger(__name__)

FORWARDED: Final = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT,
)  # fmt: skip
BLOCK: Final = 512
"""Bytes of one unit of ru_inblock and ru_oublock on Linux: include/linux/task_io_accounting_ops.h."""
MAXRSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024
"""Bytes of one unit of ru_maxrss."""
BRIEFLY: Final = 0.05
"""Seconds of one wait of the main thread, which must run the handlers of signals in between."""
LOCAL_RANKS: Final = ("SLURM_LOCALID", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
"""Variables with the rank of this process on this machine, of Slurm's srun, PyTorch's torchrun, Open MPI's mpirun."""


class NotStarted(CommandError):
    """The command could not be started; `code` is the exit code of a shell: 127 if not found, else 126."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class SystemUsage:
    """The usage of a process tree, as the system counts it; 0 if unknown."""

    seconds = 0.0
    """Wall time in seconds."""
    _usage: Any = None
    """The answer of `wait4` at the end of the first process."""

    def cpu_seconds(self) -> float:
        """Return the CPU time in seconds of the first process and of all descendants that were reaped."""
        return self._usage.ru_utime + self._usage.ru_stime if self._usage else 0.0

    def largest_process(self) -> int:
        """Return the peak memory of the largest process in bytes; 0 if it is not above our own."""
        largest: int = self._usage.ru_maxrss if self._usage else 0  # on Linux, a child's count begins at its parent's
        return largest * MAXRSS_UNIT if largest > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss else 0

    def storage_bytes(self) -> tuple[int, int]:
        """Return the bytes that were read from storage and written to it."""
        if self._usage and sys.platform == "linux":  # other systems count operations, not blocks
            return self._usage.ru_inblock * BLOCK, self._usage.ru_oublock * BLOCK
        return 0, 0


class WrappedCommand(SystemUsage):
    """
    A child process that has our standard streams, and gets our signals.

    It stays in our process group, so that the terminal and the shell's job control treat both as one job. Ctrl-C is not
    forwarded, since the terminal sends its signal to the whole group.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """Start the command; raise NotStarted."""
        self.command = tuple(command)
        self._started = time.monotonic()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # exit codes are lost if our parent left it ignored
        try:
            self._child = subprocess.Popen(self.command)  # noqa: S603  # what the user asked for, no shell
        except FileNotFoundError:
            if shutil.which(command[0]):  # it is a script, and its interpreter is missing
                raise NotStarted(f"{command[0]}: the program that its first line names was not found", 126) from None
            raise NotStarted(f"{command[0]}: command not found", 127) from None
        except OSError as problem:
            raise NotStarted(f"{command[0]}: {os_text(problem)}", 126) from problem
        self.pid = self._child.pid
        self._waiting = threading.Lock()

    def __enter__(self) -> Self:
        """Leave standard error to the command: redirect our own to nowhere, since libraries in C also write to it."""
        self.standard_error, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
        return self

    def __exit__(self, kind: type[BaseException] | None, bug: BaseException | None, _: TracebackType | None) -> bool:
        """
        Wait for the end of the command, then take our standard error back.

        If an exception ended the agent's work, log it. The command goes on and still gets our signals.
        """
        if bug is not None:
            log.error("the command goes on without metrics: %s: %s", type(bug).__name__, text_of(bug), exc_info=bug)
        self.code()
        os.dup2(self.standard_error, 2)
        os.close(self.standard_error)
        return bug is not None

    @property
    def has_ended(self) -> bool:
        """True once the command has ended."""
        return self._child.returncode is not None

    def end(self) -> tuple[str, int] | tuple[()]:
        """Return a sentence on its end, without its arguments, and its exit code; nothing before."""
        return (f"{self.command[0].rpartition('/')[2]} ended with {self.code()}", self.code()) if self.has_ended else ()

    def on_end(self, call: Callable[[], None]) -> None:
        """Call `call` on another thread once the command has ended."""

        def wait() -> None:
            self.code()
            call()

        threading.Thread(target=wait, name="wrapped", daemon=True).start()

    def forward(self, number: int, frame: FrameType | None) -> None:
        """Send a signal to the command; a handler for `signal.signal`."""
        del frame
        if number in (signal.SIGINT, signal.SIGQUIT) and _from_terminal():
            return
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def code(self) -> int:
        """Wait for the command; return its exit code, or 128 + N if signal N ended it, as a shell does."""
        # Python calls a signal's handler only between two waits, so each wait of the main thread is short.
        is_main = threading.current_thread() is threading.main_thread()
        while not self._waiting.acquire(timeout=BRIEFLY if is_main else -1):
            pass
        try:
            while not self.has_ended:
                self._wait(BRIEFLY if is_main else None)
        finally:
            self._waiting.release()
        code = self._child.returncode
        return code if code >= 0 else 128 - code

    def _wait(self, longest: float | None) -> None:
        """Wait for the command, at most `longest` seconds."""
        pid, status, usage = os.wait4(self.pid, 0 if longest is None else os.WNOHANG)
        if pid:
            self._usage, self._child.returncode = usage, os.waitstatus_to_exitcode(status)
        else:
            time.sleep(longest or 0)
        self.seconds = time.monotonic() - self._started

    def tell(self, line: str) -> None:
        """Print a line on the command's standard error."""
        with suppress(OSError):
            os.write(self.standard_error, f"{line}\n".encode())


def is_first_rank(env: Mapping[str, str]) -> bool:
    """Return whether this is the process with rank 0 of its job on this machine."""
    return all(env.get(name, "0") == "0" for name in LOCAL_RANKS)


def _from_terminal() -> bool:
    """Return whether this process is in the foreground of a terminal, which then signals the child itself."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:  # noqa: PTH123  # a device, not a path
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
