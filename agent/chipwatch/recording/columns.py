"""Loads a recording whole, a column for each series: the format of docs/recording.md, or JSON lines."""

from __future__ import annotations

import gzip
import math
from array import array
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from struct import Struct, error
from typing import Final

import msgspec

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.errors import os_text
from chipwatch.recording.event import LATEST, Event
from chipwatch.recording.lines import ERRORS, GZIP, WASTE, NotARecording, Recording, metric_of

FORMAT: Final = 1
"""Version of the format; a reader refuses a later one."""
MOST_SERIES: Final = 50_000
MOST_POINTS: Final = 30_000_000
"""Points of a recording, at 16 bytes each: a day of two GPUs at 1 s, or a week of eight at 15 s."""
MOST_EVENTS: Final = 100_000
MOST_BROKEN: Final = 100_000
MOST_HOST: Final = 1000
"""Dimensions of the machine."""
LONGEST: Final = 16 << 20
"""Bytes of a line."""
LARGEST_SCALE: Final = 22
"""Largest power of ten that a float holds exactly."""
FIRST_PICK: Final = ord("0")
"""Character of `picks` for the first of `values`."""
ABSENT: Final = " "
MALFORMED: Final = (ValueError, OverflowError, LookupError, error)


class Series(msgspec.Struct, omit_defaults=True):
    """A series of a block, with its samples in one of three forms, or of rows, without; docs/recording.md has both."""

    name: str
    kind: Kind = Kind.GAUGE
    unit: str = "1"
    dims: dict[str, str] = {}
    start: int | None = None
    values: list[int | float | None] = []
    picks: str = ""
    deltas: list[int | None] = []
    scale: int = 0
    floats: str = ""

    def samples(self) -> list[float]:
        """Return the samples, NaN for one that is absent; raise ValueError or OverflowError."""
        if self.floats:
            planes = b64decode(self.floats)
            size, raw = len(planes) // 8, bytearray(len(planes))
            for n in range(8):
                raw[n::8] = planes[n * size : (n + 1) * size]
            return [*Struct(f"<{size}d").unpack(raw)]
        if self.picks:
            words = {chr(n): float(value or 0) for n, value in enumerate(self.values, FIRST_PICK)} | {ABSENT: math.nan}
            return [words[pick] for pick in self.picks]
        values = self.values or self.deltas
        present: Iterable[float] = (value for value in values if value is not None)
        if self.deltas:
            factor = 10 ** min(max(self.scale, 0), LARGEST_SCALE)
            present = (total / factor for total in accumulate(value for value in values if value is not None))
        if None not in values:
            return [*map(float, present)]
        rest = iter(present)
        return [math.nan if value is None else float(next(rest)) for value in values]


class Line(msgspec.Struct, omit_defaults=True):
    """A header, an event, a block, a list of series, or a row; keys that are not known are ignored."""

    chipwatch: int = 0
    version: str = ""
    host: dict[str, str] = {}
    started: int = 0
    interval: float | None = None
    event: Event | None = None
    times: list[int] = []
    series: list[Series] = []
    at: int = 0
    row: list[int | float | None] = []


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

    def start(self, place: int) -> int | None:
        """Return the start of a counter at the sample in `place`."""
        return next((start for first, start in reversed(self.starts) if first <= place), None)

    def begin(self, start: int | None) -> None:
        """Note the start of the counter whose samples follow."""
        if start is not None and (not self.starts or self.starts[-1][1] != start):
            self.starts.append((len(self.times), start))


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
    """Return what a file holds, and the tail that is not in it yet, as far as it can be read; raise NotARecording."""
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
            if (tail := tail_of(path)).exists():
                with suppress(NotARecording):
                    for line in _lines(tail, reader.recorded):
                        reader.take(line)
    except MemoryError:
        raise NotARecording(f"{path}: it does not fit into this machine's memory") from None
    return reader.whole()


def is_ours(path: Path) -> bool:
    """Return whether a file begins as docs/recording.md has it; raise NotARecording."""
    first = next(_lines(path, Recorded(path)), None)
    return first is not None and first.chipwatch > 0


def tail_of(path: Path) -> Path:
    """Return the file beside a recording that has the newest ticks while it is written."""
    return path.with_name(f"{path.name}.tail")


class _Reader:
    """Collects lines into columns."""

    def __init__(self, path: Path, most_series: int, most_points: int) -> None:
        self.recorded = Recorded(path)
        self._most_series, self._left, self._most_points = most_series, most_points, most_points
        self._columns: dict[tuple[str, Dimensions], RecordedSeries] = {}
        self._events: dict[tuple[int, str, str], Event] = {}
        self._slots: list[tuple[RecordedSeries, int | None]] = []
        """The series of rows since the last header, and the start of each."""

    def take(self, line: Line) -> None:
        """Add a line; a part that does not fit together counts as broken."""
        recorded = self.recorded
        self._spend(1)
        if line.chipwatch:
            if line.chipwatch > FORMAT:
                raise NotARecording(f"{recorded.path}: format {line.chipwatch} is of a newer chipwatch; install that")
            recorded.interval = recorded.interval or line.interval
            recorded.host = recorded.host or dict([*line.host.items()][:MOST_HOST]) | {"version": line.version}
            self._slots = []
        if (event := line.event) and len(self._events) < MOST_EVENTS:
            self._events.setdefault((event.at, event.cause, event.text), event)
        try:
            if line.row:
                self._add_row(line.at, line.row)
            elif not line.times:
                self._slots += [(self._series(new), new.start) for new in line.series]
        except MALFORMED:
            recorded.broken += 1
        for piece in line.series if line.times else ():
            try:
                self._add_piece(piece, line.times)
            except MALFORMED:
                recorded.broken += 1
        if recorded.broken > MOST_BROKEN:
            raise NotARecording(f"{recorded.path}: more than {MOST_BROKEN:,} parts are broken; it is not read")

    def _add_row(self, at: int, row: list[int | float | None]) -> None:
        """Add the samples of one tick; what a block has already is left out. Raise ValueError or OverflowError."""
        self._spend(len(row))
        if len(row) > len(self._slots) or not 0 < at <= LATEST:
            raise ValueError("the parts do not fit together")
        for (column, start), value in zip(self._slots, row, strict=False):
            if value is not None and not (column.times and at <= column.times[-1]):
                number = _finite(float(value))
                column.begin(start)
                column.times.append(at)
                column.values.append(number)

    def _add_piece(self, piece: Series, deltas: list[int]) -> None:
        """Add the samples of one series of a block; raise ValueError or OverflowError for what is not of the format."""
        self._spend(len(deltas))
        samples = piece.samples()
        times = [*accumulate(deltas)]
        if len(samples) != len(times) or min(deltas[1:], default=1) <= 0 or not 0 < times[0] <= times[-1] <= LATEST:
            raise ValueError("the parts do not fit together")
        absent = [value != value for value in samples]  # noqa: PLR0124  # only NaN differs from itself
        if any(absent):
            times = [at for at, is_absent in zip(times, absent, strict=True) if not is_absent]
            samples = [value for value, is_absent in zip(samples, absent, strict=True) if not is_absent]
        if not samples:
            return
        if math.inf in samples or -math.inf in samples:
            raise ValueError("a number is not finite")
        column = self._series(piece)
        if column.times and times[0] <= column.times[-1]:
            raise ValueError("a time comes twice")
        column.begin(piece.start)
        column.times.extend(times)
        column.values.extend(samples)

    def _series(self, series: Series) -> RecordedSeries:
        return self._column(series.name, series.kind, series.unit, Dimensions(series.dims))

    def take_lines(self) -> None:
        """Read the file as JSON lines; raise NotARecording."""
        last = 0
        with closing(Recording(self.recorded.path)) as recording:
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
        column.begin(start)
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
        recorded.events = [*self._events.values()]
        recorded.columns = [column for column in recorded.columns if column.times]
        if not recorded.columns:
            raise NotARecording(f"{recorded.path}: it holds no sample")
        recorded.started = min(column.times[0] for column in recorded.columns)
        recorded.ended = max(column.times[-1] for column in recorded.columns)
        recorded.columns.sort(key=lambda column: (column.metric.name, column.dims.items_sorted))
        return recorded


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


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
