"""Counters of devices in a table of the kernel, such as /proc/diskstats: a line for each device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Level, Metric
from chipwatch.host.counters import Counters, Life
from chipwatch.host.last_values import LastValues

Counts = Mapping[str, Sequence[Any]]
"""The counts of each device by its name, in the order of the columns; None if the system does not count one."""


class DeviceColumn(NamedTuple):
    """A column of the table: a counter of each device or, if the metric has no dimensions, of all together."""

    metric: Metric
    number: int
    """The index of the column."""
    parse: Callable[[bytes], float] = int
    """Returns the count in the metric's unit; raises ValueError."""
    dims: Dimensions = NO_DIMENSIONS
    """Dimensions in addition to the device's."""


class DeviceTable:
    """Reads the counts in the lines of devices, and makes points of them; devices come and go."""

    def __init__(
        self,
        columns: Iterable[DeviceColumn],
        level: Level,
        choose: Callable[[Collection[str]], Collection[str]],
        kept: LastValues,
        folder: Callable[[str], Path],
    ) -> None:
        """
        Take the columns, which are read up to `level`; `choose` returns the names of the devices that count.

        `kept` has the counters of an earlier run, and `folder` returns the folder of a device in sysfs.
        """
        self._columns = [column for column in columns if column.metric.level <= level]
        self._choose, self._kept, self._folder = choose, kept, folder
        self._names: dict[bytes, str | None] = {}
        """The name of the device of each line; None if it does not count."""
        self._devices: dict[str, list[tuple[int, Metric, Dimensions, Life]]] = {}
        self._totals = Counters()

    def parse(self, lines: Sequence[tuple[bytes, bytes]]) -> Counts:
        """Return the counts in `lines`, each a name and the text of its columns; raise ValueError or LookupError."""
        names = self._names
        if any(raw not in names for raw, _ in lines):
            decoded = {raw: raw.decode(errors="backslashreplace") for raw, _ in lines}
            chosen = self._choose(decoded.values())
            names = self._names = {raw: name if name in chosen else None for raw, name in decoded.items()}
        columns = [(column.number, column.parse) for column in self._columns]
        return {
            name: [parse(words[number]) for number, parse in columns]
            for raw, line in lines
            if (name := names[raw]) is not None
            for words in (line.split(),)
        }

    def pick(self, rows: Mapping[str, Mapping[int, float | None]]) -> Counts:
        """Return the counts in `rows`, which have the counts of each device by the numbers of columns."""
        return {name: [rows[name].get(column.number) for column in self._columns] for name in self._choose(rows)}

    def points(self, at: int, counts: Counts) -> Iterator[Datapoint]:
        """Yield the sums, then the counters of each device."""
        for place, (metric, *_) in enumerate(self._columns):
            if counts and not metric.dims:
                yield self._totals.total(metric, at, {name: values[place] for name, values in counts.items()})
        known = self._devices
        self._devices = {name: known[name] if name in known else self._find(name, at, counts[name]) for name in counts}
        for name, series in self._devices.items():
            values = counts[name]
            for place, metric, dims, life in series:
                life.take(values[place], at)
                yield metric.point(at, life.value, dims, start_time=life.start_time)

    def _find(self, name: str, at: int, values: Sequence[Any]) -> list[tuple[int, Metric, Dimensions, Life]]:
        """Return the counters of a new device, each with its place in `values`."""
        series = []
        for place, (metric, _, _, more) in enumerate(self._columns):
            if metric.dims and values[place] is not None:
                dims = Dimensions({metric.dims[0]: name}) | more
                life = self._kept.life(f"{metric.name} {dict(dims)}", at, self._folder(name))
                series.append((place, metric, dims, life))
        return series
