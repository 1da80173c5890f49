"""
Collects metrics from files in Prometheus' text format, which cron scripts and NCCL Inspector write for node_exporter.

Names and labels stay as they are, except for labels that distinguish processes and calls, which are dropped. A file
is read again when it has changed.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.base.system import NO_WAIT
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, gauge
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.exposition import ExpositionReader, ScrapeResponse

AGE: Final = gauge("textfile.age", "s", "Time since the oldest of these files was written.", dims=("file",))
UNBOUNDED: Final = ("coll_sn", "comm_hash", "comm_id", "p2p_sn", "pid", "timestamp")
"""Labels of NCCL Inspector that have a different value for each process, communicator or call."""
DIGITS: Final = re.compile("[0-9]+")


class _File:
    """A file, and the points of its last reading."""

    def __init__(self, path: str, config: TextfileCollector.Config) -> None:
        self._path, self._max_bytes, dropped = path, config.max_bytes, {*config.drop_labels}
        self._reader = ExpositionReader(
            config.max_series, lambda labels: {key: value for key, value in labels.items() if key not in dropped}
        )
        self._stamp: tuple[int, ...] = ()
        self.points: list[Datapoint] = []
        """The points of the last complete reading, stamped with its time."""
        self.problems: list[str] = []
        self.written = 0
        """Time at which the file was written (ns since the epoch)."""

    def read(self, at: int) -> None:
        """Read the file if it has changed, but not while it is being written; raise OSError."""
        file = os.open(self._path, os.O_RDONLY | NO_WAIT)
        try:
            status = os.fstat(file)
            self.written, stamp = status.st_mtime_ns, _stamp(status)
            if stamp == self._stamp:
                return
            if not stat.S_ISREG(status.st_mode):
                raise OSError("not a regular file")
            if status.st_size > self._max_bytes:
                raise OSError(f"it has more than {self._max_bytes} bytes (max_bytes)")
            body = b""
            while part := os.read(file, status.st_size + 1 - len(body)):
                body += part
            if _stamp(os.fstat(file)) != stamp or len(body) != status.st_size:
                return
        finally:
            os.close(file)
        openmetrics = body.rstrip().endswith(b"# EOF")
        self.points, self.problems = self._reader.read(ScrapeResponse(body, openmetrics, whole=openmetrics), at)
        self._stamp = stamp


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino


class TextfileCollector(Collector):
    """Reads the files that match globs, and their age."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The files."""

        files: tuple[str, ...] = ()
        """Globs of files, such as /var/lib/node_exporter/textfile_collector/*.prom."""
        drop_labels: tuple[str, ...] = UNBOUNDED
        """Labels to leave out: those with a value for each process or call would make a series of each."""
        max_age: float = 3600.0
        """Seconds after which the metrics of a file that is not written any more are left out."""
        max_files: int = 100
        """Limit of files; the rest is left out."""
        max_bytes: int = 4_000_000
        """Size limit of a file in bytes; a larger one is left out."""
        max_series: int = 5000
        """Limit of series in all files; the rest is left out."""

        def __post_init__(self) -> None:
            """Raise ValueError for a limit that is not above 0."""
            for key in ("max_files", "max_bytes", "max_series", "max_age"):
                if getattr(self, key) <= 0:
                    raise ValueError(f"{key}: expected more than 0, got {getattr(self, key)}")

    metrics = (AGE,)

    def __init__(self, config: Config) -> None:
        self._config = config
        self._files: dict[str, _File] = {}
        self._series = 0

    def open(self, given: Given) -> None:
        if not self._config.files:
            raise Unavailable('no file is configured: set files = ["/path/*.prom"] in [collectors.textfile]')

    def yields_others(self) -> bool:
        """Return True if there are files: they determine further metrics."""
        return bool(self._config.files)

    def collect(self, at: int) -> Iterable[Datapoint]:
        problems: list[str] = []
        seen: set[tuple[str, Dimensions]] = set()
        ages: dict[str, float] = {}
        count, most = 0, self._config.max_series
        for path, file in self._found(problems).items():
            if count >= most:  # do not even read the rest: each file may have as many series
                problems.append(f"{path}: the files before it have {count} series (max_series); the rest is left out")
                self._files = {earlier: earlier_file for earlier, earlier_file in self._files.items() if earlier < path}
                break
            try:
                file.read(at)
            except FileNotFoundError:  # the file was renamed or deleted after it was listed
                continue
            except OSError as problem:
                problems.append(f"{path}: {problem.strerror or problem}")
                continue
            age = max(0.0, (at - file.written) / 1e9)
            name = os.fsencode(Path(path).name).decode(errors="replace")
            name = DIGITS.sub("#", name)  # digits may be a PID
            ages[name] = max(age, ages.get(name, 0.0))
            problems += [f"{path}: {problem}" for problem in file.problems]
            if age > self._config.max_age:
                continue
            fresh = {(point.metric.name, point.dims): point._replace(at=at) for point in file.points}
            if twice := fresh.keys() & seen:
                problems.append(f"{path}: {next(iter(twice))[0]} is in another file, too, with the same labels")
            count += len(fresh)
            new = [series for series in fresh if series not in seen]
            if len(seen) + len(new) > most:
                problems.append(f"{path}: the files have more than {most} series (max_series); the rest is left out")
                new = new[: most - len(seen)]
            seen.update(new)
            yield from (fresh[series] for series in new)
        self._series = len(seen)
        yield from (AGE.point(at, age, Dimensions(file=name)) for name, age in ages.items())
        if problems:
            raise PartlyCollected(problems)

    def _found(self, problems: list[str]) -> dict[str, _File]:
        """Return the existing files, sorted by path."""
        paths = sorted({path for pattern in self._config.files for path in glob.glob(pattern)})  # noqa: PTH207
        if len(paths) > (most := self._config.max_files):
            problems.append(f"{len(paths)} files match, more than {most} (max_files); the rest is left out")
        files = self._files
        self._files = {path: files.get(path) or _File(path, self._config) for path in paths[:most]}
        return self._files

    def describe(self) -> str:
        return f"{len(self._files)} file{'s' * (len(self._files) != 1)}, {self._series} series"

    def close(self) -> None:
        self._files = {}
