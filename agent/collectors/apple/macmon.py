"""macmon, which needs no root, is maintained, and prints one line of JSON an interval: github.com/vladkens/macmon ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from agent.collectors.apple.metrics import Values, is_number, readings
from agent.errors import Unavailable
from agent.host.gpu_metrics import CLOCK_GRAPHICS, POWER, TEMPERATURE, UTILIZATION
from agent.host.supervised_process import STARTUP_WAIT, StartupWait, SupervisedProcess, quoted

PLACES: Final = Path("/opt/homebrew/bin/macmon"), Path("/usr/local/bin/macmon")
STALE: Final = 3
"""Periods after which a record is no news any more."""
FIRST: Final = 0.5
"""Seconds of which the first record is the mean, so that it need not be waited for as long as for the others."""


class Macmon:
    """
    Runs `macmon pipe`; what it tells is as of the last record.

    The first one comes after a whole period: until then it is that of another macmon, which prints one and ends.
    """

    def __init__(self, path: Path, interval: float, clock: Callable[[], float]) -> None:
        """Start it; raise Unavailable."""
        self.path, self._clock = path, clock
        self.period = max(1.0, interval)
        self._values: Values = []
        self._heard = 0.0
        self._word = StartupWait(interval)
        self._closed = False
        self._child = self._made(self.period)
        self._first = self._made(FIRST, "--samples", "1") if self.period > 2 * FIRST else None  # macmon 0.4.2 has that
        try:
            for child in filter(None, (self._child, self._first)):
                child.open(clock())
        except Unavailable:
            self.close()
            raise

    def read(self, problems: list[str]) -> Values:
        """Return what the last record says, as long as it is news; wait a while for the first one."""
        self._word.wait(lambda: self._listen(problems))
        if not self._values and not problems and self._word.is_over:
            problems.append("macmon has told nothing yet")
        return self._values if self._clock() - self._heard < STALE * self.period else []

    def close(self) -> None:
        """End it; may be called while another thread reads."""
        self._closed = True
        self._end_first()
        self._child.close()

    def __str__(self) -> str:
        """Say what is run."""
        return f"{self.path} every {self.period:g} s"

    def _made(self, period: float, *more: str) -> SupervisedProcess:
        command: list[str | Path] = [self.path, "--interval", str(int(1000 * period)), "pipe", *more]
        return SupervisedProcess(command, timeout=STALE * period, interval=STALE * STARTUP_WAIT if more else None)

    def _listen(self, problems: list[str]) -> bool:
        """Take the records that are there; tell whether there is one now, or will be none for a while."""
        if self._closed:
            return True
        now = self._clock()
        lines = self._child.lines(now)
        problems += self._child.problems()
        first = self._first
        if first and not lines:
            lines = first.lines(now)
        for line in lines:
            try:
                self._values, self._heard = parse(line), now
            except ValueError as problem:
                problems.append(str(problem))
        if first and (self._values or first.finished or first.failures):
            self._end_first()
        return bool(self._values or self._child.failures)

    def _end_first(self) -> None:
        first, self._first = self._first, None
        if first:
            first.close()


def parse(line: bytes) -> Values:
    """
    Return what a record says of the GPU; raise ValueError where it is none, or of a machine that has no GPU to read.

    Since 0.8.0 a share of time is told (gpu_active_ratio). Before, and beside it, only what is weighted by the clock
    of its maximum: gpu_usage is [MHz, ratio], which 0.8.0 left out and 0.8.1 has again. The memory that is told is the
    machine's.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, Mapping):
        raise ValueError(f"macmon printed what is no record: {quoted(line)}")  # noqa: TRY004  # it is text, of a tool
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
