"""Programs that print one record of JSON an interval: macmon, and our own reader of the hardware."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.collectors.apple.metrics import METRICS, Values, is_number, readings
from agent.errors import Unavailable
from agent.host.gpu_metrics import CLOCK_GRAPHICS, POWER, TEMPERATURE, UTILIZATION
from agent.host.supervised_process import STARTUP, STARTUP_WAIT, StartupWait, SupervisedProcess, quoted

MACMON: Final = Path("/opt/homebrew/bin/macmon"), Path("/usr/local/bin/macmon")
MAX_AGE: Final = 3
"""Periods after which a record is too old to be reported."""
FIRST_PERIOD: Final = 0.5
"""Seconds over which the first record takes its means."""
NAMES: Final = {metric.name: metric for metric in METRICS}


class Source:
    """Runs a program; its values are as of its last record."""

    def __init__(self, command: Sequence[str | Path], interval: float, clock: Callable[[], float]) -> None:
        """Take the command, the seconds between two ticks, and a clock (s) that never goes back."""
        self.period = max(1.0, interval)
        self._clock = clock
        self._process = SupervisedProcess(command, timeout=MAX_AGE * self.period)
        self._values: Values = []
        self._read_at = 0.0
        self._startup = StartupWait(interval)
        self._closed = False

    def open(self) -> None:
        """Start the program; raise Unavailable."""
        self._process.open(self._clock())

    def read(self, problems: list[str]) -> Values:
        """Return the values of the last record while it is recent; add to `problems`; wait for the first record."""
        self._startup.wait(lambda: self._listen(problems))
        if not self._values and not problems and self._startup.is_over:
            problems.append(f"{self._name} has printed nothing yet")
        return self._values if self._clock() - self._read_at < MAX_AGE * self.period else []

    def close(self) -> None:
        """End the program; another thread may be reading."""
        self._closed = True
        self._process.close()

    _name = ""

    def _parse(self, line: bytes, problems: list[str]) -> Values:
        """Return the values of a record; raise ValueError."""
        raise NotImplementedError

    def _lines(self, now: float) -> list[bytes]:
        return self._process.lines(now)

    def _listen(self, problems: list[str]) -> bool:
        """Read what is there; tell whether there is a record, or will be none for a while."""
        if self._closed:
            return True
        now = self._clock()
        for line in self._lines(now):
            try:
                self._values, self._read_at = self._parse(line, problems), now
            except ValueError as error:
                problems.append(str(error))
        problems += self._process.problems()
        return self._is_ready()

    def _is_ready(self) -> bool:
        return bool(self._values or self._process.failures)


class Macmon(Source):
    """
    Runs `macmon pipe`, which needs no root: github.com/vladkens/macmon .

    It prints its first record after a whole period; so a second macmon prints one record of half a second and ends.
    """

    _name = "macmon"

    def __init__(self, path: Path, interval: float, clock: Callable[[], float]) -> None:
        """Take the program."""
        super().__init__(self._command(path, max(1.0, interval)), interval, clock)
        self._path = path
        self._first: SupervisedProcess | None = None
        if self.period > 2 * FIRST_PERIOD:
            command = self._command(path, FIRST_PERIOD, "--samples", "1")  # since macmon 0.4.2
            timeout = MAX_AGE * FIRST_PERIOD
            self._first = SupervisedProcess(command, timeout=timeout, interval=MAX_AGE * STARTUP_WAIT)

    def open(self) -> None:
        """Start both; raise Unavailable."""
        try:
            super().open()
            if self._first:
                self._first.open(self._clock())
        except Unavailable:
            self.close()
            raise

    def close(self) -> None:
        """End both."""
        super().close()
        self._close_first()

    def __str__(self) -> str:
        """Say what is run."""
        return f"{self._path} every {self.period:g} s"

    @staticmethod
    def _command(path: Path, period: float, *more: str) -> list[str | Path]:
        return [path, "--interval", str(int(1000 * period)), "pipe", *more]

    def _parse(self, line: bytes, problems: list[str]) -> Values:
        del problems
        return parse(line)

    def _lines(self, now: float) -> list[bytes]:
        lines, first = super()._lines(now), self._first
        return lines if lines or not first else first.lines(now)

    def _is_ready(self) -> bool:
        first = self._first
        if first and (self._values or first.finished or first.failures):
            self._close_first()
        return super()._is_ready()

    def _close_first(self) -> None:
        first, self._first = self._first, None
        if first:
            first.close()


class Native(Source):
    """Runs our own reader (hardware.py) as a child, so that a crash in Apple's libraries does not end the agent."""

    _name = "the reader of Apple's GPU"

    def __init__(
        self, interval: float, clock: Callable[[], float], command: Sequence[str | Path] | None = None
    ) -> None:
        """Take the command of the reader if it is another one; its last argument will be the period (s)."""
        super().__init__([*(command or COMMAND), str(max(1.0, interval))], interval, clock)
        self._described = ""
        self._records = 0

    def open(self) -> None:
        """Start it and wait for its first record, 10 s at most; raise Unavailable."""
        super().open()
        try:
            self._wait_for_first()
        except Unavailable:
            self.close()
            raise
        self._startup = StartupWait(self.period)

    def __str__(self) -> str:
        """Say what the reader asks."""
        return self._described

    def _wait_for_first(self) -> None:
        deadline, problems = time.monotonic() + STARTUP, list[str]()
        while not self._described:
            self._listen(problems)
            if self._process.failures or time.monotonic() >= deadline:
                raise Unavailable(f"{self._name}: {'; '.join(problems) or f'no answer in {STARTUP:g} s'}")
            time.sleep(0.01)

    def _parse(self, line: bytes, problems: list[str]) -> Values:
        record = decoded(self._name, line)
        if "unavailable" in record:
            raise (ValueError if self._described else Unavailable)(str(record["unavailable"]))
        self._described, self._records = str(record.get("source", "")), self._records + 1
        problems += map(str, record.get("problems", ()))
        return [(NAMES[name], value) for name, value in record.get("values", {}).items()]

    def _is_ready(self) -> bool:
        return self._records > 1 or bool(self._process.failures)  # the first record has no means


RUN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from agent.collectors.apple.hardware import main; main()"
"""Isolated from PYTHONPATH and the working directory, where another `agent` may be."""
COMMAND: Final = (sys.executable, "-I", "-c", RUN, str(Path(__file__).parents[3]))


def decoded(name: str, line: bytes) -> Mapping[str, Any]:
    """Return a record, of which `name` is the program; raise ValueError where it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, Mapping):
        raise ValueError(f"{name} printed what is no record: {quoted(line)}")  # noqa: TRY004  # it is text, of a tool
    return record


def parse(line: bytes) -> Values:
    """
    Return the values in a record of macmon; raise ValueError if it is none, or there is no GPU to read.

    The share of time (gpu_active_ratio) is there since 0.8.0; older versions have only the share of the maximum
    clock. gpu_usage is [MHz, ratio]; 0.8.0 lacks it, 0.8.1 has it again. The memory in a record is the machine's.
    """
    record = decoded("macmon", line)
    usage, temp = record.get("gpu_usage"), record.get("temp")
    clock, scaled = usage if isinstance(usage, list) and len(usage) == 2 else (None, None)
    shares = record.get("gpu_active_ratio"), record.get("gpu_scaled_ratio"), scaled
    read = [
        (UTILIZATION, next((100.0 * min(share, 1.0) for share in shares if is_number(share, 1.001)), None)),
        (TEMPERATURE, temp.get("gpu_temp_avg") if isinstance(temp, Mapping) else None),
        (POWER, record.get("gpu_power")),
        (CLOCK_GRAPHICS, next((mhz for mhz in (record.get("gpu_freq_mhz"), clock) if is_number(mhz, 1e5)), None)),
    ]
    return readings("macmon", read)
