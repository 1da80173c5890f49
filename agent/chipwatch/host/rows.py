"""
Reads values in files of the kernel, and in the output of makers' programs, by tables of rows.

A row says where a value is and which metric it has. So a new value of a device is one more row in the table of its
collector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Kind, Level, Metric
from chipwatch.host.counters import Counters
from chipwatch.host.gpu_metrics import MOST, Readings
from chipwatch.host.last_values import LastValues, inode
from chipwatch.host.procfs import read_small

LEAST: Final = {"Cel": -100.0}
"""The least possible value of a unit, if it is not 0."""
LARGEST: Final = 2**63 - 1


class FileRow(NamedTuple):
    """A value in a file of a device."""

    metric: Metric
    path: str
    """The file below the device's folder. It may be a glob, whose first match counts; `a+b` is the sum of two files."""
    scale: float = 1
    """Number by which the value is multiplied to get the metric's unit, such as 1e-3 for millidegrees."""
    pattern: re.Pattern[bytes] | None = None
    """Pattern whose group 1 is the number (a word counts as 1, nothing as 0); None: the whole text is the number."""
    dims: Dimensions = NO_DIMENSIONS
    """Dimensions in addition to the device's."""
    total: Metric | None = None
    """A metric for all devices together: the sum of a counter, the largest value of a gauge. May equal `metric`."""

    @property
    def level(self) -> Level:
        """The lowest level at which the value is read."""
        return min(self.metric.level, self.total.level) if self.total else self.metric.level

    def value(self, text: bytes) -> float | None:
        """Return the value in the text of a file, in the metric's unit; None if it has none."""
        if "+" in self.path:
            parts = text.split(b"+")
            values = [value for value in map(self._replace(path="").value, parts) if value is not None]
            return sum(values) if len(values) == len(parts) else None
        word = text
        if self.pattern:
            if (found := self.pattern.search(text)) is None:
                return None
            word = found[1] or b""
        try:
            number = float(word) if b"." in word else int(word)
            # Divide by 1000, so that 45123 millidegrees are exactly 45.123. A number that is not scaled stays whole.
            return number * self.scale if self.scale >= 1 else number / (1 / self.scale)
        except (ValueError, OverflowError):
            return int(bool(word)) if self.pattern else None


class RowFiles:
    """Reads the files of one device, which are opened for each reading."""

    is_stale = False
    """True if the device has other files now, so that it must be searched again."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of the device."""
        self.folder = folder
        self._texts: dict[str, bytes | None] = {}
        """The contents of the files that this reading has read."""

    def read(self, rows: Iterable[FileRow]) -> Iterator[tuple[FileRow, float]]:
        """Yield the values that can be read; of adjacent rows for one series, only the first that can be read."""
        self._texts.clear()
        metric, dims = None, NO_DIMENSIONS
        for row in rows:
            if row.metric is metric and row.dims is dims:
                continue
            if (text := self._text(row.path)) is None:
                continue
            metric, dims = row.metric, row.dims
            if (value := row.value(text)) is None:
                self.reject(row, text)
            else:
                yield row, value

    def _text(self, path: str) -> bytes | None:
        """Return the content of a row's files, joined by `+`, None if one cannot be read; read each file only once."""
        if path not in self._texts:
            first, plus, others = path.partition("+")
            if plus:
                text, more = self._text(first), self._text(others)
                self._texts[path] = None if text is None or more is None else text + b"+" + more
            else:
                self._texts[path] = self.text(path)
        return self._texts[path]

    def text(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it cannot be read."""
        try:
            return read_small(next(self.folder.glob(path)) if "*" in path else f"{self.folder}/{path}")
        except (OSError, StopIteration):
            return None

    def reject(self, row: FileRow, text: bytes) -> None:
        """Note a text that lacks the value of its row; the value is then absent."""


class Folder(NamedTuple):
    """A device: its folder, its dimensions, and the rows of its values."""

    path: Path
    dims: Dimensions
    rows: Sequence[FileRow]


Find = Callable[[Sequence[Path]], Iterable[Folder]]


class Folders:
    """Reads all devices of one kind, which come and go."""

    def __init__(
        self,
        root: Path,
        glob: str,
        find: Find,
        level: Level = Level.ALL,
        *,
        kept: LastValues | None = None,
        reader: Callable[[Path], RowFiles] = RowFiles,
    ) -> None:
        """
        Search the folders that match `glob` below `root`; `find` makes devices of them.

        Read values of at most `level`. `kept` has the counters of an earlier run, and `reader` reads one folder.
        """
        self._root, self._glob, self._find, self._kept, self._reader = root, glob, find, kept, reader
        self.level = level
        self._listed: list[Path] | None = None
        self._devices: dict[tuple[Dimensions, Path, int], tuple[Folder, RowFiles, Counters]] = {}
        """The devices by dimensions, folder and inode: a driver that is loaded again may swap their names."""
        self._totals = Counters()

    def __len__(self) -> int:
        self._search()
        return len(self._devices)

    def __iter__(self) -> Iterator[Folder]:
        """Yield the devices of the last reading."""
        return (device for device, *_ in self._devices.values())

    def _search(self) -> None:
        """Search the devices again if some came, went or changed."""
        listed = sorted(self._root.glob(self._glob))
        before = {key: state for key, state in self._devices.items() if not state[1].is_stale}
        if listed == self._listed and all(key in before and inode(key[1]) == key[2] for key in self._devices):
            return
        self._devices, self._listed = {}, listed
        for device in self._find(listed):
            if rows := [row._replace(dims=device.dims | row.dims) for row in device.rows if row.level <= self.level]:
                key = device.dims, device.path, inode(device.path)
                new = self._reader(device.path), Counters(kept=self._kept, device=device.path)
                _, reader, counters = before.get(key, (device, *new))
                self._devices[key] = device._replace(rows=rows), reader, counters

    def points(self, at: int) -> Iterator[Datapoint]:
        """Yield the values of each device, then the totals; leave out values that cannot be read, or are impossible."""
        self._search()
        members: dict[tuple[Metric, Dimensions], dict[object, float]] = {}
        for key, (device, reader, counters) in self._devices.items():
            for row, value in reader.read(device.rows):
                metric, dims = row.metric, row.dims
                if not LEAST.get(metric.unit, 0) <= value <= MOST.get(metric.unit, LARGEST):
                    continue
                if row.total:
                    of_all = Dimensions({word: dims[word] for word in row.total.dims})
                    members.setdefault((row.total, of_all), {})[key, row.path] = value
                if metric is not row.total and metric.level <= self.level:
                    is_counter = metric.kind is Kind.COUNTER
                    yield counters.point(metric, at, value, dims) if is_counter else metric.point(at, value, dims)
        for (metric, dims), values in members.items():
            if metric.kind is Kind.COUNTER:
                yield self._totals.total(metric, at, values, dims)
            else:
                yield metric.point(at, max(values.values()), dims)


def each(key: str, rows: Sequence[FileRow]) -> Find:
    """Return a `find` for Folders that takes every folder as a device; the folder's name is the dimension `key`."""
    return lambda folders: [Folder(folder, Dimensions({key: folder.name}), rows) for folder in folders]


class ToolRow(NamedTuple):
    """A value that a maker's program prints."""

    name: str
    """A regular expression for the whole name of the value, in lower case."""
    metric: Metric
    unit: str = ""
    """The unit that may come after the number, in lower case."""
    scale: float = 1
    """Number by which the value is multiplied to get the metric's unit."""


def tool_readings(cells: Mapping[str, str], rows: Iterable[ToolRow]) -> Readings:
    """Return the readings of one card; `cells` are its values by name. If rows share a metric, the last one counts."""
    readings: Readings = {}
    for row in rows:
        for name, cell in cells.items():
            if re.fullmatch(row.name, name) and (value := tool_number(cell, row.unit)) is not None:
                readings[row.metric] = value * row.scale
    return readings


def tool_number(cell: str, unit: str = "", *, must_have_unit: bool = False) -> float | None:
    """Return the number in a cell such as `12` or `45.0 W`; None for `N/A`, or if there is other text than `unit`."""
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)\s*([a-z%/]*)", cell.lower())
    if not found or (found[2] != unit and (found[2] or must_have_unit)):
        return None
    number = float(found[1])
    return number if abs(number) < LARGEST else None
