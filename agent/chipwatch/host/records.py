"""Reads programs that print a record in each interval."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from chipwatch.host.supervised_process import SupervisedProcess, quoted

MAX_AGE: Final = 3
"""Number of periods after which a record is too old."""
STARTUP_WAIT: Final = 2.5
"""Seconds after the start for which a reading waits for the first record, so that a single reading has values."""
K = TypeVar("K")
V = TypeVar("V")


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
        self.wait_for_values(interval)

    def wait_for_values(self, interval: float) -> None:
        """From now on, let a reading wait for the first values: STARTUP_WAIT, but at most 0.8 of `interval` (s)."""
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


def parse_record(name: str, line: bytes) -> Mapping[str, Any]:
    """Return a line of the program `name` as a record; raise ValueError if it is none of JSON."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, Mapping):
        raise ValueError(f"{name} printed a line that is not a record: {quoted(line)}")  # noqa: TRY004  # a tool's text
    return record
