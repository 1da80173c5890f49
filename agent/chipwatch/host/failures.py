"""
The failures of this machine, in one small file of the state folder that no kill, reboot or new installation empties.

The file is replaced as a whole, under a lock. Its name is of this machine alone: a copy of the disk begins without.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import localtime, strftime
from typing import Final, NamedTuple

import msgspec

from chipwatch.base.system import open_locked
from chipwatch.contract.datapoint import Dimensions
from chipwatch.host.procfs import text
from chipwatch.host.state_file import read_state, write_state

DAY: Final = 86400 * 10**9
"""Nanoseconds of a day; a kind of failure counts once in this time."""
KEPT, WINDOWS = 90, (7, 30)
"""Days after which a failure counts no more, and days over which failures are counted."""
MOST, MOST_BYTES = 64, 1 << 20
"""Most failures of the file, and most bytes that are read of it; a failure has about 100."""
ORDINALS: Final = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")


class Failure(NamedTuple):
    """A failure: when it began (ns since the epoch), its kind, a sentence, and the job that it hit, or ""."""

    at: int
    kind: str
    text: str
    job: str = ""


def file_of(state: Path, root: Path, sys: Path) -> Path:
    """Return the file of this machine, by its machine-id and its board's asset tag, the instance id on EC2."""
    identity = text(root / "etc/machine-id"), text(sys / "class/dmi/id/board_asset_tag")
    return state / f"failures-{crc32(repr(identity).encode()):08x}.json"


def read(path: Path) -> list[Failure]:
    """Return the failures in a file, in the order in which they were noted; none if it cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        return msgspec.json.decode(read_state(path, MOST_BYTES), type=list[Failure])
    return []


def note(path: Path, new: Failure) -> None:
    """
    Add a failure, unless its kind has one within a day of it, or the disk takes none.

    The newest MOST stay. None goes because of its time, since the clock may be wrong.
    """
    with suppress(OSError), open_locked(path.with_suffix(".lock"), [0.1] * 10):  # tries for a second
        kept = read(path)
        if all(one.kind != new.kind or abs(one.at - new.at) >= DAY for one in kept):
            write_state(path, msgspec.json.encode([*kept, new][-MOST:]), durable=True)


def counted(path: Path, now: int) -> Iterator[tuple[Dimensions, list[Failure]]]:
    """
    Yield each kind that failed in the KEPT days before `now` (ns since the epoch), with each window: its failures.

    One after `now` does not count: a clock was ahead, or is behind.
    """
    recent = [one for one in read(path) if 0 <= now - one.at < KEPT * DAY]
    for kind in dict.fromkeys(one.kind for one in recent):
        for days in WINDOWS:
            within = [one for one in recent if one.kind == kind and now - one.at < days * DAY]
            yield Dimensions(days=str(days), kind=kind), within


def sentence(failures: Sequence[Failure]) -> str:
    """Return words such as: the third time in 14 days: gpu 6 does not answer (16 Nov job 7, 22 Nov, 29 Nov)."""
    number, days = len(failures), abs(failures[-1].at - failures[0].at) // DAY + 1
    often = f"the {ORDINALS[number]} time" if number < len(ORDINALS) else f"time number {number}"
    dates = [f"{strftime('%d %b', localtime(at // 10**9))}{job and f' job {job}'}" for at, _, _, job in failures]
    return f"{often} in {days} days: {', '.join({one.text: 0 for one in failures})} ({', '.join(dates)})"
