"""The sources of neuron-monitor's records: a process that the agent runs, or standard input."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.errors import InputEnded, Unavailable
from chipwatch.host.supervised_process import CLOSED, LineSplitter, Pipe, SupervisedProcess

MEMORY: Final = "320MiB"
"""Memory limit of the monitor, as AWS's chart sets it for pods (aws-observability/helm-charts, pull 56)."""
RUNTIME_GROUPS: Final = ("neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats")
SYSTEM_GROUPS: Final = ("vcpu_usage", "memory_info", "neuron_hw_counters")
GROUPS: Final[Mapping[str, Any]] = {
    "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": name} for name in RUNTIME_GROUPS]}],
    "system_metrics": [{"type": name} for name in SYSTEM_GROUPS],
}
"""The monitor's configuration. It names every group, because the default set has changed more than once."""
MAX_SILENCE: Final = 3
"""Periods without a record after which the monitor counts as hung."""
MAX_RECORD: Final = 16 << 20
"""Most bytes of one record; the largest one that was seen has 445 kB."""
MAX_READ: Final = 32 << 20
"""Most bytes that one tick reads; the rest stays in the pipe, and the writer waits."""
PIPE_SIZE: Final = 1 << 20
"""Size of the pipe (bytes), so that the monitor can write a record at once; Linux allows it to every user."""
WAIT_MS: Final = 20
"""Milliseconds to wait for the writer to continue a record that is larger than the pipe."""


class RecordSplitter(LineSplitter):
    """Splits bytes into records: one on each line, or pretty-printed between lines with only `{` and `}`."""

    what, max_size = "a record", MAX_RECORD
    _lines: list[bytes]

    def wait_ms(self) -> int:
        """Return the milliseconds to wait for the rest of a record; 0 if none has begun."""
        return WAIT_MS if self._line or self._skipping or self._lines else 0

    def take_rest(self) -> bytes:
        """Return and forget the unfinished record: b"" if there is none, b"{" if it was too long."""
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


class NeuronMonitor(SupervisedProcess):
    """Runs neuron-monitor. Its period is the interval, so that each tick finds one record in the pipe."""

    max_read, pipe_size, splitter = MAX_READ, PIPE_SIZE, RecordSplitter

    def __init__(self, path: Path, period: int) -> None:
        """`period`: whole seconds."""
        self._path, self._period = path, period
        self._config: Path | None = None
        super().__init__([path], timeout=MAX_SILENCE * period, environment={"GOMEMLIMIT": MEMORY, **os.environ})

    def start(self, now: float) -> None:
        """Write the monitor's configuration and start it; raise OSError."""
        try:
            fd, name = tempfile.mkstemp(prefix="chipwatch-neuron-", suffix=".json")
            self._config = Path(name)
            with os.fdopen(fd, "w") as file:
                json.dump({"period": f"{self._period}s", **GROUPS}, file)
            self.command = [self._path, "-c", self._config]
            super().start(now)
        except OSError:
            self.close()
            raise

    def finish(self, now: float, valid: Sequence[bool]) -> list[str]:
        """End a reading of lines, `valid` or not; restart a monitor that has ended or hangs. Return problems."""
        if any(valid):
            self.note_lines(now, sum(valid))
        self.check(now)
        return self.problems()

    def close(self) -> None:
        """End the monitor and delete its configuration; safe to call twice."""
        super().close()
        if self._config is not None:
            with suppress(OSError):
                self._config.unlink()
            self._config = None

    def describe(self) -> str:
        """Return the program and its period."""
        return f"{self._path} every {self._period} s"


class Input:
    """Reads records from standard input: `neuron-monitor | chipwatch --stdin neuron`."""

    def __init__(self, fd: int, report: Callable[[str], None]) -> None:
        """Read from the descriptor `fd`; raise Unavailable if it is closed or a terminal."""
        try:
            is_terminal = os.isatty(fd)
            os.fstat(fd)
        except OSError:
            raise Unavailable("standard input is closed") from None
        if is_terminal:
            raise Unavailable("standard input is a terminal; run `neuron-monitor | chipwatch --stdin neuron`")
        self._pipe, self._splitter = Pipe(fd, size=PIPE_SIZE), RecordSplitter(report)
        self._unfinished = self._any_record = False

    def read(self, now: float) -> Iterator[bytes]:
        """Yield the records that have arrived; at the end of input also an unfinished one."""
        del now
        for data in self._pipe.chunks(MAX_READ, self._splitter.wait_ms):
            yield from self._splitter.split(data)
        if self._pipe.ended and (rest := self._splitter.take_rest()):
            self._unfinished = True
            yield rest

    def finish(self, now: float, valid: Sequence[bool]) -> list[str]:
        """End a reading of lines, `valid` or not; raise InputEnded if the input has ended. Return no problems."""
        del now
        self._any_record = self._any_record or any(valid)
        ended = self._pipe.ended
        if ended is None:
            return []
        if ended != CLOSED:
            raise InputEnded(f"standard input: {ended}", clean=False)
        if self._unfinished and not valid[-1]:
            raise InputEnded("standard input ended within a record, which is lost", clean=False)
        if not self._any_record:
            raise InputEnded("standard input ended before its first record; see if neuron-monitor runs", clean=False)
        raise InputEnded("standard input has ended", clean=True)

    def close(self) -> None:
        """Do nothing: the input belongs to the caller."""

    def describe(self) -> str:
        return "standard input"
