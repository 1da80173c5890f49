"""Where records of neuron-monitor come from: a process of ours, or standard input."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from agent.collectors.neuron.problems import Problems
from agent.errors import InputEnded, Unavailable
from agent.host.pipe import CLOSED, LineSplitter, Pipe
from agent.host.supervised_process import SupervisedProcess

MEMORY: Final = "320MiB"
"""What AWS's own chart sets, after pods were killed for want of memory (aws-observability/helm-charts, pull 56)."""
RUNTIME_GROUPS: Final = ("neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats")
SYSTEM_GROUPS: Final = ("vcpu_usage", "memory_info", "neuron_hw_counters")
MAX_SILENCE: Final = 3
"""Periods without a record after which the monitor is taken to hang."""
MAX_RECORD: Final = 16 << 20
"""Bytes of one record; the largest that was seen has 445 kB."""
MAX_READ: Final = 32 << 20
"""Bytes read in one tick; the rest stays in the pipe, and the writer waits."""
PIPE_SIZE: Final = 1 << 20
"""Bytes that the pipe should hold, so that the monitor can write a record at once; Linux grants this to every user."""
WAIT_MS: Final = 20
"""Milliseconds that the writer gets to continue a record that is larger than the pipe."""


def configuration(period: int) -> bytes:
    """Return a configuration for a period in s. It names every group: the default set has changed more than once."""
    runtimes = {"tag_filter": ".*", "metrics": [{"type": name} for name in RUNTIME_GROUPS]}
    system = [{"type": name} for name in SYSTEM_GROUPS]
    return json.dumps({"period": f"{period}s", "neuron_runtimes": [runtimes], "system_metrics": system}).encode()


class RecordSplitter(LineSplitter):
    """Splits bytes into records: one on a line, or pretty-printed with `{` and `}` on lines of their own."""

    what = "a record"

    def __init__(self, problems: Problems, max_size: int = MAX_RECORD) -> None:
        """Report to `problems` what is longer than `max_size` bytes."""
        super().__init__(problems.add, max_size)
        self._lines: list[bytes] = []

    @property
    def is_within(self) -> bool:
        """Whether a record has begun and not ended."""
        return super().is_within or bool(self._lines)

    def take_rest(self) -> bytes:
        """Return the unfinished record and forget it: b"" if there is none, `{` if it was too long."""
        rest = b"{" if self._skipping else b"\n".join([*self._lines, b"".join(self._line)]).strip()
        self._reset(skipping=False)
        return rest

    def _end_line(self) -> Iterator[bytes]:
        line, self._line = b"".join(self._line), []
        if self._skipping:
            self._skipping = False
        elif line.rstrip() == b"{" or (self._lines and not line.startswith(b'{"')):
            if line.startswith(b"{"):
                yield from self._end_record()
            self._lines.append(line)
            if line.rstrip() == b"}":
                yield from self._end_record()
        else:
            yield from self._end_record()
            self._size = 0
            if line.strip():
                yield line

    def _end_record(self) -> Iterator[bytes]:
        if self._lines:
            record, self._lines, self._size = b"\n".join(self._lines), [], 0
            yield record

    def _reset(self, *, skipping: bool) -> None:
        super()._reset(skipping=skipping)
        self._lines = []

    def wait_ms(self) -> int:
        """Return the milliseconds to wait for the rest of a record."""
        return WAIT_MS if self.is_within else 0


class Monitor(SupervisedProcess):
    """Runs neuron-monitor; its period is the interval, so that between two ticks there is one record in the pipe."""

    max_read, pipe_size = MAX_READ, PIPE_SIZE

    def __init__(self, path: Path, period: int, problems: Problems) -> None:
        """Take the program and its period (whole s)."""
        self._path, self._period, self._noted = path, period, problems
        environment = {"GOMEMLIMIT": MEMORY, **os.environ}
        super().__init__([path], timeout=MAX_SILENCE * period, environment=environment)
        self._config: Path | None = None

    def start(self, now: float) -> None:
        """Write its configuration and start it; raise OSError."""
        try:
            self._config = _written(configuration(self._period))
            self.command = [self._path, "-c", self._config]
            super().start(now)
        except OSError:
            self.close()
            raise

    def finish(self, now: float, *, whole: bool) -> None:
        """Check whether it has ended or hangs; return None: it is restarted."""
        del whole
        self.check(now)

    def close(self) -> None:
        """End it and delete its configuration; safe to call twice."""
        super().close()
        if self._config is not None:
            with suppress(OSError):
                self._config.unlink()
            self._config = None

    def describe(self) -> str:
        """Say what is run."""
        return f"{self._path} every {self._period} s"

    def _new_splitter(self) -> RecordSplitter:
        return RecordSplitter(self._noted)


def _written(config: bytes) -> Path:
    """Return a new file that holds `config`; raise OSError."""
    fd, name = tempfile.mkstemp(prefix="chipwatch-neuron-", suffix=".json")
    with os.fdopen(fd, "wb") as file:
        file.write(config)
    return Path(name)


class Input:
    """Reads standard input instead: `neuron-monitor | agent --stdin neuron`."""

    def __init__(self, fd: int, problems: Problems) -> None:
        """Read from `fd`; raise Unavailable if there is nothing to read from."""
        try:
            terminal = os.isatty(fd)
            os.fstat(fd)
        except OSError:
            raise Unavailable("standard input is closed") from None
        if terminal:
            raise Unavailable("standard input is a terminal: neuron-monitor | agent --stdin neuron")
        self._pipe, self._splitter = Pipe(fd, size=PIPE_SIZE), RecordSplitter(problems)
        self._unfinished = self._any_record = False

    def read(self, now: float) -> Iterator[bytes]:
        """Yield the records that are there; at the end of input also an unfinished one."""
        del now
        for data in self._pipe.chunks(MAX_READ, self._splitter.wait_ms):
            yield from self._splitter.split(data)
        if self._pipe.ended and (rest := self._splitter.take_rest()):
            self._unfinished = True
            yield rest

    def note_lines(self, now: float) -> None:
        """Note that there was a record."""
        del now
        self._any_record = True

    def problems(self) -> list[str]:
        """Return nothing: what is wrong is told by `finish`."""
        return []

    def finish(self, now: float, *, whole: bool) -> InputEnded | None:
        """Return how the input ended, None if it goes on; `whole`: the last record was valid."""
        del now
        ended = self._pipe.ended
        if ended is None:
            return None
        if ended != CLOSED:
            return InputEnded(f"standard input: {ended}", clean=False)
        if self._unfinished and not whole:
            return InputEnded("standard input ended within a record, which is lost", clean=False)
        if not self._any_record:
            return InputEnded("standard input ended before its first record: does neuron-monitor run?", clean=False)
        return InputEnded("standard input has ended", clean=True)

    def close(self) -> None:
        """Leave it open: it is not ours."""

    def describe(self) -> str:
        """Say what is read."""
        return "standard input"
