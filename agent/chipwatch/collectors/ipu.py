"""
Graphcore IPUs, read by the library gcipuinfo or, if Python cannot import it, by the program gc-monitor.

https://docs.graphcore.ai/projects/command-line-tools/en/latest/device-attributes.html lists the attributes, which are
strings with units in both. gcipuinfo is part of the Poplar SDK, whose enable.sh sets PYTHONPATH. The structure of
`gc-monitor --json` is not documented: each object with an id and one of our attributes counts as a device. Tested with
fakes of both and documented attributes; not yet with an IPU.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from chipwatch.collector import Collector
from chipwatch.datapoint import Datapoint, Dimensions, Level, Metric, gauge
from chipwatch.errors import PartlyCollected, Unavailable
from chipwatch.host.gpu_metrics import MOST
from chipwatch.host.process_tree import ProcTree, tree_of
from chipwatch.host.supervised_process import StartupWait, SupervisedProcess, find_program, quoted

IPU: Final = ("ipu",)
ATTRIBUTES: Final = {
    "average board temp": gauge("ipu.board.temperature", "Cel", "Mean of the board's sensors.", dims=IPU),
    "average die temp": gauge("ipu.die.temperature", "Cel", "Mean of the chip's sensors.", dims=IPU),
    "clock": gauge("ipu.clock", "MHz", "Clock of the IPU.", dims=IPU),
    "ipu power": gauge("ipu.power", "W", "Power of the IPU.", dims=IPU),
    "ipu utilisation": gauge("ipu.utilization", "%", "Share of time in which the IPU worked.", dims=IPU),
    "ipu utilisation (session)": gauge(
        "ipu.session.utilization", "%", "The same, since a process attached to the IPU.", dims=IPU
    ),
    "link speed": gauge("ipu.link.speed", "GT/s", "Speed of the link to the host.", Level.DETAILED, IPU),
}
"""Attribute -> metric, which has the same unit; only degrees are written C."""
USER: Final = "user process id"
VALUE: Final = re.compile(r"\s*(-?\d{1,9}(?:\.\d{1,9})?)\s*(C|MHz|W|%|GT/s)\s*")
STALE: Final = 3
"""Periods after which the output of gc-monitor is stale."""
MIN_PERIOD: Final = 10.0
"""Shortest interval between runs of gc-monitor, in seconds."""
MAX_OUTPUT: Final = 4 << 20
"""Size limit of the output of one run, in bytes."""
MAX_STARTS: Final = 32
"""Positions in the output at which parsing JSON is tried; warnings may precede it."""
MAX_DEPTH: Final = 8
"""Depth of nested objects to which devices are searched."""

Devices = list[Mapping[str, object]]


class GcipuinfoLibrary:
    """The module gcipuinfo in this process; a call that hangs blocks only this collector's thread."""

    def __init__(self) -> None:
        """Find devices; raise ImportError, RuntimeError, or LookupError if there is none."""
        self._info = importlib.import_module("gcipuinfo").gcipuinfo()
        self._info.setUpdateMode(True)  # else the first values are always returned
        if not self._info.getDevices():
            raise LookupError("it lists no device")

    def read(self, problems: list[str]) -> Devices:
        """Return the attributes of each device; add errors to `problems`."""
        try:
            devices = self._info.getDevices()
        except RuntimeError as problem:
            problems.append(f"gcipuinfo: {quoted(str(problem).encode())}")
            return []
        return [device for device in devices if isinstance(device, Mapping)]

    def close(self) -> None:
        """Do nothing: the library has no call for it."""

    def __str__(self) -> str:
        return "gcipuinfo"


class IpuMonitor:
    """The program gc-monitor, which prints once and ends; it runs periodically, and only the first run is awaited."""

    def __init__(self, path: Path, interval: float, clock: Callable[[], float]) -> None:
        """Start it; it runs every `interval` seconds, at least every MIN_PERIOD. Raise Unavailable."""
        period = max(MIN_PERIOD, interval)
        self._clock, self._stale = clock, STALE * period
        self._child = SupervisedProcess([path, "--json"], timeout=self._stale, interval=period)
        self._lines: list[bytes] = []
        self._devices: Devices = []
        self._read_at = clock()
        self._ran = self._closed = False
        self._why = ""
        """Why the last run gave no values, if so."""
        self._child.open(self._read_at)
        self._first = StartupWait(interval)

    def read(self, problems: list[str]) -> Devices:
        """Return the values of the last run until they are stale."""
        self._first.wait(lambda: self._read_output(problems))
        if not (self._ran or self._lines or problems) and self._first.is_over:
            problems.append("gc-monitor has printed nothing yet")
        problems += filter(None, [self._why])
        return self._devices if self._clock() - self._read_at < self._stale else []

    def _read_output(self, problems: list[str]) -> bool:
        """Read the output so far; return whether a run has ended."""
        if self._closed:
            return self._ran
        now = self._clock()
        failures = self._child.failures
        self._lines += self._child.lines(now)
        problems += self._child.problems()
        if self._child.finished:
            try:
                self._devices, self._read_at, self._why = parsed(b"\n".join(self._lines)), now, ""
            except ValueError as problem:
                self._why = str(problem)
        if large := sum(map(len, self._lines)) > MAX_OUTPUT:
            self._why = f"gc-monitor printed more than {MAX_OUTPUT >> 20} MiB, which are ignored"
        if large or self._child.finished or self._child.failures != failures:
            self._lines, self._ran = [], True
        return self._ran

    def close(self) -> None:
        """End the program; may be called while another thread reads."""
        self._closed = True
        self._child.close()

    def __str__(self) -> str:
        return str(self._child.command[0])


class IpuCollector(Collector):
    """Reads every IPU of the current partition, or those that the process tree uses."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Which IPUs to read, and how."""

        path: Path | None = None
        """The program gc-monitor, used instead of the library if set; searched in PATH otherwise."""
        watched: bool = False
        """Read only the IPUs that the process tree of --pid, or of the wrapped command, uses."""
        pid: int | None = None
        """First process of the tree; set by --pid."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval; gc-monitor runs at most every ten seconds."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted."""

    metrics = tuple(ATTRIBUTES.values())

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._source: GcipuinfoLibrary | IpuMonitor | None = None
        self._tree: ProcTree | None = None
        self._dims: dict[str, Dimensions] = {}

    def open(self) -> None:
        self.close()
        config = self._config
        if config.watched and config.pid is not None:
            try:
                self._tree = tree_of(config, config.pid)
            except ProcessLookupError:
                raise Unavailable(f"no process {config.pid} ({config.proc / str(config.pid)} is absent)") from None
        self._source = self._find()

    def collect(self, at: int) -> Iterator[Datapoint]:
        assert self._source is not None
        problems: list[str] = []
        devices = self._source.read(problems)
        pids = self._pids() if self._config.watched else None
        seen: set[str] = set()
        for device in devices:
            index = device.get("id")
            if not isinstance(index, str) or not re.fullmatch("[0-9]{1,5}", index) or index in seen:
                problems.append("a device has no unique id")
                continue
            seen.add(index)
            if pids is None or str(device.get(USER)) in pids:
                dims = self._dims.setdefault(index, Dimensions(ipu=index))
                for metric, value in values(device, problems):
                    yield metric.point(at, value, dims)
        if problems:
            raise PartlyCollected(list(dict.fromkeys(problems)))

    def describe(self) -> str:
        return f"{self._source}, {len(self._dims)} devices" if self._source else ""

    def close(self) -> None:
        if self._source:
            self._source.close()
        self._source = self._tree = None
        self._dims = {}

    def _find(self) -> GcipuinfoLibrary | IpuMonitor:
        config, why = self._config, "not used"
        if config.path is None:
            try:
                return GcipuinfoLibrary()
            except (ImportError, LookupError, RuntimeError) as problem:
                why = str(problem)
        try:
            path = find_program("gc-monitor", config.path)
        except Unavailable as problem:
            raise Unavailable(f"no IPU: gcipuinfo: {why}; {problem}") from None
        return IpuMonitor(path, config.interval, self._clock)

    def _pids(self) -> set[str]:
        """Return the pids of the tree as text, none if no process is left."""
        return {str(pid) for pid in self._tree.pids()} if self._tree and self._tree.read(rescan=False) else set()


def values(device: Mapping[str, object], problems: list[str]) -> Iterator[tuple[Metric, float]]:
    """Yield the values of a device's attributes; a text without digits means N/A and is skipped."""
    for name, metric in ATTRIBUTES.items():
        text = device.get(name)
        if text is None or (isinstance(text, str) and not any(map(str.isdigit, text))):
            continue
        match = VALUE.fullmatch(text) if isinstance(text, str) else None
        value = float(match[1]) if match and match[2] == metric.unit.replace("Cel", "C") else None
        if value is None or (value < 0 and metric.unit != "Cel") or abs(value) > MOST.get(metric.unit, MAX_OUTPUT):
            problems.append(f"{name} is {quoted(repr(text).encode())}")
        else:
            yield metric, value


def parsed(text: bytes) -> Devices:
    """Return the devices in the output of gc-monitor, which may begin with warnings; raise ValueError if none."""
    for start in islice(re.finditer(rb"^[ \t]*[{\[]", text, re.MULTILINE), MAX_STARTS):
        try:
            if found := list(_devices(json.loads(text[start.start() :]), MAX_DEPTH)):
                return found
        except (ValueError, RecursionError):
            continue
    raise ValueError(f"gc-monitor printed no device: {quoted(text)}")


def _devices(value: Any, depth: int) -> Iterator[Mapping[str, object]]:
    """Yield the objects in `value` that have an id, a text or a number, and one of our attributes."""
    if isinstance(value, dict) and type(value.get("id")) in (str, int) and not ATTRIBUTES.keys().isdisjoint(value):
        yield {**value, "id": str(value["id"]), USER: str(value.get(USER))}
    elif isinstance(value, dict | list) and depth:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _devices(inner, depth - 1)
