"""
Intel Gaudi, read from a running `hl-smi`.

https://docs.habana.ai/en/latest/Management_and_Monitoring/Embedded_System_Tools_Guide/System_Management_Interface_Tool.html
Starting hl-smi is slow, so it is started once and prints a row for each device every interval (-l). The header names
the columns; without one they are as requested. Tested with a fake hl-smi and the captured rows of a Gaudi 3; not yet
with a Gaudi.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.collector import Collector
from chipwatch.datapoint import Datapoint, Dimensions, Metric
from chipwatch.errors import PartlyCollected, Unavailable
from chipwatch.host import gpu_metrics
from chipwatch.host.procfs import text
from chipwatch.host.supervised_process import StartupWait, SupervisedProcess, find_program, quoted

VENDOR: Final = "0x1da3"
"""PCI_VENDOR_ID_HABANALABS of Linux, drivers/accel/habanalabs."""
COLUMNS: Final = {
    "memory.total": ("MiB", gpu_metrics.MEMORY_TOTAL),
    "memory.used": ("MiB", gpu_metrics.MEMORY_USED),
    "power.draw": ("W", gpu_metrics.POWER),
    "temperature.aip": ("C", gpu_metrics.TEMPERATURE),
    "utilization.aip": ("%", gpu_metrics.UTILIZATION),
    "power.max": ("W", gpu_metrics.POWER_LIMIT),
}
"""Column -> its unit in the output, and the metric."""
QUERIES: Final = ["index", *COLUMNS], ["index", *list(COLUMNS)[:-1]]
"""The second omits power.max, which its documentation does not list and a captured output has."""
PLACE: Final = Path("/usr/bin/hl-smi")
STALE: Final = 3
"""Periods after which a row is stale."""
CELL: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(MiB|W|C|%)?")
HEADER: Final = re.compile(r"([\w.]+)\s*(?:\[(.*)\])?")

Columns = list[tuple[str, str | None]]
"""Name and unit of each; the unit is None if each cell has its own."""


class GaudiCollector(Collector):
    """Runs hl-smi and yields the values of each device's last row."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where hl-smi is, and how often it prints."""

        path: Path | None = None
        """The program hl-smi; searched in PATH and /usr/bin unless set."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval; the period of hl-smi is as many whole seconds."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted."""

    metrics = (
        gpu_metrics.UTILIZATION, gpu_metrics.MEMORY_UTILIZATION, gpu_metrics.MEMORY_USED, gpu_metrics.MEMORY_TOTAL,
        gpu_metrics.TEMPERATURE, gpu_metrics.POWER, gpu_metrics.POWER_UTILIZATION, gpu_metrics.POWER_LIMIT,
    )  # fmt: skip

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._period = max(1, int(config.interval))
        self._child: SupervisedProcess | None = None
        self._first = StartupWait(config.interval)
        self._columns: Columns = []
        self._rows: dict[str, tuple[float, Dimensions, Mapping[Metric, float]]] = {}
        """Device -> time of its last row, dimensions, values."""

    def open(self) -> None:
        self.close()
        folder = self._config.sys / "bus/pci/devices"
        if not any(text(device / "vendor") == VENDOR for device in folder.glob("*")):
            raise Unavailable(f"no Gaudi: no device of vendor {VENDOR} in {folder}")
        path = find_program("hl-smi", self._config.path, PLACE)
        child = SupervisedProcess(self._command(path, 0), timeout=STALE * self._period)
        child.open(self._clock())
        self._child, self._first = child, StartupWait(self._config.interval)

    def collect(self, at: int) -> Iterator[Datapoint]:
        problems: list[str] = []
        self._first.wait(lambda: not self._read_lines(problems) and bool(self._rows))
        if not self._rows and not problems and self._first.is_over:
            problems.append("hl-smi has printed nothing yet")
        now = self._clock()
        for read_at, dims, row in list(self._rows.values()):
            if now - read_at < STALE * self._period:
                for metric, value in gpu_metrics.plausible(row).items():
                    yield metric.point(at, value, dims)
        if problems:
            raise PartlyCollected(list(dict.fromkeys(problems)))

    def describe(self) -> str:
        return f"{self._child.command[0]} every {self._period} s, {len(self._rows)} devices" if self._child else ""

    def close(self) -> None:
        child, self._child = self._child, None
        if child:
            child.close()
        self._rows, self._columns = {}, []

    def _read_lines(self, problems: list[str]) -> bool:
        """Read the rows printed so far; return whether there were any lines."""
        child, now = self._child, self._clock()
        if child is None:
            return False
        lines = child.lines(now)
        problems += child.problems()
        for line in lines:
            self._take(line, now, problems)
        if not self._rows:
            child.command = self._command(child.command[0], child.failures)
        return bool(lines)

    def _command(self, path: str | Path, failures: int) -> list[str | Path]:
        """Return the command; the two queries alternate until one is answered."""
        return [path, "-Q", ",".join(QUERIES[failures % 2]), "-f", "csv", "-l", str(self._period)]

    def _take(self, line: bytes, now: float, problems: list[str]) -> None:
        cells = [cell.strip() for cell in line.decode(errors="replace").split(",")]
        if columns := header(cells):
            self._columns = columns
            return
        columns = self._columns or [(name, None) for name in QUERIES[0][: len(cells)]]
        index = dict(zip((name for name, _ in columns), cells, strict=False)).get("index", "")
        known = len(cells) == len(columns) >= len(QUERIES[1]) or self._columns == columns
        if len(cells) != len(columns) or not (known and index.isascii() and index.isdigit() and len(index) < 5):
            problems.append(f"hl-smi printed a line that is not a row: {quoted(line)}")
            return
        row: dict[Metric, float] = {}
        for (name, unit), cell in zip(columns, cells, strict=True):
            if name in COLUMNS and any(map(str.isdigit, cell)):  # a cell without digits means N/A
                expected, metric = COLUMNS[name]
                try:
                    row[metric] = number(cell, unit, expected) * (2**20 if expected == "MiB" else 1)
                except ValueError:
                    problems.append(f"hl-smi: {name} is {quoted(cell.encode())}")
        dims = self._rows[index][1] if index in self._rows else Dimensions(gpu=index)
        self._rows[index] = now, dims, row


def header(cells: Sequence[str]) -> Columns:
    """Return the columns of a header such as `index, memory.used [MiB], …`, none if it is not a header."""
    columns = [(match[1].lower(), match[2]) for cell in cells if (match := HEADER.fullmatch(cell))]
    return columns if len(columns) == len(cells) and ("index", None) in columns else []


def number(cell: str, unit: str | None, expected: str) -> float:
    """Return the number in a cell; raise ValueError unless its unit, or that of its column, is `expected`."""
    match = CELL.fullmatch(cell)
    if not match or (match[2] or unit) != expected:
        raise ValueError(cell)
    return float(match[1])
