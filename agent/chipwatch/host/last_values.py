"""Keeps the last values of counters in a file, so that a restart of the agent resets none of them."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from chipwatch.host.counters import Life, counting_since
from chipwatch.host.procfs import text
from chipwatch.host.state_file import read_state, write_state

EVERY: Final = 60 * 10**9
"""Nanoseconds between two writes of the file, unless a counter is reset."""
MAX_SIZE: Final = 4 << 20
"""Most bytes that are read of a file."""
MAX_COUNTERS: Final = 10_000
"""Most counters that are kept; others start again after a restart of the agent."""


MOST: Final = 1 << 63
"""A counter above this is not kept, since the file's JSON cannot hold it."""


class _Last(NamedTuple):
    """The last reading of a counter; `device` is the inode of the device's folder, or 0."""

    value: int | float
    start_time: int
    device: int


class _File(msgspec.Struct):
    """All counters of one collector."""

    boot: str
    until: int
    """Time (ns since the epoch) up to which the agent may have read the counters."""
    counters: dict[str, _Last]


class LastValues:
    """
    Finds the start time of counters that count since the boot, also if the agent restarts.

    The first run after a boot takes the boot as their start. A later run goes on where the last one ended: a counter
    that is lower now was reset in between. A counter starts at its first reading if it belongs to another device, if
    the last run did not read it, or if it appears later in a run.
    """

    def __init__(self, state: Path | None, collector: str, proc: Path) -> None:
        """Read the file of `collector` in the folder `state`; without a folder (None), nothing is kept."""
        self._boot = text(proc / "sys/kernel/random/boot_id")
        self._path = state / f"counters.{collector}.json" if state and self._boot else None
        self._lives: WeakKeyDictionary[Life, tuple[str, int]] = WeakKeyDictionary()
        self._read_at: int | None = None
        self._saved: int | None = None
        self._newest = 0
        self.start_time = counting_since(proc)
        """Time at which all counters were zero (ns since the epoch); None if unknown, and after the first reading."""
        self._last = self._load()

    def life(self, series: str, at: int, device: Path | None = None) -> Life:
        """Return the life of a counter that is read at `at` (ns); `device` is the folder of its device in sysfs."""
        number, life = inode(device), Life()
        if self._last is None:
            life = Life(self.start_time)
        elif (kept := self._last.counters.get(series)) and kept.device == number and 0 < kept.start_time <= at:
            life = Life(kept.start_time, kept.value, self._last.until)
        self._lives[life] = series, number
        return life

    def save(self, at: int) -> None:
        """Write the file if it is due: at first, each minute, and after a reset. Call it after each reading."""
        self.start_time, self._last, self._read_at = None, None, at
        if not self._path:
            return
        lives = [life for reference in self._lives.keyrefs() if (life := reference())]  # much quicker than keys()
        newest = max([life.start_time or 0 for life in lives], default=0)
        if self._saved is None or newest > self._newest or not 0 <= at - self._saved < EVERY:
            self._write(at + EVERY)
            self._saved, self._newest = at, newest

    def close(self) -> None:
        """Write the values of the last reading. Safe to call twice."""
        if self._read_at is not None:
            self._write(self._read_at)
            self._read_at = None

    def _load(self) -> _File | None:
        """Return the file of an earlier run since the boot, empty if it cannot be read; None if there was no run."""
        try:
            file = msgspec.json.decode(read_state(self._path, MAX_SIZE), type=_File) if self._path else None
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeError):
            return _File(self._boot, 0, {})
        return file if file and file.boot == self._boot else None

    def _write(self, until: int) -> None:
        lives = ((life, *key) for life, key in self._lives.items() if life.value < MOST)
        last = {
            series: _Last(life.value, life.start_time, number)
            for life, series, number in islice(lives, MAX_COUNTERS)
            if life.start_time is not None
        }
        if self._path:
            with suppress(OSError):  # a full disk: the next run finds older values
                write_state(self._path, msgspec.json.encode(_File(self._boot, until, last)))


def inode(device: Path | None) -> int:
    """
    Return the inode of a device's folder in sysfs, or 0.

    Until the next boot, no other folder gets the same inode: it is the id of a kernfs_node (include/linux/kernfs.h of
    Linux, since 5.5).
    """
    with suppress(OSError, ValueError):  # a name with a null byte
        return device.stat().st_ino if device else 0
    return 0
