"""
Collects metrics of Intel Gaudi, by the program `hl-smi`.

https://docs.habana.ai/en/latest/Management_and_Monitoring/Embedded_System_Tools_Guide/System_Management_Interface_Tool.html
hl-smi starts slowly, so it is started once and prints a row for each device in every interval (-l). Its header names
the columns; without one, they are as requested. It was tested with a fake hl-smi and captured rows of a Gaudi 3, but
not on a machine with Gaudi.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host import gpu_metrics
from chipwatch.host.procfs import close_all, text
from chipwatch.host.records import MAX_AGE, RecordSource
from chipwatch.host.rows import ToolRow, tool_number
from chipwatch.host.supervised_process import find_program, quoted

VENDOR: Final = "0x1da3"
"""PCI_VENDOR_ID_HABANALABS of Linux, drivers/accel/habanalabs."""
COLUMNS: Final = {
    row.name: row
    for row in (
        ToolRow("memory.total", gpu_metrics.MEMORY_TOTAL, "mib", 1 << 20),
        ToolRow("memory.used", gpu_metrics.MEMORY_USED, "mib", 1 << 20),
        ToolRow("power.draw", gpu_metrics.POWER, "w"),
        ToolRow("temperature.aip", gpu_metrics.TEMPERATURE, "c"),
        ToolRow("utilization.aip", gpu_metrics.UTILIZATION, "%"),
        ToolRow("power.max", gpu_metrics.POWER_LIMIT, "w"),
        ToolRow("ecc.errors.uncorrected.volatile.total", gpu_metrics.ECC_UNCORRECTED),
        ToolRow("ecc.errors.corrected.volatile.total", gpu_metrics.ECC_CORRECTED),
    )
}
OLDER: Final = ["index", *list(COLUMNS)[:5]]
QUERIES: Final = ["index", *COLUMNS], [*OLDER, *list(COLUMNS)[6:]], OLDER
"""Queries to try. The second lacks power.max, which is undocumented but seen; the third also lacks ECC."""
PLACE: Final = Path("/usr/bin/hl-smi")
HEADER: Final = re.compile(r"([\w.]+)\s*(?:\[(.*)\])?")

Columns = list[tuple[str, str | None]]
"""Name and unit of each column; the unit is None if it is in each cell."""
Row = tuple[float, Dimensions, Mapping[Metric, float]]
"""A row about a device: its time (monotonic s), dimensions and values."""


class HlSmi(RecordSource[str, Row]):
    """Runs hl-smi; keeps the last row of each device."""

    name = "hl-smi"

    def __init__(self, path: Path, interval: float, clock: Callable[[], float]) -> None:
        """`interval`: seconds between two ticks; `clock`: returns monotonic seconds."""
        self._path, self._seconds = path, max(1, int(interval))
        self._columns: Columns = []
        super().__init__(self._command(0), interval, clock)
        self.description = f"{path} every {self._seconds} s"

    def _command(self, failures: int) -> list[str | Path]:
        """Return the command; after each failure with the next query."""
        return [self._path, "-Q", ",".join(QUERIES[failures % len(QUERIES)]), "-f", "csv", "-l", str(self._seconds)]

    def _listen(self, problems: list[str]) -> bool:
        """Return True once rows have come and no further ones follow."""
        before = self._records
        super()._listen(problems)
        if not self._values:
            self._process.command = self._command(self._process.failures)
        return self._closed or (self._records == before and bool(self._values))

    def _parse(self, line: bytes, problems: list[str]) -> dict[str, Row]:
        cells = [cell.strip() for cell in line.decode(errors="replace").split(",")]
        if columns := header(cells):
            self._columns = columns
            return self._values
        asked = next((query for query in QUERIES if len(query) == len(cells)), QUERIES[0])
        columns = self._columns or [(name, None) for name in asked[: len(cells)]]
        index = dict(zip((name for name, _ in columns), cells, strict=False)).get("index", "")
        known = len(cells) == len(columns) >= len(QUERIES[-1]) or self._columns == columns
        if len(cells) != len(columns) or not (known and index.isascii() and index.isdigit() and len(index) < 5):
            raise ValueError(f"hl-smi printed a line that is not a row: {quoted(line)}")
        row: dict[Metric, float] = {}
        for (name, unit), cell in zip(columns, cells, strict=True):
            if name in COLUMNS and any(map(str.isdigit, cell)):  # a cell without digits means N/A
                column = COLUMNS[name]
                value = tool_number(cell if unit is None else f"{cell} {unit}", column.unit, must_have_unit=True)
                if value is None or value < 0:
                    problems.append(f"hl-smi: {name} is {quoted(cell.encode())}")
                else:
                    row[column.metric] = value * column.scale
        return self._values | {index: (self._clock(), Dimensions(gpu=index), row)}


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
        gpu_metrics.ECC_CORRECTED, gpu_metrics.ECC_UNCORRECTED,
    )  # fmt: skip

    def __init__(self, config: Config, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._source: HlSmi | None = None
        self._devices = 0
        self._points: dict[Dimensions, gpu_metrics.GpuPoints] = {}

    def open(self, given: Given) -> None:
        self.close()
        folder = self._config.sys / "bus/pci/devices"
        if not any(text(device / "vendor") == VENDOR for device in folder.glob("*")):
            raise Unavailable(f"no Gaudi: no device of vendor {VENDOR} in {folder}")
        self._source = HlSmi(find_program("hl-smi", self._config.path, PLACE), self._config.interval, self._clock)
        self._source.open()

    def collect(self, at: int) -> Iterator[Datapoint]:
        assert self._source is not None
        problems: list[str] = []
        rows, now = self._source.read(problems), self._clock()
        self._devices = len(rows)
        for read_at, dims, row in rows.values():
            if now - read_at < MAX_AGE * self._source.period:
                points = self._points.get(dims) or self._points.setdefault(dims, gpu_metrics.GpuPoints(dims))
                yield from points.make(at, row)
        if problems:
            raise PartlyCollected(list(dict.fromkeys(problems)))

    def describe(self) -> str:
        return f"{self._source.description}, {self._devices} devices" if self._source else ""

    def close(self) -> None:
        close_all(self._source)
        self._source = None


def header(cells: Sequence[str]) -> Columns:
    """Parse a header such as `index, memory.used [MiB], …`; return [] if it is not a header."""
    columns = [(match[1].lower(), match[2]) for cell in cells if (match := HEADER.fullmatch(cell))]
    return columns if len(columns) == len(cells) and ("index", None) in columns else []
