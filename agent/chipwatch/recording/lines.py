"""Reads a recording: JSON lines as in docs/json.md, plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.errors import CommandError, os_text

LONGEST: Final = 1 << 20
"""Bytes of a line; a longer one is counted as broken."""
WASTE: Final = 64 << 20
"""Bytes of lines that cannot be read, after which the rest is not tried."""
MOST: Final = 100_000
"""Points of one frame."""
GZIP: Final = b"\x1f\x8b"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ERRORS: Final = (OSError, EOFError, zlib.error)
FORMAT: Final = 1


class NotARecording(CommandError):
    """The file cannot be read, or holds no line of a recording."""


class RecordedLine(msgspec.Struct):
    """A line; keys that are not known are ignored."""

    time: str = ""
    name: str = ""
    kind: Kind = Kind.GAUGE
    unit: str = "1"
    value: float = 0.0
    dims: dict[str, str] = {}
    increase: float | None = None
    start_time: str | None = None
    window_start: str | None = None
    format: int = FORMAT


class Recording:
    """A file of JSON lines."""

    def __init__(self, path: Path) -> None:
        """Open the file; raise NotARecording."""
        self.path = path
        self.broken = 0
        """Lines that could not be read: too long, cut, or not of this form."""
        self._decoder = msgspec.json.Decoder(RecordedLine)
        try:
            self._raw = path.open("rb")
            zipped = self._raw.peek(2)[:2] == GZIP
            self._size = max(1, path.stat().st_size)
        except OSError as problem:
            raise NotARecording(f"{path}: {os_text(problem)}") from problem
        self._file: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=self._raw) if zipped else self._raw

    @property
    def share(self) -> float:
        """Part of the file that has been read, from 0 to 1."""
        return min(1.0, self._raw.tell() / self._size)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._raw.close()

    def frames(self, start: int = 0) -> Iterator[tuple[int, int, list[Datapoint]]]:
        """
        Yield the place, the time (ns since the epoch) and the points of each tick from the place `start` on.

        A tick ends where a later time begins; points with an earlier time came late and belong to it. Raise
        NotARecording for a later format, and at the end if there was no line of a recording.
        """
        place, now, points = start, 0, list[Datapoint]()
        for at, point in self._points(start):
            if point.at > now:
                if points:
                    yield place, now, points
                place, now, points = at, point.at, []
            if len(points) < MOST:
                points.append(point)
        if points:
            yield place, now, points
        elif not start:
            raise NotARecording(f"{self.path}: no line is one of `chipwatch --format json`")

    def _points(self, start: int) -> Iterator[tuple[int, Datapoint]]:
        """Yield the place and the point of each line."""
        has_points = start > 0
        try:
            self._file.seek(start)
            place, wasted = start, 0
            while text := self._file.readline(LONGEST):
                if point := self._point(text):
                    has_points = True
                    yield place, point
                else:
                    self.broken += bool(text.strip())
                    wasted += len(text)
                    if wasted > WASTE:
                        return
                place += len(text)
        except ERRORS as problem:
            if not has_points:
                raise NotARecording(f"{self.path}: {problem}") from problem
            self.broken += 1  # what comes before is whole: the program that wrote it was killed, or the disk is bad

    def _point(self, text: bytes) -> Datapoint | None:
        try:
            line = self._decoder.decode(text)
            if line.format > FORMAT:
                raise NotARecording(f"{self.path}: format {line.format} is of a newer chipwatch; install that")
            if not (line.time and line.name):
                return None
            at, start = _ns(line.time), line.window_start
            metric = metric_of(line.name, line.kind, line.unit)
            begun = None if line.start_time is None else _ns(line.start_time)
            since = None if start is None else _ns(start)
            return Datapoint(metric, line.value, Dimensions(line.dims), at, begun, since, None, line.increase)
        except (msgspec.DecodeError, ValueError, OverflowError):
            return None


@lru_cache(maxsize=64)
def _ns(text: str) -> int:
    """Return a time as nanoseconds since the epoch; raise ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    since = moment - EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


@lru_cache(maxsize=10_000)
def metric_of(name: str, kind: Kind, unit: str) -> Metric:
    """Return a metric as a recording knows it: without help."""
    return Metric(name, kind, unit, "")
