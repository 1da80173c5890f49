"""
The GPU of Apple silicon, as macmon tells it: https://github.com/vladkens/macmon .

Apple has no public interface for it. macmon needs no root, is maintained, and is asked for one line of JSON an
interval. Reading IOReport and the SMC ourselves through ctypes could not be tried, so that is not done. Memory is the
machine's and told by the memory collector; a limit of the power is not known of any chip, so there is no share of it.
Tested with a fake macmon that prints documented records; not yet with a Mac.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, TypeGuard

from agent.child import Child, find, quoted
from agent.collector import Collector
from agent.datapoint import Datapoint, Dimensions, Level, Metric, gauge
from agent.errors import PartlyCollected, Unavailable

# fmt: off
UTILIZATION: Final = gauge(
    "gpu.utilization", "%", "Share of the driver's last sample period in which a kernel ran.", Level.BASIC, ("gpu",))
TEMPERATURE: Final = gauge("gpu.temperature", "Cel", "Temperature of the chip.", Level.BASIC, ("gpu",))
POWER: Final = gauge(
    "gpu.power", "W", "Power of the board, from its energy where that is counted.", Level.BASIC, ("gpu",))
CLOCK: Final = gauge("gpu.clock.graphics", "MHz", "Clock of the graphics engine.", Level.DETAILED, ("gpu",))
# fmt: on

GPU: Final = Dimensions(gpu="0")
PLACES: Final = Path("/opt/homebrew/bin/macmon"), Path("/usr/local/bin/macmon")
STALE: Final = 3
"""Periods after which a record is no news any more."""

Values = list[tuple[Metric, float]]


class AppleCollector(Collector):
    """Reads the records of `macmon pipe`, which it runs; what it tells is as of the last record."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where macmon is, and how often it prints."""

        path: Path | None = None
        """The program macmon; looked for in PATH and where Homebrew puts it unless set."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval: the period over which macmon takes its means."""

    metrics: ClassVar[Sequence[Metric]] = (UTILIZATION, TEMPERATURE, POWER, CLOCK)

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the configuration, and a clock (s) that never goes back."""
        self._config, self._clock = config, clock
        self._period = max(1.0, config.interval)
        self._child: Child | None = None
        self._values: Values = []
        self._heard = 0.0

    def open(self) -> None:
        """Start macmon; raise Unavailable where there is none."""
        self.close()
        if sys.platform != "darwin" and self._config.path is None:
            raise Unavailable(f"no Apple GPU: this is {sys.platform}, not macOS")
        path = find("macmon", self._config.path, *PLACES)
        command: list[str | Path] = [path, "--interval", str(int(1000 * self._period)), "pipe"]
        child = Child(command, silence=STALE * self._period)
        child.open(self._clock())
        self._child = child

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield what the last record says, as long as it is news."""
        assert self._child is not None
        now = self._clock()
        lines = self._child.lines(now)
        problems = self._child.problems()
        for line in lines:
            try:
                self._values, self._heard = parse(line), now
            except ValueError as problem:
                problems.append(str(problem))
        if now - self._heard < STALE * self._period:
            for metric, value in self._values:
                yield metric.point(at, value, GPU)
        if problems:
            raise PartlyCollected(list(dict.fromkeys(problems)))

    def describe(self) -> str:
        """Say what is run."""
        return f"{self._child.command[0]} every {self._period:g} s" if self._child else ""

    def close(self) -> None:
        """End macmon."""
        if self._child:
            self._child.close()
        self._child, self._values = None, []


def parse(line: bytes) -> Values:
    """
    Return what a record says of the GPU; raise ValueError where it is none, or of a machine that has no GPU to read.

    Since 0.8.0 a share of time is told (gpu_active_ratio). Before, and beside it, only what is weighted by the clock
    of its maximum: gpu_usage is [MHz, ratio], which 0.8.0 left out and 0.8.1 has again.
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
        (UTILIZATION, next((100.0 * min(share, 1.0) for share in shares if _is(share, 1.001)), None)),
        (TEMPERATURE, temp.get("gpu_temp_avg") if isinstance(temp, Mapping) else None),
        (POWER, record.get("gpu_power")),
        (CLOCK, next((mhz for mhz in (record.get("gpu_freq_mhz"), clock) if _is(mhz, 1e5)), None)),
    ]
    values = [(metric, value) for metric, value in read if _is(value, 1e5)]
    if not any(value for _, value in values):  # an idle GPU has a temperature, and uses some power
        raise ValueError(f"macmon tells {'only zeros, as in a virtual machine' if values else 'nothing of a GPU'}")
    # Its mean of no sensors is 0 Cel, and its mean clock of a GPU that was always off 0 MHz: neither was measured.
    return [(metric, value) for metric, value in values if value or metric not in (TEMPERATURE, CLOCK)]


def _is(value: Any, most: float) -> TypeGuard[float]:
    """Tell whether it is a number from 0 to `most`; true and false are none, nor is NaN."""
    return type(value) in (int, float) and 0 <= value <= most
