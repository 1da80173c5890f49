"""Programs that print one record of JSON per interval, and a child process of ours that calls a library for them."""

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
"""Periods after which a record is too old to be reported."""
STARTUP_WAIT: Final = 2.5
"""Seconds after the start in which readings wait for the first output, so that a single reading has values."""
RUN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from {module} import main; main()"
Key = TypeVar("Key")
Value = TypeVar("Value")


def own_program(module: str) -> tuple[str, ...]:
    """Return the command that runs `main` of a module of ours; PYTHONPATH and the working directory do not count."""
    return sys.executable, "-I", "-c", RUN.format(module=module), str(Path(__file__).parents[2])


class RecordSource(Generic[Key, Value]):
    """Runs a program that prints records; its values come from the last record."""

    name = ""
    """Of the program, for messages."""
    complete_after = 1
    """Number of the first record that has all values."""
    description = ""

    def __init__(
        self, command: Sequence[str | Path], interval: float, clock: Callable[[], float], *, timeout: float = 0
    ) -> None:
        """`interval`: seconds between two ticks; `clock`: monotonic s; `timeout`: least seconds for a record."""
        self.period, self._clock = max(1.0, interval), clock
        self._process = SupervisedProcess(command, timeout=max(timeout, MAX_AGE * self.period), name=self.name)
        self._values: dict[Key, Value] = {}
        self._records, self._read_at, self._closed = 0, 0.0, False
        self._interval, self._wait_until = interval, time.monotonic() + STARTUP_WAIT

    def open(self) -> None:
        """Start the program; raise Unavailable."""
        self._process.open(self._clock())

    def read(self, problems: list[str]) -> dict[Key, Value]:
        """Return the values of the last record while it is recent; add to `problems`; wait for the first record."""
        until = min(self._wait_until, time.monotonic() + 0.8 * self._interval)
        while not self._listen(problems) and time.monotonic() < until:
            time.sleep(0.02)
        if not self._values and not problems and time.monotonic() >= self._wait_until:
            problems.append(f"{self.name} has printed nothing yet")
        return self._values if self._clock() - self._read_at < MAX_AGE * self.period else {}

    def close(self) -> None:
        """End the program; another thread may be reading."""
        self._closed = True
        self._process.close()

    def _parse(self, line: bytes, problems: list[str]) -> dict[Key, Value]:
        """Return the values of a record; raise ValueError."""
        raise NotImplementedError

    def _listen(self, problems: list[str]) -> bool:
        """Read the printed lines; return True if all values are there, or the program failed."""
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


class ChildReader(RecordSource[Key, Value]):
    """Runs a program of ours as a child process, so that a crash or hang of a library leaves the agent alone."""

    complete_after = 2  # the first record has no or not all values

    _early: Sequence[str] = ()

    def open(self) -> None:
        """Start it and wait for its first record, 10 s at most; raise Unavailable."""
        super().open()
        deadline, problems = time.monotonic() + STARTUP, list[str]()
        self._early = problems
        while not self.description:
            self._listen(problems)
            if self._process.failures or time.monotonic() >= deadline:
                raise Unavailable("; ".join(problems) or f"{self.name} gives no answer in {STARTUP:g} s")
            time.sleep(0.01)
        self._interval, self._wait_until = self.period, time.monotonic() + STARTUP_WAIT

    def read(self, problems: list[str]) -> dict[Key, Value]:
        """Return the values; the first call also adds the problems of earlier records."""
        problems += self._early
        self._early = ()
        return super().read(problems)

    def _parse(self, line: bytes, problems: list[str]) -> dict[Key, Value]:
        record = decode(self.name, line)
        if "unavailable" in record:
            raise (ValueError if self.description else Unavailable)(str(record["unavailable"]))
        self.description = str(record.get("source", ""))
        problems += map(str, record.get("problems", ()))
        return self._take(record.get("values", {}), problems)

    def _take(self, values: Mapping[str, Any], problems: list[str]) -> dict[Key, Value]:
        """Return the values of a record as the collector needs them; add to `problems`."""
        raise NotImplementedError


def print_records(records: Iterable[Mapping[str, object]]) -> None:
    """Print records in a child process of ours, until the agent no longer reads."""
    with suppress(OSError):
        for record in records:
            sys.stdout.write(json.dumps(record) + "\n")
            sys.stdout.flush()


def decode(name: str, line: bytes) -> Mapping[str, Any]:
    """Return a record printed by the program `name`; raise ValueError."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, Mapping):
        raise ValueError(f"{name} printed a line that is not a record: {quoted(line)}")  # noqa: TRY004  # a tool's text
    return record
