"""The child that reads the hardware: started, listened to, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess  # noqa: TID251  # neuron-monitor is the one documented way to the cores' counters; no shell
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent.collectors.neuron.program import NAME
from agent.collectors.neuron.stream import CLOSED, PIPE, Stream
from agent.collectors.neuron.trouble import Trouble, quoted
from agent.errors import InputEnded, Unavailable

MEMORY: Final = "320MiB"
"""What AWS's own chart sets, after pods were killed for want of memory (aws-observability/helm-charts, pull 56)."""
RUNTIME_GROUPS: Final = ("neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats")
SYSTEM_GROUPS: Final = ("vcpu_usage", "memory_info", "neuron_hw_counters")
SILENT: Final = 3
"""Periods without a record after which it is taken to hang."""
STARTING: Final = 10.0
"""Seconds more that the first record may take."""
LONGEST: Final = 300.0
"""Seconds between two starts, at most."""
PROVEN: Final = 10
"""Records after which a start was a success, and the next one need not wait long."""
TAIL: Final = 4096
"""Bytes kept of what it says on standard error."""
PATIENCE: Final = 1.0
"""Seconds that it gets to end."""


def configuration(period: int) -> bytes:
    """Return a configuration that names every group, since the default set has changed more than once."""
    runtimes = {"tag_filter": ".*", "metrics": [{"type": name} for name in RUNTIME_GROUPS]}
    system = [{"type": name} for name in SYSTEM_GROUPS]
    return json.dumps({"period": f"{period}s", "neuron_runtimes": [runtimes], "system_metrics": system}).encode()


class Monitor:
    """
    Owns a neuron-monitor.

    It is read when a tick asks for it, and by no thread of its own: its period is the interval, so between two ticks
    there is one record in the pipe, and what does not fit makes it wait, not lose. It ends with the agent: by SIGTERM
    from `close`, and after a SIGKILL of the agent by SIGPIPE at its next record.
    """

    def __init__(self, path: Path, period: int, trouble: Trouble) -> None:
        """Run `path` with a period of so many seconds."""
        self._path, self._period, self._trouble = path, period, trouble
        self._child: subprocess.Popen[bytes] | None = None
        self._config: Path | None = None
        self._tail = b""
        self._records = self._failures = 0
        self._deadline = self._start_at = 0.0
        self._why = ""

    def start(self, now: float) -> None:
        """Start it; raise OSError."""
        self._tail, self._records, self._deadline = b"", 0, now + SILENT * self._period + STARTING
        try:
            self._config = _written(configuration(self._period))
            self._child = subprocess.Popen(  # noqa: S603  # a fixed name, or what the configuration says
                [self._path, "-c", self._config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=_environment(os.environ),
                start_new_session=True,  # Ctrl-C is for the agent, which ends it in its own time
            )
        except OSError:
            self.close()
            raise
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._out = Stream(self._child.stdout.fileno(), self._trouble)
        self._err = Stream(self._child.stderr.fileno(), self._trouble)

    def records(self, now: float) -> Iterator[bytes]:
        """Yield the records that are there; start it again if that is due."""
        if self._child is None:
            if now < self._start_at:
                self._trouble.add(self._why)
                return
            try:
                self.start(now)
            except OSError as problem:
                self._fail(now, f"{NAME} cannot be started: {problem.strerror}")
                return
        yield from self._out.records()
        self._listen()
        self._judge(now)

    def heard(self, now: float) -> None:
        """Note that what it said was a record."""
        self._records += 1
        self._deadline = now + SILENT * self._period

    def over(self, *, whole: bool) -> None:
        """Return None: what has ended is started again."""
        del whole

    def close(self) -> None:
        """End it; safe to call twice."""
        child, self._child = self._child, None
        if child is not None:
            child.terminate()
            try:
                child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        if self._config is not None:
            with suppress(OSError):
                self._config.unlink()
            self._config = None

    def describe(self) -> str:
        """Say what is run."""
        return f"{self._path} every {self._period} s"

    def _judge(self, now: float) -> None:
        """Find out whether it has ended or hangs."""
        assert self._child is not None
        ended = self._child.poll() is not None and not self._out.waits()
        if self._out.ended is None and not ended:
            if now >= self._deadline:
                self._fail(now, f"{NAME} says nothing; started again{self._last_words()}")
            return
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(PATIENCE)  # it closes its output a moment before it ends
        self._listen()
        code = self._child.poll()
        # A service manager ends us all by SIGTERM: whether that was meant for us shows at the next tick.
        told = code != -signal.SIGTERM
        self._fail(now, f"{NAME} {_how(code)}; started again{self._last_words()}", told=told)

    def _listen(self) -> None:
        for data in self._err.chunks(PIPE):
            self._tail = (self._tail + data)[-TAIL:]

    def _fail(self, now: float, why: str, *, told: bool = True) -> None:
        self.close()
        self._failures = 1 if self._records >= PROVEN else self._failures + 1
        self._start_at = now + min(LONGEST, 2.0**self._failures)
        self._why = why
        if told:
            self._trouble.add(why)

    def _last_words(self) -> str:
        whole = self._tail.rpartition(b"\n")[0] or self._tail
        lines = whole.decode(errors="replace").split("\n")
        return f" (it said: {quoted(said[-1])})" if (said := [line for line in lines if line.strip()]) else ""


def _written(config: bytes) -> Path:
    """Return a new file that holds `config`; raise OSError."""
    fd, name = tempfile.mkstemp(prefix="chipwatch-neuron-", suffix=".json")
    with os.fdopen(fd, "wb") as file:
        file.write(config)
    return Path(name)


def _how(code: int | None) -> str:
    if code is None:
        return "closed its output"
    return f"ended with {code}" if code >= 0 else f"was ended by signal {-code}"


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    return {"GOMEMLIMIT": MEMORY, **own}


class Input:
    """Standard input in the place of a child: `neuron-monitor | agent --stdin neuron`."""

    def __init__(self, fd: int, trouble: Trouble) -> None:
        """Read from `fd`; raise Unavailable if there is nothing to read from."""
        try:
            terminal = os.isatty(fd)
            os.fstat(fd)
        except OSError:
            raise Unavailable("standard input is closed") from None
        if terminal:
            raise Unavailable("standard input is a terminal: neuron-monitor | agent --stdin neuron")
        self._stream = Stream(fd, trouble)

    def records(self, now: float) -> Iterator[bytes]:
        """Yield the records that are there."""
        del now
        yield from self._stream.records()

    def heard(self, now: float) -> None:
        """Do nothing: nobody can start it again."""

    def over(self, *, whole: bool) -> InputEnded | None:
        """Return how the input ended, the last record being `whole` or not; None if it goes on."""
        stream = self._stream
        if stream.ended is None:
            return None
        if stream.ended != CLOSED:
            return InputEnded(f"standard input: {stream.ended}", clean=False)
        if stream.unfinished and not whole:
            return InputEnded("standard input ended within a record, which is lost", clean=False)
        return InputEnded("standard input has ended", clean=True)

    def close(self) -> None:
        """Leave it open: it is not ours."""

    def describe(self) -> str:
        """Say what is read."""
        return "standard input"
