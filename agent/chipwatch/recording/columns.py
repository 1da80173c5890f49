"""Loads a recording whole, a column a series: the format of docs/recording.md, or JSON lines."""

from __future__ import annotations

import gzip
import math
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.errors import os_text
from chipwatch.recording.lines import ERRORS, GZIP, NotARecording, Recording, metric_of

FORMAT: Final = 1
"""Version of the format; a reader refuses a later one."""
MOST_SERIES: Final = 50_000
MOST_POINTS: Final = 30_000_000
"""Points of a recording, at 16 bytes each: a day of two GPUs at 1 s, or a week of eight at 15 s."""
MOST_EVENTS: Final = 100_000
MOST_HOST: Final = 1000
"""Dimensions of the machine."""
LONGEST: Final = 16 << 20
"""Bytes of a line."""
WASTE: Final = 64 << 20
"""Bytes of lines that cannot be read, after which the rest is not tried."""
LARGEST_SCALE: Final = 22
"""Largest power of ten that a float holds exactly."""
LATEST: Final = 2**63 - 1


class Event(msgspec.Struct):
    """An event at a moment (ns since the epoch): a cause in a word, a sentence, dimensions such as the job."""

    at: int
    cause: str
    text: str = ""
    dims: dict[str, str] = {}


class Piece(msgspec.Struct):
    """A series in a block, as docs/recording.md has it."""

    name: str
    values: list[int | float | None]
    kind: Kind = Kind.GAUGE
    unit: str = "1"
    dims: dict[str, str] = {}
    start: int | None = None
    scale: int = 0
    delta: bool = False


class Line(msgspec.Struct):
    """A header, an event or a block; keys that are not known are ignored."""

    chipwatch: int = 0
    version: str = ""
    host: dict[str, str] = {}
    started: int = 0
    interval: float | None = None
    event: Event | None = None
    times: list[int] = []
    series: list[Piece] = []


@dataclass(slots=True)
class RecordedSeries:
    """The samples of one series; a sample that is absent has no place."""

    metric: Metric
    dims: Dimensions
    times: array[int] = field(default_factory=lambda: array("q"))
    """Nanoseconds since the epoch, ascending."""
    values: array[float] = field(default_factory=lambda: array("d"))
    starts: list[tuple[int, int]] = field(default_factory=list)
    """For a counter: the place of the first sample since each start, and the start's time (ns)."""


@dataclass(slots=True)
class Recorded:
    """The content of one file."""

    path: Path
    started: int = 0
    ended: int = 0
    """Times of the first and of the last sample (ns since the epoch)."""
    interval: float | None = None
    """Seconds between two ticks."""
    host: dict[str, str] = field(default_factory=dict)
    """The dimensions of the machine, and `version`, the agent's."""
    columns: list[RecordedSeries] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    broken: int = 0
    """Lines that could not be read."""


def load(path: Path, *, most_series: int = MOST_SERIES, most_points: int = MOST_POINTS) -> Recorded:
    """Return what a file holds, as far as it can be read; raise NotARecording."""
    reader = _Reader(path, most_series, most_points)
    lines = _lines(path, reader.recorded)
    try:
        first = next(lines, None)
        if first is None or not first.chipwatch:
            reader.take_lines()
        else:
            reader.take(first)
            for line in lines:
                reader.take(line)
    except MemoryError:
        raise NotARecording(f"{path}: it does not fit into this machine's memory") from None
    return reader.whole()


class _Reader:
    """Collects lines into columns."""

    def __init__(self, path: Path, most_series: int, most_points: int) -> None:
        self.recorded = Recorded(path)
        self._most_series, self._left, self._most_points = most_series, most_points, most_points
        self._columns: dict[tuple[str, Dimensions], RecordedSeries] = {}

    def take(self, line: Line) -> None:
        """Add a line; one that does not fit together counts as broken."""
        recorded = self.recorded
        if line.chipwatch:
            if line.chipwatch > FORMAT:
                raise NotARecording(f"{recorded.path}: format {line.chipwatch} is of a newer chipwatch; install that")
            recorded.interval = recorded.interval or line.interval
            recorded.host = recorded.host or dict([*line.host.items()][:MOST_HOST]) | {"version": line.version}
        if line.event and len(recorded.events) < MOST_EVENTS:
            recorded.events.append(line.event)
        self._spend(1)
        times = [*accumulate(line.times)]
        if times and not 0 <= min(line.times) <= times[-1] <= LATEST:
            recorded.broken += 1
            return
        for piece in line.series:
            self._spend(len(piece.values))
            try:
                self._add(piece, times)
            except (ValueError, OverflowError, TypeError):
                recorded.broken += 1

    def _add(self, piece: Piece, times: list[int]) -> None:
        """Add the samples of one series; raise ValueError or OverflowError for what is not of the format."""
        values = piece.values
        if len(values) != len(times) or not 0 <= piece.scale <= LARGEST_SCALE:
            raise ValueError("the parts do not fit together")
        if None in values:
            times = [at for at, value in zip(times, values, strict=True) if value is not None]
        present = [value for value in values if value is not None]
        if piece.delta:
            present = [*accumulate(present)]
        if piece.scale:
            present = [value / 10**piece.scale for value in present]
        numbers = array("d", present)
        if not all(map(math.isfinite, numbers)):
            raise ValueError("a number is not finite")
        if not numbers:
            return
        column = self._column(piece.name, piece.kind, piece.unit, Dimensions(piece.dims))
        if column.times and times[0] <= column.times[-1]:
            raise ValueError("a time comes twice")
        if piece.start is not None and (not column.starts or column.starts[-1][1] != piece.start):
            column.starts.append((len(column.times), piece.start))
        column.times.extend(times)
        column.values.extend(numbers)

    def take_lines(self) -> None:
        """Read the file as JSON lines; raise NotARecording."""
        recording, last = Recording(self.recorded.path), 0
        with suppress(StopIteration), closing(recording):
            for _, at, points in recording.frames():
                self._spend(len(points))
                for point in points:
                    self._take_point(point)
                if last and (gap := (at - last) / 1e9) > 0:
                    interval = self.recorded.interval
                    self.recorded.interval = gap if interval is None else min(gap, interval)
                last = at
        self.recorded.broken += recording.broken

    def _take_point(self, point: Datapoint) -> None:
        metric, value, dims, at, start, *_ = point
        column = self._column(metric.name, metric.kind, metric.unit, dims)
        if (column.times and at <= column.times[-1]) or not math.isfinite(value):
            self.recorded.broken += 1
            return
        if start is not None and (not column.starts or column.starts[-1][1] != start):
            column.starts.append((len(column.times), start))
        column.times.append(at)
        column.values.append(value)

    def _column(self, name: str, kind: Kind, unit: str, dims: Dimensions) -> RecordedSeries:
        if (column := self._columns.get((name, dims))) is None:
            if len(self._columns) >= self._most_series:
                raise NotARecording(f"{self.recorded.path}: more than {self._most_series:,} series; it is not read")
            column = self._columns[name, dims] = RecordedSeries(metric_of(name, kind, unit), dims)
            self.recorded.columns.append(column)
        return column

    def _spend(self, points: int) -> None:
        self._left -= points
        if self._left < 0:
            raise NotARecording(f"{self.recorded.path}: more than {self._most_points:,} points; it is not read")

    def whole(self) -> Recorded:
        """Return what was read; raise NotARecording if there is no sample."""
        recorded = self.recorded
        if not recorded.columns:
            raise NotARecording(f"{recorded.path}: it holds no sample")
        recorded.started = min(column.times[0] for column in recorded.columns)
        recorded.ended = max(column.times[-1] for column in recorded.columns)
        recorded.columns.sort(key=lambda column: (column.metric.name, column.dims.items_sorted))
        return recorded


def _lines(path: Path, recorded: Recorded) -> Iterator[Line]:
    """Yield the lines of a file; count what cannot be read as broken. Raise NotARecording."""
    decoder, wasted, is_read = msgspec.json.Decoder(Line), 0, False
    try:
        with path.open("rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == GZIP else raw
            while text := file.readline(LONGEST):
                line = None
                with suppress(msgspec.DecodeError, RecursionError):
                    line = decoder.decode(text)
                if line is None and not is_read:
                    return
                if line is None:
                    recorded.broken += 1
                    wasted += len(text)
                    if wasted > WASTE:
                        return
                    continue
                is_read = True
                yield line
    except ERRORS as problem:
        if not is_read:
            raise NotARecording(f"{path}: {os_text(problem)}") from problem
        recorded.broken += 1  # the program that wrote it was killed, or the disk is bad
