"""A command-line tool as a child: started, read when a tick asks for it, without a thread, and started again."""

from __future__ import annotations

import atexit
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from agent.errors import Unavailable

if TYPE_CHECKING:
    import subprocess  # noqa: TID251  # the type alone

LONGEST: Final = 1 << 20
"""Bytes of one line; the longest of a known tool has some 10 kB."""
MOST: Final = 4 << 20
"""Bytes that are read in one tick; the rest waits in the pipe, and so does the tool."""
CHUNK: Final = 1 << 16
TAIL: Final = 4096
"""Bytes kept of what it says on standard error."""
STARTING: Final = 10.0
"""Seconds more that the first line may take."""
PROVEN: Final = 10
"""Lines after which a start was a success, and the next one need not wait long."""
SLOWEST: Final = 300.0
"""Seconds between two starts, at most."""
PATIENCE: Final = 1.0
"""Seconds that it gets to end, once after SIGTERM and once after SIGKILL."""
FIRST_WORD: Final = 2.5
"""Seconds from its start for which readings wait for what it says first, so that a single reading has something."""
SHARE: Final = 0.8
"""Of the time between two ticks, what a reading may wait for that at most."""
PAUSE: Final = 0.02
"""Seconds between two looks whether it has come."""
DIGITS: Final = re.compile(r"\d+")
_begun: Final[set[subprocess.Popen[bytes]]] = set()
"""What was started, and not yet ended."""


def find(name: str, path: Path | None, *places: Path) -> Path:
    """Return the program `name`: at `path` if that is set, else in PATH, else at one of `places`; raise Unavailable."""
    if path is not None:
        if not path.exists():
            raise Unavailable(f"{path} is absent")
        return path
    for place in (*(Path(folder) / name for folder in os.get_exec_path()), *places):
        if os.access(place, os.X_OK) and place.is_file():
            return place
    raise Unavailable(f"no {name}: neither in PATH nor {' nor '.join(map(str, places)) or 'anywhere else'}")


def quoted(text: bytes, most: int = 120) -> str:
    """Return foreign text for a message: on one line, cut, with N for each number, so that repeats are equal."""
    shown = "".join(c if c.isprintable() else " " for c in text[: 4 * most].decode(errors="replace"))
    return DIGITS.sub("N", " ".join(shown.split()))[:most]


class Child:
    """
    Owns a tool that prints lines, for ever or, if `every` is set, once a run.

    It is read when a tick asks, so what does not fit into the pipe makes it wait. One that ends too early, or says
    nothing for long, is started again, each time later. It ends with the agent: by SIGTERM from `close`, by SIGKILL
    if it is deaf to that, and after a SIGKILL of the agent by SIGPIPE at its next line.
    """

    def __init__(self, command: Sequence[str | Path], *, silence: float, every: float | None = None) -> None:
        """Take what to run, after how many seconds without a line it hangs, and the seconds between two clean runs."""
        self.command = command
        self.finished = False
        """Whether the last lines were the end of a clean run."""
        self._silence, self._every = silence, every
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = self._tail = b""
        self._skipping = False
        self._count = 0
        self.failures = 0
        """Starts in a row that came to nothing."""
        self._started = self._deadline = self._start_at = 0.0
        self._why: str | None = None
        self._problems: dict[str, None] = {}

    def open(self, now: float) -> None:
        """Start it for the first time; raise Unavailable where that fails."""
        try:
            self.start(now)
        except OSError as problem:
            raise Unavailable(f"{self.command[0]} cannot be started: {problem.strerror}") from problem

    def start(self, now: float) -> None:
        """Start it at `now` (s, of a clock that never goes back); raise OSError."""
        self._rest, self._tail, self._skipping, self._count = b"", b"", False, 0
        self._started, self._deadline = now, now + self._silence + STARTING
        self._child = begun(self.command)

    def lines(self, now: float) -> list[bytes]:
        """Return the lines that are there, none of them blank; start the tool again if that is due."""
        self.finished = False
        if self._child is None and not self._restart(now):
            return []
        assert self._child is not None
        code = self._child.poll()  # before it is read: what it printed last is then in the pipe
        data, drained, closed = read_now(self._child.stdout, MOST)
        self._tail = (self._tail + read_now(self._child.stderr, MOST)[0])[-TAIL:]
        lines = self._cut(data)
        self._count += len(lines)
        if closed or (drained and code is not None):
            return lines + self._end(now)
        if lines:
            self._deadline = now + self._silence
        elif now >= self._deadline:
            self._fail(now, "says nothing")
        return lines

    def problems(self) -> list[str]:
        """Return what went wrong since the last call, and why it does not run if it does not."""
        problems, self._problems = list(self._problems), {}
        return problems

    def close(self) -> None:
        """End it, with its own children; safe to call twice. What does not end even by SIGKILL is left alone."""
        child, self._child = self._child, None
        if child is not None:
            end(child, signal.SIGTERM, signal.SIGKILL)

    def _restart(self, now: float) -> bool:
        if now < self._start_at:
            if self._why:
                self._problems[self._why] = None
            return False
        try:
            self.start(now)
        except OSError as problem:
            self._fail(now, f"cannot be started: {problem.strerror}")
            return False
        return True

    def _cut(self, data: bytes) -> list[bytes]:
        *lines, rest = (self._rest + data).split(b"\n")
        if self._skipping and lines:
            self._skipping = False
            del lines[0]
        whole = [line for line in lines if len(line) <= LONGEST]
        if len(whole) < len(lines) or (len(rest) > LONGEST and not self._skipping):
            self._problems[f"{self._name()} printed a line above {LONGEST >> 20} MiB, which was passed over"] = None
        self._skipping = self._skipping or len(rest) > LONGEST
        self._rest = b"" if self._skipping else rest
        return [line for line in whole if line.strip()]

    def _end(self, now: float) -> list[bytes]:
        """Note how it ended; return what it printed last without an end of line, if that was its wish."""
        assert self._child is not None
        with suppress(_expired()):
            self._child.wait(PATIENCE)  # it closes its output a moment before it ends
        self._tail = (self._tail + read_now(self._child.stderr, MOST)[0])[-TAIL:]
        code, rest = self._child.poll(), self._rest
        if code == 0 and self._every is not None:
            self.close()
            self.finished, self.failures, self._why = True, 0, None
            self._start_at = self._started + self._every
            return [rest] if rest.strip() else []
        # A service manager ends us all by SIGTERM: whether that was meant for us shows at the next tick.
        self._fail(now, how_ended(code), told=code != -signal.SIGTERM)
        return []

    def _fail(self, now: float, how: str, *, told: bool = True) -> None:
        said = said_last(self._tail)
        self.close()
        self.failures = 1 if self._count >= PROVEN else self.failures + 1
        self._start_at = now + min(SLOWEST, 2.0 ** min(self.failures, 16))
        self._why = f"{self._name()} {how}; it is started again later{said}"
        if told:
            self._problems[self._why] = None

    def _name(self) -> str:
        return Path(self.command[0]).name


class FirstWord:
    """Lets readings wait for what a tool says first: for a while from its start, and most of an interval each."""

    def __init__(self, interval: float) -> None:
        """Begin the while; take the seconds between two ticks."""
        self._interval, self._until = interval, time.monotonic() + FIRST_WORD

    def wait(self, spoken: Callable[[], bool]) -> None:
        """Ask `spoken`, at least once, until it says so or the time is up."""
        until = min(self._until, time.monotonic() + SHARE * self._interval)
        while not spoken() and time.monotonic() < until:
            time.sleep(PAUSE)

    @property
    def is_over(self) -> bool:
        """Whether it is waited for no more."""
        return time.monotonic() >= self._until


def begun(command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    """Start a tool, whose output can be read without waiting; raise OSError."""
    import subprocess  # noqa: PLC0415, TID251  # costs memory, and only where there is such a tool; no shell

    child = subprocess.Popen(  # noqa: S603  # a fixed name, or what the configuration says
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for the agent, which ends it in its own time
    )
    _begun.add(child)
    for pipe in (child.stdout, child.stderr):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
    return child


def tell(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a tool and its own children."""
    with suppress(OSError):
        os.killpg(child.pid, number)


def end(child: subprocess.Popen[bytes], *numbers: int) -> None:
    """End a tool and its own children by one signal after the other, and let go of it."""
    for number in numbers:
        if child.poll() is None:
            tell(child, number)
            with suppress(_expired()):
                child.wait(PATIENCE)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    _begun.discard(child)


@atexit.register
def _end_all() -> None:
    """End what is deaf to the SIGTERM of a thread that the end of the program cuts off before its SIGKILL."""
    for child in list(_begun):
        tell(child, signal.SIGTERM)
    for child in list(_begun):
        end(child, signal.SIGTERM, signal.SIGKILL)


def read_now(pipe: IO[bytes] | None, most: int) -> tuple[bytes, bool, bool]:
    """Return what is there, about `most` bytes of it, whether that was all for now, and whether the far side closed."""
    assert pipe is not None
    data = bytearray()
    while len(data) < most:
        try:
            more = os.read(pipe.fileno(), CHUNK)
        except BlockingIOError:
            return bytes(data), True, False
        if not more:
            return bytes(data), True, True
        data += more
    return bytes(data), False, False


def said_last(tail: bytes) -> str:
    """Return the last line on standard error for a message, or nothing."""
    last = [line for line in (tail.rpartition(b"\n")[0] or tail).split(b"\n") if line.strip()]
    return f" (it said: {quoted(last[-1])})" if last else ""


def how_ended(code: int | None) -> str:
    """Return for a message how a tool ended that left this code."""
    if code is None:
        return "closed its output"
    return f"ended with {code}" if code >= 0 else f"was ended by signal {-code}"


def _expired() -> type[Exception]:
    import subprocess  # noqa: PLC0415, TID251  # as in `start`

    return subprocess.TimeoutExpired
