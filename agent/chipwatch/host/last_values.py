"""The last values of single counters, kept over a restart of the agent."""

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
"""Nanoseconds between two writes where no counter starts again."""
MAX_SIZE: Final = 4 << 20
"""Bytes that are read of a file."""
MAX_COUNTERS: Final = 10_000
"""Counters that are kept; others get a newer start after a restart."""


MOST: Final = 1 << 63
"""A counter above this is not kept: JSON holds no such integers."""


class _Last(NamedTuple):
    """The last reading of a counter; the device is 0 if it has no number."""

    value: int | float
    start_time: int
    device: int


class _File(msgspec.Struct):
    """All counters of one collector."""

    boot: str
    until: int
    """Time (ns since the epoch) until which the counters may have been read."""
    counters: dict[str, _Last]


class LastValues:
    """
    Finds the start time of a collector's single counters, which count since the boot, over restarts of the agent.

    The first run of a boot takes the boot as their start. A later run goes on where the last one ended; a counter
    that is lower now started again since then. A counter starts at
    its first reading if it is of another device, if the last run did not read it, or if it is new later in a run.
    """

    def __init__(self, state: Path | None, collector: str, proc: Path) -> None:
        """Read the file of `collector` in the folder `state`; None: nothing is kept."""
        self._boot = text(proc / "sys/kernel/random/boot_id")
        self._path = state / f"counters.{collector}.json" if state and self._boot else None
        self._lives: WeakKeyDictionary[Life, tuple[str, int]] = WeakKeyDictionary()
        self._read_at: int | None = None
        self._saved: int | None = None
        self._newest = 0
        self.start_time = counting_since(proc)
        """When all counters were zero (ns since the epoch); None after the first reading, or if it is not known."""
        self._last = self._load()

    def life(self, series: str, at: int, device: Path | None = None) -> Life:
        """Return the life of a counter that is read at `at`; `device` is its folder in sysfs."""
        number, life = inode(device), Life()
        if self._last is None:
            life = Life(self.start_time)
        elif (kept := self._last.counters.get(series)) and kept.device == number and 0 < kept.start_time <= at:
            life = Life(kept.start_time, kept.value, self._last.until)
        self._lives[life] = series, number
        return life

    def save(self, at: int) -> None:
        """Write the values first, each minute and at each newer start; call it after the reading at `at`."""
        self.start_time, self._last, self._read_at = None, None, at
        if not self._path:
            return
        lives = [life for reference in self._lives.keyrefs() if (life := reference())]  # much quicker than their keys
        newest = max([life.start_time or 0 for life in lives], default=0)
        if self._saved is None or newest > self._newest or not 0 <= at - self._saved < EVERY:
            self._write(at + EVERY)
            self._saved, self._newest = at, newest

    def close(self) -> None:
        """Write the values of the last reading; safe to call twice."""
        if self._read_at is not None:
            self._write(self._read_at)
            self._read_at = None

    def _load(self) -> _File | None:
        """Return what an earlier run of this boot kept, {} if that cannot be read; None if there was none."""
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
            with suppress(OSError):  # a full disk: the next start knows older values
                write_state(self._path, msgspec.json.encode(_File(self._boot, until, last)))


def inode(device: Path | None) -> int:
    """
    Return the inode of a device's folder in sysfs, 0 if there is none: no later folder has it in this boot.

    It is the id of a kernfs_node: include/linux/kernfs.h of Linux, since 5.5.
    """
    try:
        return device.stat().st_ino if device else 0
    except OSError:
        return 0
