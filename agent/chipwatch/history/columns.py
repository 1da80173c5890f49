"""Loads a recording (docs/recording.md), or JSON lines (docs/json.md), into memory: a column for each series."""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from glob import escape
from io import BufferedIOBase, BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from chipwatch.base.text import nearest_file
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.errors import CommandError, os_text
from chipwatch.history.event import Event, Moment

FORMAT: Final = 1
"""Version of both formats; a later one is refused."""
MOST_POINTS: Final = 7_000_000
"""Most points of a file, besides one for each four bytes of it; for what else counts as points, see `_weight`."""
LONGEST: Final = 4 << 20
"""Most bytes of a line."""
MOST_OBJECTS, MOST_NUMBERS = 50_000, 200_000
"""Most objects of a line, and most numbers or texts: decoded, a line then takes 40 MB at most."""
MOST_WORK, RATIO = 256 << 20, 96
"""Most bytes of an unpacked file, besides RATIO for each byte of the file as it is."""
PER_LINE, PER_OBJECT, PER_NUMBER = 200, 300, 16
"""Bytes that are added for each line, object and number when work is counted: reading many small ones takes longer."""
WASTE: Final = 16 << 20
"""Bytes of unreadable lines, counted in the same way, after which the rest of the file is not tried."""
CHECKSUM: Final = b',"crc":'
"""Text before the CRC-32 at the end of a line."""
MALFORMED, ERRORS = (ValueError, OverflowError, LookupError), (OSError, EOFError, zlib.error)
GZIP, EPOCH = b"\x1f\x8b", datetime(1970, 1, 1, tzinfo=UTC)


class NotARecording(CommandError):
    """The file cannot be read, or has no line of a recording."""


class Series(msgspec.Struct, omit_defaults=True):
    """A line's description of a series; each row that follows has a value for it, in the same order."""

    name: str = ""
    kind: Kind = Kind.GAUGE
    unit: str = "1"
    dims: dict[str, str] = {}
    start: int | None = None


class Line(Series, omit_defaults=True):
    """Any line of a file: a header, an event, a list of series, a row, or a point of JSON lines."""

    chipwatch: int = 0
    version: str = ""
    host: dict[str, str] = {}
    started: Moment = 0
    interval: float | None = None
    event: Event | None = None
    series: list[Series] = []
    at: Moment = 0
    sealed: Moment = 0
    row: list[int | float | None] = []
    format: int = 0
    time: str = ""
    value: float = 0.0
    start_time: str | None = None


@dataclass(slots=True)
class RecordedSeries:
    """The samples of one series, as columns: the n-th time, the n-th value."""

    metric: Metric
    dims: Dimensions
    times: array[int] = field(default_factory=lambda: array("q"))
    """Nanoseconds since the epoch, ascending."""
    values: array[float] = field(default_factory=lambda: array("d"))
    starts: list[tuple[int, int]] = field(default_factory=list)
    """For a counter: the number of the first sample after each start, and the start time (ns since the epoch)."""

    def point(self, place: int) -> Datapoint:
        """Return the sample with the number `place`; a counter's has the start time that held then."""
        earlier = bisect_left(self.starts, (place + 1,))
        start = self.starts[earlier - 1][1] if earlier else None
        return self.metric.point(self.times[place], self.values[place], self.dims, start_time=start)


@dataclass(slots=True)
class Recorded:
    """The content of one recording, or of all files of a run."""

    path: Path
    started: int = 0
    ended: int = 0
    """Times of the first and of the last sample (ns since the epoch)."""
    interval: float | None = None
    """Seconds between two ticks."""
    host: dict[str, str] = field(default_factory=dict)
    """The machine's dimensions; `version` is the agent's."""
    columns: list[RecordedSeries] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    broken: int = 0
    """Number of lines that could not be read."""

    def times(self) -> list[int]:
        """Return the times of all ticks (ns since the epoch), ascending."""
        return sorted({at for column in self.columns for at in column.times})

    def ticks(self, start: int = 0) -> Iterator[tuple[int, list[Datapoint]]]:
        """Yield each time (ns), from tick number `start` on, and the samples that series have then."""
        for at in self.times()[start:]:
            places = [(column, bisect_left(column.times, at)) for column in self.columns]
            yield at, [one.point(place) for one, place in places if place < len(one.times) and one.times[place] == at]


def load(path: Path, *more: Path, most_points: int | None = None) -> Recorded:
    """
    Return the content of a recording and of its tail, as far as it can be read; raise NotARecording.

    `more` are the later files of the same run. `most_points` limits the points of each file; None: see MOST_POINTS.
    """
    reader = _Reader(path, most_points)
    try:
        for part in (path, *more):
            reader.read(part)
    except MemoryError:
        raise NotARecording(f"{path}: it does not fit into this machine's memory") from None
    return reader.whole()


def load_run(*paths: Path) -> Recorded:
    """Return the content of all files of one run, also of numbered ones beside `paths`; raise NotARecording."""
    first, *others = runs_of(paths)
    if others:
        raise NotARecording(f"{first[0]}, {others[0][0]}: these are recordings of different runs; name one")
    return load(*first)


def header_of(path: Path) -> Line | None:
    """Return the first line of a recording, an empty one if it is cut off, None for JSON lines; raise NotARecording."""
    try:
        first = next(_lines(path, Recorded(path)), None)
    except NotARecording as problem:
        if isinstance(problem.__cause__, EOFError):  # as a power cut leaves a new file
            return Line()
        raise
    return first if first and first.chipwatch else None


def runs_of(paths: Iterable[Path]) -> list[list[Path]]:
    """Return the files of each run, in order, also numbered ones beside `paths`; raise NotARecording."""
    runs: dict[object, set[Path]] = {}
    for path in paths:
        run, files = _run_of(path), {path}
        if run != path:
            for other in path.parent.glob(f"{escape(re.sub(r'-[0-9]+$', '', path.stem))}*{path.suffix}"):
                with suppress(NotARecording):  # the user did not name this file, so it may be anything
                    if _run_of(other) == run:
                        files.add(other)
        runs.setdefault(run, set()).update(files)
    return [sorted(files, key=_first_time) if len(files) > 1 else [*files] for files in runs.values()]


def _run_of(path: Path) -> object:
    """Return a key that all files of a run share, and no other file has."""
    header = header_of(path)
    return (header.started, *sorted(header.host.items())) if header and header.started else path


def _first_time(path: Path) -> tuple[float, str]:
    """Return the time of the first sample, infinity if there is none yet; and the name, as a tie-breaker."""
    return next((line.at for line in _lines(path, Recorded(path)) if line.at), math.inf), path.name


def tail_of(path: Path) -> Path:
    """Return the path of a recording's tail: the file beside it that has the newest ticks while it is written."""
    return path.with_name(f"{path.name}.tail")


class _Reader:
    """Sorts lines into columns."""

    def __init__(self, path: Path, most_points: int | None) -> None:
        self.recorded = Recorded(path)
        self._given, self._most_points = most_points, 0
        self._left = 0
        """Number of points that the file may still have before it is refused."""
        self._columns: dict[tuple[str, Dimensions], RecordedSeries] = {}
        self._events: dict[tuple[int, str, str], Event] = {}
        self._slots: list[tuple[RecordedSeries, int | None]] = []
        """The series of each value of a row, since the last header, with its start time."""

    def read(self, path: Path) -> None:
        """Add the lines of a file and of its tail; raise NotARecording."""
        self._most_points = self._given or MOST_POINTS + (path.stat().st_size // 4 if path.exists() else 0)
        self._left = self._most_points
        for line in _lines(path, self.recorded):
            self.take(line)
        if (tail := tail_of(path)).is_file():
            with suppress(NotARecording):
                for line in _lines(tail, self.recorded):
                    self.take(line)

    def take(self, line: Line) -> None:
        """Add a line; if its parts do not fit together, it counts as broken."""
        recorded = self.recorded
        self._spend(1)
        if (version := line.chipwatch or line.format) > FORMAT:
            raise NotARecording(f"{recorded.path}: format {version} is of a newer chipwatch; install that")
        if line.chipwatch:
            recorded.interval = recorded.interval or line.interval
            self._slots = []
            if not recorded.host:
                self._spend(_weight(line.host, line.version))
                recorded.host = line.host | {"version": line.version}
        event = line.event
        if event and (key := (event.at, event.cause, event.text)) not in self._events:
            self._spend(_weight(event.dims, event.cause, event.text))
            self._events[key] = event
        try:
            if line.row:
                self._add_row(line.at, line.row)
            elif line.name and line.time:
                column, at = self._series(line), _ns(line.time)
                if column.times and at <= column.times[-1]:
                    raise ValueError("a time comes twice")
                self._add(at, [(column, None if line.start_time is None else _ns(line.start_time))], [line.value])
            for series in line.series:
                self._spend(SLOT)
                self._slots.append((self._series(series), series.start))
        except MALFORMED:
            recorded.broken += 1

    def _add_row(self, at: int, row: list[int | float | None]) -> None:
        """Add the samples of a tick, except ones that are there already; raise ValueError or OverflowError."""
        self._spend(len(row))
        if len(row) > len(self._slots) or not at:
            raise ValueError("the parts do not fit together")
        self._add(at, self._slots, row)

    def _add(self, at: int, slots: list[tuple[RecordedSeries, int | None]], row: list[int | float | None]) -> None:
        for (column, start), value in zip(slots, row, strict=False):
            if value is not None and not ((times := column.times) and at <= times[-1]):
                column.values.append(value)  # first, since it raises OverflowError
                if start is not None and (not column.starts or column.starts[-1][1] != start):
                    self._spend(SLOT)
                    column.starts.append((len(times), start))
                times.append(at)

    def _series(self, series: Series) -> RecordedSeries:
        key = series.name, Dimensions(series.dims)
        if (column := self._columns.get(key)) is None:
            self._spend(_weight(series.dims, series.name, series.unit))
            column = self._columns[key] = RecordedSeries(Metric(series.name, series.kind, series.unit, ""), key[1])
        return column

    def _spend(self, points: int) -> None:
        self._left -= points
        if self._left < 0:
            raise NotARecording(f"{self.recorded.path}: more than {self._most_points:,} points; it is not read")

    def whole(self) -> Recorded:
        """Return all that was read; raise NotARecording if there is no sample."""
        recorded = self.recorded
        recorded.events = [*self._events.values()]
        recorded.columns = [column for column in self._columns.values() if column.times]
        if not recorded.columns:
            why = "it holds no sample" if recorded.host else "no line is one of `chipwatch --format json`"
            raise NotARecording(f"{recorded.path}: {why}")
        if recorded.interval is None:
            gaps = (after - before for column in recorded.columns for before, after in pairwise(column.times))
            recorded.interval = min(gaps, default=0) / 1e9 or None
        recorded.started = min(column.times[0] for column in recorded.columns)
        recorded.ended = max(column.times[-1] for column in recorded.columns)
        recorded.columns.sort(key=lambda column: (column.metric.name, column.dims.items_sorted))
        return recorded


SLOT, SERIES = 8, 50
"""Number of points that an entry of a list, and a series, count as, without their texts."""


def _weight(dims: Mapping[str, str], *words: str) -> int:
    """Return the number of points that take as much memory as a series or an event with these texts."""
    pairs = sum(SLOT + (len(key) + len(value)) // 4 for key, value in dims.items())
    return SERIES + pairs + sum(map(len, words)) // 4


@lru_cache(maxsize=64)
def _ns(text: str) -> int:
    """Return a time as nanoseconds since the epoch; raise ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return (moment - EPOCH) // timedelta(microseconds=1) * 1000


def unzipped(file: BufferedReader) -> BufferedIOBase:
    """Return `file`, or a file that unpacks it if it is compressed by gzip."""
    return gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == GZIP else file


def checksummed(line: bytes) -> bytes:
    """Return a JSON object as a line that ends with its checksum."""
    return b"%b%b%d}\n" % (line[:-1], CHECKSUM, zlib.crc32(line))


def is_whole(line: bytes) -> bool:
    """Return whether a line ends with the right checksum, and so is complete."""
    text, _, number = line.rpartition(CHECKSUM)
    return number.strip() == b"%d}" % zlib.crc32(text + b"}")


def _lines(path: Path, recorded: Recorded) -> Iterator[Line]:
    """Yield the lines of a file, and count the ones that cannot be read; raise NotARecording if there is none."""
    decoder, wasted, is_read, are_checked = msgspec.json.Decoder(Line), 0, False, False
    try:
        with path.open("rb") as raw:
            left = MOST_WORK + RATIO * os.fstat(raw.fileno()).st_size
            file = unzipped(raw)
            while wasted <= WASTE and (text := file.readline(LONGEST)):
                are_checked |= CHECKSUM in text  # after the first checksum, each line must have one
                objects, numbers = text.count(b"{"), text.count(b",")
                work = len(text) + PER_LINE + PER_OBJECT * objects + PER_NUMBER * numbers
                left -= work
                if left < 0:
                    raise NotARecording(f"{path}: more than {MOST_WORK >> 20} MB once it is unpacked; it is not read")
                is_sound = objects <= MOST_OBJECTS and numbers <= MOST_NUMBERS
                try:
                    line = decoder.decode(text if is_sound and (not are_checked or is_whole(text)) else b"")
                except (ValueError, RecursionError):
                    recorded.broken += bool(text.strip())
                    wasted += work
                else:
                    is_read = True
                    yield line
    except ERRORS as problem:
        if not is_read:
            raise NotARecording(f"{path}: {os_text(problem)}{nearest_file(path)}") from problem
        is_in_tail = isinstance(problem, EOFError) and tail_of(path).is_file()
        recorded.broken += not is_in_tail  # a kill cut off what is in the tail, too
