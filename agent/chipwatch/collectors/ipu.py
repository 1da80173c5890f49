"""
Collects metrics of Graphcore IPUs, by the library gcipuinfo of the Poplar SDK, whose enable.sh sets PYTHONPATH.

Attributes are strings with units: https://docs.graphcore.ai/projects/command-line-tools/en/latest/device-attributes.html
It was tested with a fake of the library and documented attributes, but not with an IPU.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, gauge
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.gpu_metrics import MOST
from chipwatch.host.process_tree import ProcTree, tree_of
from chipwatch.host.supervised_process import quoted

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
"""Attribute -> metric. Both have the same unit, but degrees are written C in attributes."""
USER: Final = "user process id"
VALUE: Final = re.compile(r"\s*(-?\d{1,9}(?:\.\d{1,9})?)\s*(C|MHz|W|%|GT/s)\s*")
LARGEST: Final = 1e6
"""Highest possible speed of a link (GT/s)."""


class IpuCollector(Collector):
    """
    Reads every IPU of the current partition, or only those that the watched process tree uses.

    A call that hangs in the library blocks only this collector's thread.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Which IPUs to read."""

        watched: bool = False
        """Read only the IPUs that the process tree of --pid, or of the wrapped command, uses."""
        pid: int | None = None
        """First process of the tree; set by --pid."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted."""

    metrics = tuple(ATTRIBUTES.values())

    def __init__(self, config: Config) -> None:
        self._config = config
        self._library: Any = None
        self._tree: ProcTree | None = None
        self._dims: dict[str, Dimensions] = {}

    def open(self, given: Given) -> None:
        self.close()
        config = self._config
        if config.watched and config.pid is not None:
            try:
                self._tree = tree_of(config, config.pid)
            except ProcessLookupError:
                raise Unavailable(f"no process {config.pid} ({config.proc / str(config.pid)} is absent)") from None
        try:
            library = importlib.import_module("gcipuinfo").gcipuinfo()
            library.setUpdateMode(True)  # without it, the library always returns its first values
            has_devices = bool(library.getDevices())
        except (ImportError, RuntimeError) as problem:
            raise Unavailable(f"no IPU: gcipuinfo: {problem}; see that PYTHONPATH has the Poplar SDK's") from None
        if not has_devices:
            raise Unavailable("no IPU: gcipuinfo lists no device")
        self._library = library

    def collect(self, at: int) -> Iterator[Datapoint]:
        try:
            devices = self._library.getDevices()
        except RuntimeError as problem:
            raise PartlyCollected([f"gcipuinfo: {quoted(str(problem))}"]) from None
        problems: list[str] = []
        pids = self._pids() if self._config.watched else None
        seen: set[str] = set()
        for device in devices:
            if not isinstance(device, Mapping):
                continue
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
        return f"gcipuinfo, {len(self._dims)} devices"

    def close(self) -> None:
        self._library = self._tree = None
        self._dims = {}

    def _pids(self) -> set[str]:
        """Return the PIDs of the tree as text; none if no process is left."""
        return {str(pid) for pid in self._tree.pids()} if self._tree and self._tree.read(rescan=False) else set()


def values(device: Mapping[str, object], problems: list[str]) -> Iterator[tuple[Metric, float]]:
    """Yield the values of a device's attributes; a text without digits means N/A, and is skipped."""
    for name, metric in ATTRIBUTES.items():
        text = device.get(name)
        if text is None or (isinstance(text, str) and not any(map(str.isdigit, text))):
            continue
        match = VALUE.fullmatch(text) if isinstance(text, str) else None
        value = float(match[1]) if match and match[2] == metric.unit.replace("Cel", "C") else None
        if value is None or (value < 0 and metric.unit != "Cel") or abs(value) > MOST.get(metric.unit, LARGEST):
            problems.append(f"{name} is {quoted(repr(text).encode())}")
        else:
            yield metric, value
