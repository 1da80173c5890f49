"""Result of a measurement, and measurements of this process and others."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MB = 1e6
"""Memory is given in units of 10^6 bytes, the stricter reading of a bound in MB."""
MEMORY = {
    "stdout": 24.0, "prometheus": 24.0, "otlp": 30.0, "mlflow": 30.0, "cloudwatch": 38.0, "google": 36.0, "top": 30.0,
}  # fmt: skip
"""The most that the agent may have resident (MB), by sink."""


@dataclass(frozen=True)
class Figure:
    """One figure, measured several times; `asked` is the most that it may be, None where nothing was asked."""

    name: str
    unit: str
    asked: float | None
    values: Sequence[float]
    how: str
    reference: float = 1.0
    """CPU time (ms) of the reference loop of kept.py beside this measurement."""
    noise: float = 0.0
    """Difference to the kept figure that other programs may cause."""
    strict: bool = False
    """More than was asked is a failure, not only a miss."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        if self.asked is None:
            return "-"
        return "ok" if self.median <= self.asked else "FAIL" if self.strict else "MISS"


@dataclass(frozen=True)
class Skipped:
    """A figure that could not be measured here, and why."""

    name: str
    reason: str
    verdict: str = "skip"
    """`FAIL` where it should have been possible."""


class CannotMeasure(Exception):
    """This machine, or this installation, lacks what the measurement needs."""


@dataclass(frozen=True)
class Effort:
    """Time limit of the measurements."""

    rounds: int
    """Repetitions of what takes a second or two."""
    tick_seconds: int
    """Length of the run that ticks once a second."""
    steady_seconds: int
    """Length of the run whose CPU time is taken."""
    growth_ticks: int
    starts: int
    beside_seconds: int = 60
    """Length of the runs beside other programs: a minute has one delivery of a point a minute."""
    limit: int = 1200
    """Seconds after which the rest is left out, whatever happens."""


FULL = Effort(rounds=7, tick_seconds=20, steady_seconds=36, growth_ticks=10_000, starts=7)
QUICK = Effort(rounds=3, tick_seconds=4, steady_seconds=6, growth_ticks=1_900, starts=3, beside_seconds=6, limit=300)


def cpu_ms(call: Callable[[int], object], ticks: int, pause: float) -> float:
    """Return the mean CPU time (ms, all threads) of `call(at)`, called `ticks` times with `pause` seconds before each."""
    spent = 0
    for _ in range(ticks):
        time.sleep(pause)
        at = time.time_ns()
        before = time.process_time_ns()
        call(at)
        spent += time.process_time_ns() - before
    return spent / ticks / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its ended threads too; utime + stime of /proc/PID/stat, but in ns (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3), which Python lacks


def rss(pid: int | str = "self") -> int:
    """Return the resident bytes; of smaps_rollup, since VmRSS is off by some dozen pages a CPU."""
    try:
        return _kb(Path(f"/proc/{pid}/smaps_rollup"), "Rss:")
    except (OSError, LookupError):
        return _kb(Path(f"/proc/{pid}/status"), "VmRSS:")


def peak_rss(pid: int | str = "self") -> int:
    """Return the most bytes that were resident at once."""
    return _kb(Path(f"/proc/{pid}/status"), "VmHWM:")


def forget_peak() -> None:
    """Begin a new peak of this process."""
    Path("/proc/self/clear_refs").write_text("5")


def _kb(file: Path, key: str) -> int:
    for line in file.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise LookupError(f"no {key} in {file}")
