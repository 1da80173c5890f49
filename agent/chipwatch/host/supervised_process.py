"""Runs a program that prints lines: reads it without a thread and without waiting, and restarts it."""

from __future__ import annotations

import atexit
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from chipwatch.errors import Unavailable
from chipwatch.host.pipe import CLOSED, MAX_READ, LineSplitter, Pipe

MAX_STDERR: Final = 4096
"""Bytes kept of standard error."""
STARTUP: Final = 10.0
"""Seconds that the first line may take in addition to the timeout."""
STABLE: Final = 10
"""Lines after which a start succeeded, which resets the back-off."""
MAX_BACKOFF: Final = 300.0
"""Most seconds between two starts."""
GRACE: Final = 1.0
"""Seconds to wait for the end of a process after each signal."""
STARTUP_WAIT: Final = 2.5
"""Seconds after the start in which readings wait for the first output, so that a single reading has values."""
_running: Final[set[ChildProcess]] = set()


def find_program(name: str, path: Path | None, *places: Path) -> Path:
    """Return the program `name`: at `path` if that is set, else in PATH, else at one of `places`; raise Unavailable."""
    if path is not None:
        if not path.exists():
            raise Unavailable(f"{path} is absent")
        return path
    for place in (*(Path(folder) / name for folder in os.get_exec_path()), *places):
        if os.access(place, os.X_OK) and place.is_file():
            return place
    raise Unavailable(f"no {name}: neither in PATH nor {' nor '.join(map(str, places)) or 'anywhere else'}")


def quoted(text: bytes | str, limit: int = 120) -> str:
    """Return text of another program for a message: one line, cut; N for each number, so that repeats are equal."""
    start = text[: 4 * limit] if isinstance(text, str) else text[: 4 * limit].decode(errors="replace")
    shown = "".join(c if c.isprintable() else " " for c in start)
    return re.sub(r"\d+", "N", " ".join(shown.split()))[:limit]


class ChildProcess:
    """A running program in a separate process group; reading its output never waits."""

    def __init__(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, *, pipe_size: int = 0
    ) -> None:
        """Start it; raise OSError."""
        import subprocess  # noqa: PLC0415, TID251  # costs memory; imported only where the tool exists; no shell

        self._expired = subprocess.TimeoutExpired
        self.child = subprocess.Popen(  # noqa: S603  # a fixed name, or what the configuration says
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the agent, which ends the program itself
        )
        _running.add(self)
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        self.stdout = Pipe(self.child.stdout.fileno(), size=pipe_size)
        self._stderr = Pipe(self.child.stderr.fileno())
        self._tail = b""

    def read_stderr(self) -> None:
        """Read standard error; keep the end of it."""
        for data in self._stderr.chunks():
            self._tail = (self._tail + data)[-MAX_STDERR:]

    def last_error(self) -> str:
        """Return the last line of standard error for a message, or ""."""
        lines = [line for line in (self._tail.rpartition(b"\n")[0] or self._tail).split(b"\n") if line.strip()]
        return f" (it said: {quoted(lines[-1])})" if lines else ""

    def wait(self) -> None:
        """Wait for the end, at most GRACE seconds."""
        with suppress(self._expired):
            self.child.wait(GRACE)

    def send(self, number: int) -> None:
        """Send a signal to the process group."""
        with suppress(OSError):
            os.killpg(self.child.pid, number)

    def end(self, *signals: int) -> None:
        """Send the signals one by one until it ends, waiting after each, and close the pipes."""
        for number in signals:
            if self.child.poll() is None:
                self.send(number)
                self.wait()
        for reader, file in (self.stdout, self.child.stdout), (self._stderr, self.child.stderr):
            assert file is not None
            reader.ended = CLOSED  # another thread may be reading
            file.close()
        _running.discard(self)


@atexit.register
def _end_all() -> None:
    """Kill processes that ignore SIGTERM, whose daemon thread had no time to send SIGKILL."""
    for process in list(_running):
        process.send(signal.SIGTERM)
    for process in list(_running):
        process.end(signal.SIGTERM, signal.SIGKILL)


class SupervisedProcess:
    """
    Runs a program that prints lines, either continuously or, if `interval` is set, once a run.

    It is read at each tick; while the pipe is full, the program waits. A program that ends too early, or is silent for
    too long, is restarted with back-off. `close` ends it by SIGTERM, then SIGKILL; if the agent itself is killed, it
    ends by SIGPIPE at its next line.
    """

    max_read = MAX_READ
    """Bytes read in one tick."""
    pipe_size = 0
    """Bytes that the pipe should hold; 0: the kernel's default."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        timeout: float,
        interval: float | None = None,
        environment: Mapping[str, str] | None = None,
        name: str = "",
    ) -> None:
        """`timeout`: seconds without a line after which it hangs; `interval`: seconds between two clean runs."""
        self.command, self._name = command, name or Path(command[0]).name
        self.finished = False
        """True if the last lines ended a clean run."""
        self.failures = 0
        """Failed starts in a row."""
        self._timeout, self._interval, self._environment = timeout, interval, environment
        self._process: ChildProcess | None = None
        self._splitter = self._new_splitter()
        self._count = 0
        self._started = self._deadline = self._start_at = 0.0
        self._reason: str | None = None
        self._problems: dict[str, None] = {}

    def open(self, now: float) -> None:
        """Start it for the first time; raise Unavailable."""
        try:
            self.start(now)
        except OSError as error:
            raise Unavailable(f"{self.command[0]} cannot be started: {error.strerror}") from error

    def start(self, now: float) -> None:
        """Start it at `now` (monotonic s); raise OSError."""
        self._splitter.take_rest()
        self._count, self._started, self._deadline = 0, now, now + self._timeout + STARTUP
        self._process = ChildProcess(self.command, self._environment, pipe_size=self.pipe_size)

    def lines(self, now: float) -> list[bytes]:
        """Return the lines that are available, none of them blank; restart the program if that is due."""
        lines = list(self.read(now))
        if lines:
            self.note_lines(now, len(lines))
        return lines + self.check(now)

    def read(self, now: float) -> Iterator[bytes]:
        """Yield the lines that are available; restart the program if that is due. Call `check` after it."""
        self.finished = False
        if self._process is None and not self._restart(now):
            return
        if (process := self._process) is None:  # closed by another thread
            return
        for data in process.stdout.chunks(self.max_read, self._splitter.wait_ms):
            yield from self._splitter.split(data)
        process.read_stderr()

    def note_lines(self, now: float, lines: int = 1) -> None:
        """Note that lines were valid: the program works."""
        self._count += lines
        self._deadline = now + self._timeout

    def check(self, now: float) -> list[bytes]:
        """Handle a program that has ended or hangs; return its unfinished last line after a clean run."""
        process = self._process
        if process is None:
            return []
        if process.stdout.ended or (process.child.poll() is not None and not process.stdout.is_readable()):
            return self._ended(process, now)
        if now >= self._deadline:
            self._fail(now, "prints nothing")
        return []

    def problems(self) -> list[str]:
        """Return the problems since the last call, and why the program does not run."""
        problems, self._problems = list(self._problems), {}
        return problems

    def close(self) -> None:
        """End it and its own children; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.end(signal.SIGTERM, signal.SIGKILL)

    def _new_splitter(self) -> LineSplitter:
        return LineSplitter(self._report)

    def _restart(self, now: float) -> bool:
        if now < self._start_at:
            if self._reason:
                self._problems[self._reason] = None
            return False
        try:
            self.start(now)
        except OSError as error:
            self._fail(now, f"cannot be started: {error.strerror}")
            return False
        return True

    def _ended(self, process: ChildProcess, now: float) -> list[bytes]:
        process.wait()  # a program closes its output a moment before it ends
        process.read_stderr()
        code, rest = process.child.poll(), self._splitter.take_rest()
        if code == 0 and self._interval is not None:
            self.close()
            self.finished, self.failures, self._reason = True, 0, None
            self._start_at = self._started + self._interval
            return [rest] if rest.strip() else []
        # At a stop the service manager sends SIGTERM to the program too. Otherwise the next tick reports it.
        self._fail(now, exit_text(code), report=code != -signal.SIGTERM)
        return []

    def _fail(self, now: float, how: str, *, report: bool = True) -> None:
        said = self._process.last_error() if self._process else ""
        self.close()
        self.failures = 1 if self._count >= STABLE else self.failures + 1
        self._start_at = now + min(MAX_BACKOFF, 2.0 ** min(self.failures, 16))
        self._reason = f"{self._name} {how}; it is started again later{said}"
        if report:
            self._problems[self._reason] = None

    def _report(self, problem: str) -> None:
        self._problems[f"{self._name}: {problem}"] = None


class StartupWait:
    """Makes readings wait for a program's first output: STARTUP_WAIT in all, each at most 80 % of an interval."""

    def __init__(self, interval: float) -> None:
        """Start the clock; `interval`: seconds between two ticks."""
        self._interval, self._until = interval, time.monotonic() + STARTUP_WAIT

    def wait(self, ready: Callable[[], bool]) -> None:
        """Call `ready`, at least once, until it returns True or the time is over."""
        until = min(self._until, time.monotonic() + 0.8 * self._interval)
        while not ready() and time.monotonic() < until:
            time.sleep(0.02)

    @property
    def is_over(self) -> bool:
        """True if readings do not wait any more."""
        return time.monotonic() >= self._until


def exit_text(code: int | None) -> str:
    """Describe the end of a process by its exit code; None: it still runs."""
    if code is None:
        return "closed its output"
    return f"ended with {code}" if code >= 0 else f"was ended by signal {-code}"
