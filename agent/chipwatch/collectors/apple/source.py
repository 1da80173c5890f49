"""Programs that print one record of JSON per interval: macmon, and the collector's own reader of the hardware."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard

from chipwatch.datapoint import Metric
from chipwatch.errors import Unavailable
from chipwatch.host.gpu_metrics import CLOCK_GRAPHICS, MEMORY_USED, MOST, POWER, TEMPERATURE, UTILIZATION
from chipwatch.host.supervised_process import STARTUP, STARTUP_WAIT, StartupWait, SupervisedProcess, quoted

MAX_AGE: Final = 3
"""Periods after which a record is too old to be reported."""
FIRST_PERIOD: Final = 0.5
"""Seconds over which the first means are computed."""
METRICS: Final = {metric.name: metric for metric in (UTILIZATION, MEMORY_USED, TEMPERATURE, POWER, CLOCK_GRAPHICS)}
RUN: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from chipwatch.collectors.apple.hardware import main; main()"
)
READER: Final = (sys.executable, "-I", "-c", RUN, str(Path(__file__).parents[3]))
"""Isolated from PYTHONPATH and the working directory, where another `chipwatch` may be."""

Values = dict[Metric, float]


class Source:
    """Runs a program that prints records; its values are those of the last record."""

    name = ""
    """Of the program, for messages."""
    complete_after = 1
    """Number of the first record that has all values."""
    description = ""

    def __init__(self, command: Sequence[str | Path], interval: float, clock: Callable[[], float]) -> None:
        """Take the command, the seconds between two ticks, and a monotonic clock (s)."""
        self.period, self._clock = max(1.0, interval), clock
        self._processes = [SupervisedProcess(command, timeout=MAX_AGE * self.period)]
        self._values: Values = {}
        self._records, self._read_at, self._closed = 0, 0.0, False
        self._startup = StartupWait(interval)

    def open(self) -> None:
        """Start the program; raise Unavailable."""
        for process in self._processes:
            process.open(self._clock())

    def read(self, problems: list[str]) -> Values:
        """Return the values of the last record while it is recent; add to `problems`; wait for the first record."""
        self._startup.wait(lambda: self._listen(problems))
        if not self._values and not problems and self._startup.is_over:
            problems.append(f"{self.name} has printed nothing yet")
        return self._values if self._clock() - self._read_at < MAX_AGE * self.period else {}

    def close(self) -> None:
        """End the program; another thread may be reading."""
        self._closed = True
        for process in self._processes:
            process.close()

    def _parse(self, line: bytes, problems: list[str]) -> Values:
        """Return the values of a record; raise ValueError."""
        raise NotImplementedError

    def _listen(self, problems: list[str]) -> bool:
        """Read the printed lines; return True if all values are there, or the program failed."""
        if self._closed:
            return True
        now, process = self._clock(), self._processes[0]
        for line in [line for one in reversed(self._processes) for line in one.lines(now)]:
            try:
                self._values, self._read_at = self._parse(line, problems), now
                self._records += 1
            except ValueError as error:
                problems.append(str(error))
        problems += process.problems()
        return self._records >= self.complete_after or process.failures > 0


class Macmon(Source):
    """
    Runs `macmon pipe`, which needs no root: github.com/vladkens/macmon .

    It prints its first record after a whole period; so a second macmon prints one record of half a second and ends.
    """

    name = "macmon"

    def __init__(self, path: Path, interval: float, clock: Callable[[], float]) -> None:
        """Take the path of the program."""
        super().__init__(self._command(path, max(1.0, interval)), interval, clock)
        self.description = f"{path} every {self.period:g} s"
        if self.period > 2 * FIRST_PERIOD:
            command = self._command(path, FIRST_PERIOD, "--samples", "1")  # since macmon 0.4.2
            timeout, interval = MAX_AGE * FIRST_PERIOD, MAX_AGE * STARTUP_WAIT
            self._processes.append(SupervisedProcess(command, timeout=timeout, interval=interval))

    @staticmethod
    def _command(path: Path, period: float, *more: str) -> list[str | Path]:
        return [path, "--interval", f"{1000 * period:.0f}", "pipe", *more]

    def _parse(self, line: bytes, problems: list[str]) -> Values:
        del problems
        return parse(line)

    def _listen(self, problems: list[str]) -> bool:
        ready = super()._listen(problems)
        first = self._processes[-1]
        if len(self._processes) > 1 and (self._values or first.finished or first.failures):
            self._processes.pop().close()
        return ready


class Reader(Source):
    """Runs our own reader (hardware.py) as a child, so that a crash in Apple's libraries does not end the agent."""

    name = "the reader of Apple's GPU"
    complete_after = 2  # the first record has no means

    def open(self) -> None:
        """Start it and wait for its first record, 10 s at most; raise Unavailable."""
        super().open()
        deadline, problems = time.monotonic() + STARTUP, list[str]()
        while not self.description:
            self._listen(problems)
            if self._processes[0].failures or time.monotonic() >= deadline:
                raise Unavailable(f"{self.name}: {'; '.join(problems) or f'no answer in {STARTUP:g} s'}")
            time.sleep(0.01)
        self._startup = StartupWait(self.period)

    def _parse(self, line: bytes, problems: list[str]) -> Values:
        record = decode(self.name, line)
        if "unavailable" in record:
            raise (ValueError if self.description else Unavailable)(str(record["unavailable"]))
        self.description = str(record.get("source", ""))
        problems += map(str, record.get("problems", ()))
        return {METRICS[name]: value for name, value in record.get("values", {}).items()}


def decode(name: str, line: bytes) -> Mapping[str, Any]:
    """Return a record printed by the program `name`; raise ValueError."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, Mapping):
        raise ValueError(f"{name} printed a line that is not a record: {quoted(line)}")  # noqa: TRY004  # a tool's text
    return record


def parse(line: bytes) -> Values:
    """
    Return the values in a record of macmon; raise ValueError if it is none, or there is no GPU to read.

    The share of time (gpu_active_ratio) is there since 0.8.0; older versions have only the share of the maximum
    clock. gpu_usage is [MHz, ratio]; 0.8.0 lacks it, 0.8.1 has it again. The memory in a record is the machine's.
    """
    record = decode("macmon", line)
    usage, temp = record.get("gpu_usage"), record.get("temp")
    clock, scaled = usage if isinstance(usage, list) and len(usage) == 2 else (None, None)
    shares = record.get("gpu_active_ratio"), record.get("gpu_scaled_ratio"), scaled
    values = {
        UTILIZATION: next((100.0 * min(share, 1.0) for share in shares if is_number(share, 1.001)), None),
        TEMPERATURE: temp.get("gpu_temp_avg") if isinstance(temp, Mapping) else None,
        POWER: record.get("gpu_power"),
        CLOCK_GRAPHICS: next((mhz for mhz in (record.get("gpu_freq_mhz"), clock) if is_number(mhz, 1e5)), None),
    }
    return valid("macmon", values)


def valid(source: str, values: Mapping[Metric, Any]) -> Values:
    """
    Return the possible ones of `values`; raise ValueError if they are not of a real GPU.

    0 Cel is a mean of no sensors, and 0 MHz is the mean clock of a GPU that was always off: both are left out.
    """
    numbers = {metric: value for metric, value in values.items() if is_number(value, MOST.get(metric.unit, 1e15))}
    if not any(numbers.values()):  # an idle GPU has a temperature, and uses some power
        raise ValueError(f"{source} reports {'only zeros, as in a virtual machine' if numbers else 'no GPU value'}")
    return {metric: value for metric, value in numbers.items() if value or metric not in (TEMPERATURE, CLOCK_GRAPHICS)}


def is_number(value: Any, most: float) -> TypeGuard[float]:
    """Return whether it is a number from 0 to `most`; booleans and NaN are not."""
    return type(value) in (int, float) and 0 <= value <= most
