"""
Collects metrics of the GPU of Apple silicon, by the programs macmon or ioreg; docs/apple.md.

It was tested with programs that print what others have published of macmon and ioreg, but never on a Mac.
"""

from __future__ import annotations

import math
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeGuard

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host import gpu_metrics as shared
from chipwatch.host.gpu_metrics import MOST, Readings
from chipwatch.host.procfs import close_all
from chipwatch.host.records import RecordSource, parse_record
from chipwatch.host.supervised_process import STARTUP, OneShot, QueryFailed, find_program

FIRST_PERIOD: Final = 0.5
"""Seconds that the first means cover."""
IOREG: Final = "/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"
"""Prints the entry of the GPU's driver in the registry of devices, each property on one line."""
STATISTICS: Final = {
    shared.UTILIZATION: re.compile(rb'"Device Utilization %"\s*=\s*(\d{1,3})\b'),
    shared.MEMORY_USED: re.compile(rb'"In use system memory"\s*=\s*(\d{1,15})\b'),
}
"""Metric -> pattern of its number in the property PerformanceStatistics of that entry."""


class Macmon(RecordSource[Metric, float]):
    """
    Runs `macmon pipe`, which does not need root: github.com/vladkens/macmon .

    It prints its first record after a whole period. So that values come sooner, a second macmon prints one record after
    half a second and ends.
    """

    name = "macmon"

    def __init__(self, path: Path, interval: float, clock: Callable[[], float]) -> None:
        super().__init__(self._command(path, max(1.0, interval)), interval, clock)
        self._early = OneShot(math.inf, STARTUP) if self.period > 2 * FIRST_PERIOD else None
        self.description = f"{path} every {self.period:g} s"
        self._early_command = self._command(path, FIRST_PERIOD, "--samples", "1")  # since macmon 0.4.2

    @staticmethod
    def _command(path: Path, period: float, *more: str) -> list[str | Path]:
        return [path, "--interval", f"{1000 * period:.0f}", "pipe", *more]

    def _parse(self, line: bytes, problems: list[str]) -> Readings:
        del problems
        return parse(line)

    def _listen(self, problems: list[str]) -> bool:
        ready = super()._listen(problems)
        if self._values:
            self._close_early()
        elif self._early and not self._closed:
            with suppress(QueryFailed):
                now = self._clock()
                if output := self._early.poll(self._early_command, now):
                    self._take_lines(output.data.splitlines(), now, problems)
                    self._close_early()
        return ready or bool(self._values)

    def close(self) -> None:
        super().close()
        self._close_early()

    def _close_early(self) -> None:
        close_all(self._early)
        self._early = None


class Ioreg:
    """Runs ioreg in each reading, which waits for its answer."""

    description = "ioreg"

    def __init__(self, command: Sequence[str | Path]) -> None:
        """Take the command that prints the statistics."""
        self._command, self._run = command, OneShot(0, STARTUP)

    def open(self) -> None:
        """Read once; raise Unavailable without a value."""
        problems: list[str] = []
        if not self.read(problems):
            raise Unavailable(f"no Apple GPU: {'; '.join(problems)}")

    def read(self, problems: list[str]) -> Readings:
        """Return the values of now; add to `problems`."""
        try:
            while (output := self._run.poll(self._command, time.monotonic())) is None:
                time.sleep(0.01)
            return statistics(output.data)
        except (QueryFailed, ValueError) as problem:
            problems.append(str(problem))
            return {}

    def close(self) -> None:
        """Kill the program if it runs."""
        self._run.close()


def statistics(output: bytes) -> Readings:
    """Parse what ioreg prints about the first GPU; raise ValueError if that has no value."""
    found = {metric: pattern.search(output) for metric, pattern in STATISTICS.items()}
    return valid("ioreg", {metric: int(match[1]) for metric, match in found.items() if match})


def parse(line: bytes) -> Readings:
    """
    Parse a record of macmon; raise ValueError if it is invalid or has no GPU.

    Since 0.8.0 a record has the share of time (gpu_active_ratio); older versions have only the share of the maximum
    clock. gpu_usage is [MHz, ratio], which only 0.8.0 lacks. The memory in a record is that of the machine.
    """
    record = parse_record("macmon", line)
    usage, temp = record.get("gpu_usage"), record.get("temp")
    clock, scaled = usage if isinstance(usage, list) and len(usage) == 2 else (None, None)
    shares = record.get("gpu_active_ratio"), record.get("gpu_scaled_ratio"), scaled
    values = {
        shared.UTILIZATION: next((100.0 * min(share, 1.0) for share in shares if is_number(share, 1.001)), None),
        shared.TEMPERATURE: temp.get("gpu_temp_avg") if isinstance(temp, Mapping) else None,
        shared.POWER: record.get("gpu_power"),
        shared.CLOCK_GRAPHICS: next((mhz for mhz in (record.get("gpu_freq_mhz"), clock) if is_number(mhz, 1e5)), None),
    }
    return valid("macmon", values)


def valid(source: str, values: Mapping[Metric, Any]) -> Readings:
    """
    Return only values that can be true; raise ValueError if they cannot come from a real GPU.

    0 °C is a mean without sensors, and 0 MHz is the mean clock of a GPU that was always off: both are left out.
    """
    numbers = {metric: value for metric, value in values.items() if is_number(value, MOST.get(metric.unit, 1e15))}
    if not any(numbers.values()):  # an idle GPU has a temperature, and uses some power
        raise ValueError(f"{source} reports {'only zeros, as in a virtual machine' if numbers else 'no GPU value'}")
    return {metric: value for metric, value in numbers.items() if value or metric.unit not in ("Cel", "MHz")}


def is_number(value: Any, most: float) -> TypeGuard[float]:
    """Return True for a number from 0 to `most`; False for booleans and NaN."""
    return type(value) in (int, float) and 0 <= value <= most


GPU: Final = Dimensions(gpu="0")
"""A Mac has one GPU; an Ultra's two dies count as one."""
MACMON: Final = Path("/opt/homebrew/bin/macmon"), Path("/usr/local/bin/macmon")


class AppleCollector(Collector):
    """Reads the GPU of Apple silicon; its power limit is unknown, so gpu.power.utilization is absent."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where macmon is, and how often it prints."""

        path: Path | None = None
        """The program macmon; searched in PATH and Homebrew's folders unless set."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval; macmon's means are over this period."""

    metrics = (
        shared.UTILIZATION, shared.MEMORY_USED, shared.UNIFIED, shared.TEMPERATURE, shared.POWER, shared.CLOCK_GRAPHICS,
    )  # fmt: skip

    def __init__(
        self, config: Config, *, clock: Callable[[], float] = time.monotonic, ioreg: Sequence[str | Path] = IOREG
    ) -> None:
        """`clock`: returns monotonic seconds; `ioreg`: command that prints the statistics of the GPU's driver."""
        self._config, self._clock, self._ioreg = config, clock, ioreg
        self._source: Macmon | Ioreg | None = None

    def open(self, given: Given) -> None:
        self.close()
        if sys.platform != "darwin" and self._config.path is None:
            raise Unavailable(f"no Apple GPU: this is {sys.platform}, not macOS")
        self._source = self._find()
        self._source.open()

    def collect(self, at: int) -> Iterator[Datapoint]:
        assert self._source is not None
        problems: list[str] = []
        readings = self._source.read(problems)
        for metric, value in (readings | ({shared.UNIFIED: 1} if shared.MEMORY_USED in readings else {})).items():
            yield metric.point(at, value, GPU)
        if problems:
            raise PartlyCollected(list(dict.fromkeys(problems)))

    def describe(self) -> str:
        return self._source.description if self._source else ""

    def close(self) -> None:
        close_all(self._source)
        self._source = None

    def _find(self) -> Macmon | Ioreg:
        config = self._config
        try:
            return Macmon(find_program("macmon", config.path, *MACMON), config.interval, self._clock)
        except Unavailable as absent:
            if config.path is not None:
                raise
            if platform.machine() != "arm64":
                raise Unavailable(f"{absent}; and no Apple silicon: this is {platform.machine()}") from None
        return Ioreg(self._ioreg)
