"""Collects the CPU utilization of the machine, by core and by mode, and the load average."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import sub
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.counters import Life
from chipwatch.host.last_values import LastValues
from chipwatch.host.pace import CALM, Pace
from chipwatch.host.procfs import KeptFile, SystemSource, close_all, open_kept
from chipwatch.host.prompt import PromptCollector

MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Columns of /proc/stat. The further columns `guest` and `guest_nice` are part of user and nice: proc(5)."""
IDLE: Final = MODES.index("idle")
IOWAIT: Final = MODES.index("iowait")
HZ: Final = 100
"""Clock ticks per second: USER_HZ of every supported architecture."""
MIN_TICKS: Final = 5
"""Fewest clock ticks (1/100 s) between two readings for a share; with fewer, an error of one tick is too large."""

# fmt: off
UTILIZATION: Final = gauge("cpu.utilization", "%", "Share of the time of all CPUs in which they worked.")
CORE: Final = gauge("cpu.core.utilization", "%", "Share of time in which a logical CPU worked.", Level.ALL, ("cpu",))
MODE: Final = gauge(
    "cpu.mode.utilization", "%", "Share of the time of all CPUs that was spent in a mode.", Level.DETAILED, ("mode",))
LOAD: Final = gauge(
    "cpu.load", "1", "Mean number of tasks that ran, were about to, or waited for a disk.", Level.DETAILED, ("window",))
CORE_TIME: Final = counter(
    "cpu.core.time", "s", "Time that a logical CPU spent in a mode; sent with the option core_times.", Level.ALL,
    ("cpu", "mode"))
# fmt: on
_MODE_DIMS: Final = {mode: Dimensions(mode=mode) for mode in MODES}
WINDOWS: Final = tuple(Dimensions(window=window) for window in ("1m", "5m", "15m"))

Times = dict[str, list[int]]
"""CPU (`cpu` for all, `cpu0`, …) -> clock ticks in the order of MODES."""


def _times(cores: bool, data: bytes) -> Times:  # noqa: FBT001  # bound by position
    """Parse /proc/stat."""
    end = data.find(b"\nintr" if cores else b"\n")  # skips the long rest
    times = {}
    for line in data[:end].split(b"\n"):
        fields = line.split(None, 9)
        times[fields[0].decode()] = ticks = list(map(int, fields[1:9]))
        if len(ticks) < max(IOWAIT + 1, len(times["cpu"])):  # every kernel has iowait
            raise ValueError(line)
    return times


def _psutil_times(cores: bool, psutil: Any) -> Times:  # noqa: FBT001  # bound by position
    times = {"cpu": psutil.cpu_times()}
    if cores:
        times |= {f"cpu{index}": core for index, core in enumerate(psutil.cpu_times(percpu=True))}
    return {name: [round(100 * getattr(of, mode, 0)) for mode in MODES] for name, of in times.items()}


@cache
def _core(name: str, **mode: str) -> Dimensions:
    return Dimensions(cpu=name.removeprefix("cpu"), **mode)


class CpuCollector(PromptCollector):
    """
    Computes shares of time from the clock ticks between two readings.

    All modes except idle and iowait count as busy, also `steal`, as in psutil's `cpu_percent`.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where the host's /proc is, and whether the times of each CPU are sent."""

        proc: Path = Path("/proc")
        core_times: bool = False
        """Send the seconds of each CPU by mode, eight series for a CPU, as node_exporter's dashboards need."""

    metrics = (UTILIZATION, CORE, MODE, LOAD, CORE_TIME)
    needs = Needs(level=True, state=True)

    def __init__(self, config: Config) -> None:
        self._config = config
        self._source: SystemSource[Times] | None = None
        self._loadavg: KeptFile | None = None
        self._load_pace = Pace(CALM)  # the kernel computes the load each 5 s
        self._modes: Sequence[str] = ()
        self._last: Times = {}
        self._kept: LastValues | None = None
        self._lives: dict[Dimensions, Life] = {}

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        is_linux = sys.platform == "linux"
        try:
            self._source = SystemSource(self._config.proc / "stat", _times, _psutil_times)
            self._last = self._source.read(self._level >= Level.ALL)
        except (OSError, LookupError) as error:
            raise Unavailable(f"no CPU times in {self._config.proc / 'stat'}: {error!r}") from error
        of_psutil = [mode for mode in MODES if not is_linux and hasattr(self._source.psutil.cpu_times(), mode)]
        self._modes = of_psutil or MODES[: len(self._last["cpu"])]
        self._loadavg = open_kept(self._config.proc / "loadavg") if is_linux else None
        self._kept, self._lives = LastValues(given.state, "cpu", self._config.proc), {}

    def collect(self, at: int) -> Iterable[Datapoint]:
        assert self._source is not None
        times = self._source.read(self._level >= Level.ALL)
        if self._config.core_times and self._kept:
            yield from self._core_times(times, at, self._kept)
            self._kept.save(at)
        for name, spent, total in self._spent(times):
            busy = 100 * (total - spent[IDLE] - spent[IOWAIT]) / total
            if name != "cpu":
                yield CORE.point(at, busy, _core(name))
                continue
            yield UTILIZATION.point(at, busy)
            if self._level >= Level.DETAILED:
                for mode, ticks in zip(MODES, spent, strict=False):
                    if mode in self._modes and mode != "idle":
                        yield MODE.point(at, 100 * ticks / total, _MODE_DIMS[mode])
        if self._level >= Level.DETAILED and self._load_pace.is_due(at):
            for dims, load in zip(WINDOWS, self._loads(), strict=False):
                yield LOAD.point(at, load, dims)

    def describe(self) -> str:
        count = len(self._source.read(True)) - 1 if self._source else 0
        return f"{count} CPU{'s' * (count != 1)}, {self._source}" if self._source else ""

    def close(self) -> None:
        """Close the files."""
        close_all(self._source, self._loadavg, self._kept)
        self._source = self._loadavg = self._kept = None

    def _loads(self) -> Sequence[float]:
        if self._loadavg:
            return self._loadavg.parse(lambda data: [float(word) for word in data.split()[:3]])
        return () if sys.platform == "linux" else os.getloadavg()

    def _core_times(self, times: Times, at: int, kept: LastValues) -> Iterator[Datapoint]:
        for name, ticks in times.items():
            for mode in self._modes if name != "cpu" else ():
                dims = _core(name, mode=mode)
                count, life = ticks[MODES.index(mode)], self._lives.get(dims)
                if life is None:
                    life = self._lives[dims] = kept.life(f"{name} {mode}", at)
                    life.take(count, at)
                else:  # iowait is an estimate and sometimes decreases: proc(5)
                    life.take(max(count, life.value), at)
                yield CORE_TIME.point(at, life.value / HZ, dims, start_time=life.start_time)

    def _spent(self, times: Times) -> Iterator[tuple[str, list[int], int]]:
        """Yield (CPU, ticks by mode, sum of ticks) since the last reading, for each CPU in both readings."""
        last, self._last = self._last, times
        for name, now in times.items():
            if (before := last.get(name)) is None:
                continue
            spent = list(map(sub, now, before))
            total = sum(spent)
            if total < MIN_TICKS:
                if total >= 0:
                    times[name] = before  # the next reading also covers this interval
                continue
            if min(spent) < 0:  # iowait is an estimate and sometimes decreases: proc(5)
                spent = [max(0, ticks) for ticks in spent]
                total = sum(spent)
            yield name, spent, total
