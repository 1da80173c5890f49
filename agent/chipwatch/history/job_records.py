"""The file of ended jobs for `chipwatch jobs --since`: one line of JSON for each job, in the state folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from chipwatch.base.system import SAFE
from chipwatch.history.journal import write_whole
from chipwatch.host.state_file import read_state

MOST_BYTES: Final = 10 << 20
"""Bytes after which a file is renamed and a new one begun. Only one renamed file is kept: 20 MiB together."""


class RecordedJob(msgspec.Struct):
    """Which job a record is about, and when it held devices."""

    job: str
    kind: str = ""
    namespace: str = ""
    user: str = ""
    partition: str = ""
    since: float = 0.0
    until: float = 0.0
    """Last moment at which it held a device (seconds since the epoch)."""
    end_unseen: float = 0.0
    """Seconds for which it may have held one after `until`, since the agent did not run when it ended."""


class JobRecord(RecordedJob):
    """A job as `chipwatch jobs --json` has it; times in seconds."""

    seconds: dict[str, float] = {}
    """Seconds that its devices were in each state."""
    idle: dict[str, float] = {}
    """Seconds in which no kernel ran on its devices, by cause; a part of `seconds`."""
    memory_max: float = 0.0
    energy: float = 0.0
    """Joules; `joules` has them by state of the devices."""
    joules: dict[str, float] = {}
    efficiency: float | None = None
    """Operations of the devices' tensor cores, of their dense peak (%), where reported; docs/efficiency.md."""
    cost: float | None = None
    cpu: float | None = None
    cpus: float | None = None
    host_memory_max: float | None = None


def append(path: Path, rows: Iterable[Mapping[str, Any]]) -> bool:
    """
    Append records and return True; raise OSError.

    A line that a full disk or a power cut left incomplete is ended first, so that it spoils no other line.
    """
    data = b"".join(msgspec.json.encode(_short(row)) + b"\n" for row in rows)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | SAFE, 0o600), "r+b", buffering=0) as file:
        if (size := file.seek(0, os.SEEK_END)) and file.seek(size - 1) >= 0 and file.read(1) != b"\n":
            data = b"\n" + data
        write_whole(file.fileno(), data)
    if size + len(data) >= MOST_BYTES:
        path.replace(earlier(path))
    return True


def records_of(folder: Path, name: str = "jobs") -> Path:
    """Return the file in which a processor keeps records."""
    return folder / f"ended-{name}.jsonl"


def earlier(path: Path) -> Path:
    """Return the name that a full file gets."""
    return path.with_name(f"{path.name}.1")


def read(path: Path, since: float) -> list[JobRecord]:
    """Return the last record of each job that held a device after `since` (seconds since the epoch)."""
    records = {}
    for file in (earlier(path), path):
        with suppress(OSError):
            for line in read_state(file, 2 * MOST_BYTES).splitlines():
                with suppress(ValueError, RecursionError):  # an incomplete or corrupt line
                    record = msgspec.json.decode(line, type=JobRecord)
                    if record.until >= since:
                        records[record.kind, record.namespace, record.job, record.since] = record
    return [*records.values()]


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without empty values, and with numbers rounded to a thousandth."""
    rounded = {key: _short(value) if isinstance(value, Mapping) else value for key, value in row.items()}
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in rounded.items() if value}
