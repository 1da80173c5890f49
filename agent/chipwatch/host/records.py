"""Reads programs that print a record of JSON per interval: makers' tools, and child processes of our own code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from chipwatch.contract.errors import Unavailable
from chipwatch.host.supervised_process import STARTUP, SupervisedProcess, quoted

MAX_AGE: Final = 3
"""Number of periods after which a record is too old."""
STARTUP_WAIT: Final = 2.5
"""Seconds after the start for which a reading waits for the first record, so that a single reading has values."""
RUN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import main; main()"
K = TypeVar("K")
V = TypeVar("V")


def own_program(module: str) -> tuple[str, ...]:
    """Return the command that runs `main` of one of our modules, without PYTHONPATH and the working directory."""
    return sys.executable, "-I", "-c", RUN.format(module=module), str(Path(__file__).parents[2])


class RecordSource(Generic[K, V]):
    """Runs a program that prints records, and returns the values of the last record."""

    name = ""
    """Name of the program, for messages."""
    complete_after = 1
    """Number of the first record that has all values."""
    description = ""

    def __init__(
        self, command: Sequence[str | Path], interval: float, clock: Callable[[], float], *, timeout: float = 0
    ) -> None:
        """Take the seconds between two ticks, a clock (monotonic seconds), and the least seconds for a record."""
        self.period, self._clock = max(1.0, interval), clock
        self._process = SupervisedProcess(command, timeout=max(timeout, MAX_AGE * self.period), name=self.name)
        self._values: dict[K, V] = {}
        self._records, self._read_at, self._closed = 0, 0.0, False
        self._interval, self._wait_until = interval, time.monotonic() + STARTUP_WAIT

    def open(self) -> None:
        """Start the program; raise Unavailable if that fails."""
        self._process.open(self._clock())

    def read(self, problems: list[str]) -> dict[K, V]:
        """Return the values of the last record, {} if it is too old; wait for the first record; add to `problems`."""
        until = min(self._wait_until, time.monotonic() + 0.8 * self._interval)
        while not self._listen(problems) and time.monotonic() < until:
            time.sleep(0.02)
        if not self._values and not problems and time.monotonic() >= self._wait_until:
            problems.append(f"{self.name} has printed nothing yet")
        return self._values if self._clock() - self._read_at < MAX_AGE * self.period else {}

    def close(self) -> None:
        """End the program, also while another thread reads it."""
        self._closed = True
        self._process.close()

    def _parse(self, line: bytes, problems: list[str]) -> dict[K, V]:
        """Return the values of a record; raise ValueError if it is malformed."""
        raise NotImplementedError

    def _listen(self, problems: list[str]) -> bool:
        """Read new records; return True once all values have come, or the program has failed."""
        if self._closed:
            return True
        now = self._clock()
        self._take_lines(self._process.lines(now), now, problems)
        problems += self._process.problems()
        return self._records >= self.complete_after or self._process.failures > 0

    def _take_lines(self, lines: Iterable[bytes], now: float, problems: list[str]) -> None:
        for line in lines:
            try:
                self._values, self._read_at = self._parse(line, problems), now
                self._records += 1
            except ValueError as error:
                problems.append(str(error))


class ChildReader(RecordSource[K, V]):
    """Runs our own code as a child process, so that a library that crashes or hangs does no harm to the agent."""

    complete_after = 2  # the first record lacks values

    _early: Sequence[str] = ()

    def open(self) -> None:
        """Start the program and wait for its first record, at most STARTUP seconds; raise Unavailable."""
        super().open()
        deadline, problems = time.monotonic() + STARTUP, list[str]()
        self._early = problems
        while not self.description:
            self._listen(problems)
            if self._process.failures or time.monotonic() >= deadline:
                raise Unavailable("; ".join(problems) or f"{self.name} gives no answer in {STARTUP:g} s")
            time.sleep(0.01)
        self._interval, self._wait_until = self.period, time.monotonic() + STARTUP_WAIT

    def read(self, problems: list[str]) -> dict[K, V]:
        """Return the values, as RecordSource does; the first call also adds the problems while it was opened."""
        problems += self._early
        self._early = ()
        return super().read(problems)

    def _parse(self, line: bytes, problems: list[str]) -> dict[K, V]:
        record = parse_record(self.name, line)
        if "unavailable" in record:
            raise (ValueError if self.description else Unavailable)(str(record["unavailable"]))
        self.description = str(record.get("source", ""))
        problems += map(str, record.get("problems", ()))
        return self._take(record.get("values", {}), problems)

    def _take(self, values: Mapping[str, Any], problems: list[str]) -> dict[K, V]:
        """Return the values of a record in the collector's form; add to `problems`."""
        raise NotImplementedError


def print_records(records: Iterable[Mapping[str, object]]) -> None:
    """Print records until the agent no longer reads; runs in the child process."""
    with suppress(OSError):
        for record in records:
            sys.stdout.write(json.dumps(record) + "\n")
            sys.stdout.flush()


def parse_record(name: str, line: bytes) -> Mapping[str, Any]:
    """Return a line of the program `name` as a record; raise ValueError if it is none of JSON."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, Mapping):
        raise ValueError(f"{name} printed a line that is not a record: {quoted(line)}")  # noqa: TRY004  # a tool's text
    return record
