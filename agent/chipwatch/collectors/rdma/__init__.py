"""
InfiniBand, RoCE and EFA ports, from sysfs.

Each driver has other counters (Documentation/ABI/stable/sysfs-class-infiniband of Linux), so every file that is there
is read. A counter may cost a command to the card's firmware: hence a separate interval, and only the files that the
level needs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from chipwatch.collectors.rdma.counters import ACTIVE, ERRORS, METRICS, RATE, STATE, CounterSeries, plan
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import LastValues
from chipwatch.host.pace import Backoff, Clock, Pace
from chipwatch.host.procfs import close_all, count, read, read_small

FOLDERS: Final = ("counters", "hw_counters", "diag_counters", "counters_ext")
SETTINGS: Final = frozenset({"lifespan"})
WHOLE: Final = "all"
"""The dimension `port` of counters that the driver has for the device as a whole."""
REFUSALS: Final = 3
"""If so many files fail before one is read, the firmware refuses; each further reading would add to the kernel log."""


class _Port:
    """One port, or the counters of a device as a whole: its files by name, and the series made of them."""

    def __init__(self, folder: Path, port: str, kept: LastValues, leave_out: Iterable[str] = ()) -> None:
        """Find the files under `folder`; an earlier run `kept` its counters. Raise OSError if it is gone."""
        device = folder.name if port == WHOLE else folder.parent.parent.name
        self.dims = Dimensions(device=device, port=port)
        self._folder, self._counters = folder, Counters(kept=kept, device=folder)
        folders = [sorted(path.iterdir()) for name in FOLDERS if (path := folder / name).is_dir()]
        # By turns, so that a folder that does not work as a whole is not taken for a card that refuses.
        paths = (path for turn in zip_longest(*folders) for path in turn if path)
        self.files = {path.name: str(path) for path in paths if path.name not in {*SETTINGS, *leave_out}}
        self._known: set[str] = set()
        self._series: list[CounterSeries] = []
        self._retry: dict[str, Backoff] = {}

    def gauges(self, at: int) -> Iterator[Datapoint]:
        """Yield state and rate; a missing file loses only its value. Raise OSError if the port refuses or is gone."""
        if self.dims["port"] != WHOLE:
            self._folder.stat()
            state = b""
            with contextlib.suppress(FileNotFoundError):
                state = read_small(self._folder / "state")
            if state[:1].isdigit() and state[1:2] == b":":  # such as `4: ACTIVE`
                yield STATE.point(at, int(state.startswith(b"4:")), self.dims)
            # The kernel answers EINVAL for a width or speed that it does not know.
            rate, unit = (*read(self._folder / "rate").split()[:2], b"", b"")[:2]
            if unit == b"Gb/sec" and rate.replace(b".", b"", 1).isdigit():
                yield RATE.point(at, float(rate), self.dims)

    def counters(self, at: int, now: float, level: Level) -> Iterator[Datapoint]:
        """Yield the counters; a failed file loses only its value. Raise OSError if the first REFUSALS files fail."""
        values = self._read(now)
        if not values.keys() <= self._known:
            if self._known:  # a counter may come from another file now
                self._counters.restart()
            self._known.update(values)
            readable_files = [name for name in self.files if name in self._known]
            self._series = [series for series in plan(readable_files, self.dims) if series.metric.level <= level]
        for metric, dims, files, factor in self._series:
            readable = {name: values[name] for name in files if name in values}
            if metric is ERRORS and readable:
                yield self._counters.total(metric, at, readable, dims)
            elif len(readable) == len(files):
                yield self._counters.point(metric, at, factor * sum(readable.values()), dims)

    def _read(self, now: float) -> dict[str, int]:
        """Return the counters that the series need, and those that could not be read so far."""
        unneeded = self._known.difference(*(series.files for series in self._series))
        values: dict[str, int] = {}
        failed, refused = [], 0
        for name, path in self.files.items():
            retry = self._retry.get(name)
            if name in unneeded or (retry and not retry.allows(now)):
                continue
            try:
                value = count(read_small(path))
            except OSError as error:
                refused += 1
                if refused == REFUSALS and not values:
                    raise OSError(error.errno, f"refuses its counters: {error.strerror}") from None
                value = None
            if value is None:  # `N/A (no PMA)`, or no such counter behind the file
                failed.append(name)
            else:
                values[name] = value
                self._retry.pop(name, None)
        for name in failed:
            self._retry.setdefault(name, Backoff()).fail(now)
        return values


class _Device:
    """One card with its ports."""

    def __init__(self, folder: Path, kept: LastValues, level: Level) -> None:
        self._level = level
        ports = sorted((folder / "ports").iterdir(), key=lambda path: path.name)
        self.ports = [_Port(path, path.name, kept) for path in ports]
        self._parts = list(self.ports)
        if level >= Level.DETAILED:
            # Before Linux 5.14, drivers repeat the counters of the only port here.
            seen = [name for port in self.ports for name in port.files]
            self._parts.append(_Port(folder, WHOLE, kept, seen))
        self._backoff = Backoff()

    def is_waiting(self, now: float) -> bool:
        """Return whether the device refused a short time ago, and must be left alone."""
        return not self._backoff.allows(now)

    def points(self, at: int, now: float) -> Iterator[Datapoint]:
        """Yield all readable values; raise OSError with the reason if the device refuses."""
        try:
            for port in self._parts:
                yield from port.gauges(at)
                yield from port.counters(at, now, self._level)
        except OSError as error:
            delay = self._backoff.fail(now)
            raise OSError(error.errno, f"{error.strerror}; asked again in {delay / 60:.0f} min") from None
        self._backoff.succeed()


class RdmaCollector(Collector):
    """Reads the ports of all RDMA devices, at a separate interval."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The options of [collectors.rdma]."""

        every: float = 15.0
        """Seconds between two readings, at least; each one costs commands to the firmware of the cards."""
        exclude: tuple[str, ...] = ()
        """Devices to leave alone."""
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")

    metrics = METRICS
    level: Level = Level.ALL
    state: Path | None = None
    asking = ""

    def __init__(self, config: Config, clock: Clock = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._folder = config.sys / "class/infiniband"
        self._devices: dict[str, _Device] = {}
        self._pace = Pace(config.every, clock)
        self._kept: LastValues | None = None
        self._states: set[Dimensions] = set()
        """Ports whose state was read last."""

    def open(self) -> None:
        self._pace = Pace(self._config.every, self._clock)
        self.close()
        self._devices, self._kept = {}, LastValues(self.state, "rdma", self._config.proc)
        self._find(self._kept)
        if not self._devices:
            raise Unavailable(f"no RDMA device in {self._folder}")

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield the readings if they are due; raise PartlyCollected for devices that refuse."""
        if not self._kept or not self._pace.is_due():
            return
        self._find(self._kept)
        now, problems, states, is_complete = self._clock(), [], dict[Dimensions, float](), True
        for name, device in list(self._devices.items()):
            if device.is_waiting(now):
                is_complete = False
                continue
            try:
                for point in device.points(at, now):
                    if point.metric is STATE:
                        states[point.dims] = point.value
                    yield point
            except FileNotFoundError:
                del self._devices[name]  # unplugged, or its driver was reloaded: found again at the next reading
            except OSError as error:
                problems.append(f"{name} {error.strerror}")
        self._states = {*states}
        if is_complete and not problems and not self.silent():
            yield ACTIVE.point(at, sum(states.values()))
        self._kept.save(at)
        if problems:
            raise PartlyCollected(problems)

    def silent(self) -> dict[Dimensions, str]:
        ports = [port.dims for device in [*self._devices.values()] for port in device.ports]
        return {dims: "its state cannot be read" for dims in ports if dims not in self._states}

    def describe(self) -> str:
        names = list(self._devices)
        return ", ".join(names[:8]) + " …" * (len(names) > 8)

    def _find(self, kept: LastValues) -> None:
        """Add devices that are new; an earlier run `kept` their counters."""
        try:
            folders = sorted(self._folder.iterdir())
        except OSError:
            return
        for folder in folders:
            if folder.name not in self._devices and folder.name not in self._config.exclude:
                with contextlib.suppress(OSError):  # it has no ports yet
                    self._devices[folder.name] = _Device(folder, kept, self.level)

    def close(self) -> None:
        """Keep the counters; no file stays open."""
        close_all(self._kept)
