"""Runs other programs, and reads their output without a thread and without waiting."""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.base.redaction import without_secrets
from chipwatch.contract.errors import Unavailable

CHUNK: Final = 1 << 16
"""Most bytes of one read."""
MAX_READ: Final = 4 << 20
"""Most bytes that are read in one tick; the rest stays in the pipe, and the program waits."""
MAX_LINE: Final = 1 << 20
"""Most bytes of a line; the longest line of a known tool has about 10 kB."""
CLOSED: Final = "closed"
MAX_STDERR: Final = 4096
"""Bytes that are kept from the end of standard error."""
STARTUP: Final = 10.0
"""Seconds that the first line may take, in addition to the timeout."""
STABLE: Final = 10
"""Lines after which a start counts as good, so that the back-off begins again."""
MAX_BACKOFF: Final = 300.0
"""Longest back-off in seconds."""
GRACE: Final = 1.0
"""Seconds to wait after each signal for the end of a process."""
_running: Final[set[ChildProcess]] = set()


def find_program(name: str, path: Path | None, *places: Path) -> Path:
    """Return the path of a program: `path` if set, else from PATH, else one of `places`; raise Unavailable."""
    if path is not None:
        if not path.exists():
            raise Unavailable(f"{path} is absent")
        return path
    for place in (*(Path(folder) / name for folder in os.get_exec_path()), *places):
        if os.access(place, os.X_OK) and place.is_file():
            return place
    raise Unavailable(f"no {name}: neither in PATH nor {' nor '.join(map(str, places)) or 'anywhere else'}")


def quoted(text: bytes | str, limit: int = 120, *, exact: bool = False) -> str:
    """
    Return the text of another program for a message: on one line, at most `limit` characters, without secrets.

    Unless `exact` is set, N stands for each number, so that a repeated message is equal to the first.
    """
    start = text[: 4 * limit] if isinstance(text, str) else text[: 4 * limit].decode(errors="replace")
    shown = " ".join("".join(c if c.isprintable() else " " for c in without_secrets(start)).split())
    return (shown if exact else re.sub(r"\d+", "N", shown))[:limit]


class LineSplitter:
    """Splits a stream of bytes into lines. Blank lines and lines that are too long are left out."""

    what = "a line"
    """Name of a line in messages."""

    max_size = MAX_LINE

    def __init__(self, report: Callable[[str], None], max_size: int | None = None) -> None:
        """Call `report` with a message for a line of more than `max_size` bytes."""
        self._report, self._max_size = report, max_size or self.max_size
        self._reset(skipping=False)

    def split(self, data: bytes) -> Iterator[bytes]:
        """Take the next bytes; yield the lines that end in them."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece)
            yield from self._end_line()
        self._add(rest)

    def wait_ms(self) -> int:
        """Return how many milliseconds to wait for more data."""
        return 0

    def take_rest(self) -> bytes:
        """Return the line that has not ended, and forget it; b"" if there is none, or it was too long."""
        rest = b"" if self._skipping else b"".join(self._line)
        self._reset(skipping=False)
        return rest

    def _add(self, piece: bytes) -> None:
        if self._skipping or not piece:
            return
        self._size += len(piece)
        if self._size > self._max_size:
            self._report(f"{self.what} above {self._max_size >> 20} MiB was skipped")
            self._reset(skipping=True)
        else:
            self._line.append(piece)

    def _end_line(self) -> Iterator[bytes]:
        line = self.take_rest()
        if line.strip():
            yield line

    def _reset(self, *, skipping: bool) -> None:
        self._line, self._size, self._skipping = list[bytes](), 0, skipping


class Pipe:
    """
    Reads a pipe, or a file, without waiting.

    It polls before each read. It does not set the descriptor to non-blocking, since other processes share that mode.
    """

    def __init__(self, fd: int, *, size: int = 0) -> None:
        """Read from `fd`, which the caller closes; if `size` is set, ask the kernel for a pipe of so many bytes."""
        self._fd, self._poll = fd, select.poll()
        self._poll.register(fd, select.POLLIN)
        self.ended: str | None = None
        """None while it is open, CLOSED after its end, or the text of an error."""
        if size and sys.platform == "linux":
            with suppress(OSError):  # not a pipe, or more than this user may have
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)

    def chunks(self, limit: int = MAX_READ, wait: Callable[[], int] = lambda: 0) -> Iterator[bytes]:
        """Yield the data that are there, about `limit` bytes; before each read, wait for `wait()` milliseconds."""
        while limit > 0 and self.ended is None and self.is_readable(wait()):
            try:
                data = os.read(self._fd, CHUNK)
            except BlockingIOError:
                return
            except OSError as error:
                self.ended = error.strerror or str(error)
                return
            if not data:
                self.ended = CLOSED
                return
            limit -= len(data)
            yield data

    def is_readable(self, milliseconds: int = 0) -> bool:
        """Return whether data or the end can be read, now or within `milliseconds`."""
        return bool(self._poll.poll(milliseconds))


class ChildProcess:
    """A running program, in a process group for itself. Reading its output never waits."""

    def __init__(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, *, pipe_size: int = 0
    ) -> None:
        """Start the program; raise OSError."""
        import subprocess  # noqa: TID251

        self._expired = subprocess.TimeoutExpired
        self.child = subprocess.Popen(  # noqa: S603  # a fixed name, or a command of the configuration
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            start_new_session=True,  # Ctrl-C must reach only the agent, which then ends the program
        )
        _running.add(self)
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        self.stdout = Pipe(self.child.stdout.fileno(), size=pipe_size)
        self._stderr = Pipe(self.child.stderr.fileno())
        self._tail = b""

    def read_stderr(self) -> None:
        """Read standard error, and keep the end of it."""
        for data in self._stderr.chunks():
            self._tail = (self._tail + data)[-MAX_STDERR:]

    def last_error(self, *, exact: bool) -> str:
        """Return the last line of standard error, as a part of a message; "" if it is empty."""
        lines = [line for line in (self._tail.rpartition(b"\n")[0] or self._tail).split(b"\n") if line.strip()]
        return f" (it said: {quoted(lines[-1], exact=exact)})" if lines else ""

    def wait(self) -> None:
        """Wait for the end of the program, at most GRACE seconds."""
        with suppress(self._expired):
            self.child.wait(GRACE)

    def send(self, number: int) -> None:
        """Send a signal to the program's process group."""
        with suppress(OSError):
            os.killpg(self.child.pid, number)

    def end(self, *signals: int) -> None:
        """Send signals, and wait after each, until the program ends; then close the pipes."""
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
    """End the programs that still run at the exit of the agent; kill those that ignore SIGTERM."""
    for process in list(_running):
        process.send(signal.SIGTERM)
    for process in list(_running):
        process.end(signal.SIGTERM, signal.SIGKILL)


class SupervisedProcess:
    """
    Runs a program that prints lines all the time.

    The lines are read at each tick; while the pipe is full, the program waits. A program that ends, or is silent for
    too long, is restarted with back-off. `close` ends it by SIGTERM, then SIGKILL. If the agent itself is killed,
    SIGPIPE ends the program at its next line.
    """

    max_read = MAX_READ
    """Most bytes that are read in one tick."""
    pipe_size = 0
    """Bytes that the pipe should hold; 0: as many as the kernel chooses."""
    splitter: type[LineSplitter] = LineSplitter
    """Splits its output into lines."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        timeout: float,
        environment: Mapping[str, str] | None = None,
        name: str = "",
        exact: bool = False,
    ) -> None:
        """Take a command that hangs after `timeout` seconds without a line; see `quoted` for `exact`."""
        self.command, self._name = command, name or Path(command[0]).name
        self.failures = 0
        """Number of failed starts in a row."""
        self._timeout, self._environment, self._exact = timeout, environment, exact
        self._process: ChildProcess | None = None
        self._splitter = self.splitter(self._report)
        self._count, self._deadline, self._start_at = 0, 0.0, 0.0
        self._reason: str | None = None
        self._problems: dict[str, None] = {}

    def open(self, now: float) -> None:
        """Start the program for the first time; raise Unavailable."""
        try:
            self.start(now)
        except OSError as error:
            raise Unavailable(f"{self.command[0]} cannot be started: {error.strerror}") from error

    def start(self, now: float) -> None:
        """Start the program at `now` (monotonic seconds); raise OSError."""
        self._splitter.take_rest()
        self._count, self._deadline = 0, now + self._timeout + STARTUP
        self._process = ChildProcess(self.command, self._environment, pipe_size=self.pipe_size)

    def lines(self, now: float) -> list[bytes]:
        """Return the new lines, except blank ones; restart the program if it is due."""
        if lines := list(self.read(now)):
            self.note_lines(now, len(lines))
        self.check(now)
        return lines

    def read(self, now: float) -> Iterator[bytes]:
        """Yield the new lines; restart the program if it is due. Call `check` afterwards."""
        if self._process is None and not self._restart(now):
            return
        if (process := self._process) is None:  # closed by another thread
            return
        for data in process.stdout.chunks(self.max_read, self._splitter.wait_ms):
            yield from self._splitter.split(data)
        process.read_stderr()

    def note_lines(self, now: float, lines: int = 1) -> None:
        """Note that so many lines were valid, so the program works."""
        self._count += lines
        self._deadline = now + self._timeout

    def check(self, now: float) -> None:
        """Check whether the program has ended or hangs, and plan its restart."""
        process = self._process
        if process is None:
            return
        if process.stdout.ended or (process.child.poll() is not None and not process.stdout.is_readable()):
            process.wait()  # its output is closed a moment before it ends
            process.read_stderr()
            code = process.child.poll()
            # At a stop, the service manager also sends SIGTERM to the program: report that only if another tick comes.
            self._fail(now, exit_text(code), report=code != -signal.SIGTERM)
        elif now >= self._deadline:
            self._fail(now, "prints nothing")

    def problems(self) -> list[str]:
        """Return the problems since the last call; while the program does not run, the reason is among them."""
        problems, self._problems = list(self._problems), {}
        return problems

    def close(self) -> None:
        """End the program and its children; safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            process.end(signal.SIGTERM, signal.SIGKILL)

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

    def _fail(self, now: float, how: str, *, report: bool = True) -> None:
        said = self._process.last_error(exact=self._exact) if self._process else ""
        self.close()
        self.failures = 1 if self._count >= STABLE else self.failures + 1
        self._start_at = now + min(MAX_BACKOFF, 2.0 ** min(self.failures, 16))
        self._reason = f"{self._name} {how}; it is started again later{said}"
        if report:
            self._problems[self._reason] = None

    def _report(self, problem: str) -> None:
        self._problems[f"{self._name}: {problem}"] = None


def exit_text(code: int | None) -> str:
    """Return how a process ended, in words; with the code None, it still runs."""
    if code is None:
        return "closed its output"
    return f"ended with {code}" if code >= 0 else f"was ended by signal {-code}"


class QueryFailed(Exception):
    """A program, or a library, gave no usable answer."""


class ProgramOutput(NamedTuple):
    """The output of one run of a program."""

    data: bytes
    """Its standard output."""
    how: str
    """The end of the run, and its last line of standard error, for a message about unusable output; or ""."""


class OneShot:
    """
    Runs a command at intervals; `poll` returns its output, and never waits.

    Only one run goes on at a time. A run that takes too long, or prints too much, gets SIGTERM, then SIGKILL. The next
    one starts after its end.
    """

    def __init__(self, interval: float, timeout: float, *, exact: bool = False) -> None:
        """
        Take the seconds from one start to the next, and the most seconds of a run.

        See `quoted` for `exact`.
        """
        self._interval, self._timeout, self._exact = interval, timeout, exact
        self._process: ChildProcess | None = None
        self._data = b""
        self._due = self._deadline = 0.0
        self._cancelled = False

    def poll(self, command: Sequence[str | Path], now: float, *, start: bool = True) -> ProgramOutput | None:
        """
        Return the output of a run that has ended, else None; raise QueryFailed at most once for each run.

        Start `command` if no run goes on, the interval is over at `now` (monotonic seconds), and `start` is set.
        """
        process = self._process
        if process is None:
            if start and now >= self._due:
                self._start(command, now)
            return None
        code = process.child.poll()  # asked before the output is read: once it has ended, all of it is in the pipe
        more = b"".join(process.stdout.chunks(MAX_READ + 1 - len(self._data)))
        self._data += more
        process.read_stderr()
        if code is not None:
            self.close()
            how = f" ({exit_text(code)})" if code else ""
            return None if self._cancelled else ProgramOutput(self._data, how + process.last_error(exact=self._exact))
        if self._cancelled:
            if now > self._deadline:
                process.send(signal.SIGKILL)
            return None
        too_much = len(self._data) > MAX_READ
        # A run that had filled the pipe did not hang: it waited for this call.
        if too_much or (now > self._deadline and len(more) < CHUNK // 2):
            self._cancelled, self._deadline = True, now + GRACE
            process.send(signal.SIGTERM)
            name = Path(command[0]).name
            raise QueryFailed(f"{name} {'printed too much' if too_much else f'gave no answer in {self._timeout:g} s'}")
        return None

    def run_now(self) -> None:
        """Let the next run start at once, before the interval is over."""
        self._due = 0.0

    def close(self) -> None:
        """Kill the run that goes on, if there is one; safe to call twice."""
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
