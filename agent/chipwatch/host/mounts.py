"""The table of mounts, and which file systems may hang."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

REFRESH: Final = 60.0
"""Seconds after which the table is read again."""
LOCAL: Final = frozenset(
    {"apfs", "bcachefs", "btrfs", "devtmpfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs",
     "msdos", "ntfs3", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "udf", "vfat", "xfs", "zfs"}
)  # fmt: skip
"""File systems without a server or a user-space program that may hang."""


class Mount(NamedTuple):
    """A mounted file system: mount point, type and source."""

    point: str
    type: str
    source: str


def _unescaped(text: str) -> str:
    """Decode the octal escapes of the mount table."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text) if "\\" in text else text


class MountLine(NamedTuple):
    """A line of a mountinfo file. The options are texts with commas, as in the file."""

    mount: Mount
    root: str
    device: str
    """Major and minor number of the file system's device."""
    options: str
    super_options: str
    """Options of the file system itself, the same for all of its mounts."""


def parsed(table: bytes) -> Iterator[MountLine]:
    """Yield the lines of a mountinfo file; skip malformed lines."""
    for line in os.fsdecode(table).split("\n"):
        left, _, right = (part.split(" ") for part in line.partition(" - "))
        if len(left) > 4 and len(right) > 1:
            mount = Mount(_unescaped(left[4]), *right[:2])
            yield MountLine(mount, _unescaped(left[3]), left[2], "".join(left[5:6]), "".join(right[2:3]))


def mounts(table: bytes) -> list[Mount]:
    """Return the mounts in a mountinfo file, in the same order (proc_pid_mountinfo(5))."""
    return [line.mount for line in parsed(table)]


def mount_of(path: str, table: Iterable[Mount]) -> Mount | None:
    """Return the mount that has `path`: the one with the longest mount point, the last of equals. Follow no links."""
    within = [mount for mount in table if f"{path}/".startswith(f"{mount.point.rstrip('/')}/")]
    return max(reversed(within), key=lambda mount: len(mount.point), default=None)


class MountTable:
    """
    The mounts that this process sees, read again after REFRESH. It touches none of the file systems.

    The table of this process counts, also if the host's file systems are mounted elsewhere: a call on /host/data goes
    to what is mounted there in our own mount namespace.
    """

    def __init__(self, proc: Path) -> None:
        self._file = proc / "self/mountinfo"
        self._due = float("-inf")
        self._table: list[Mount] = []
        self._mounts: dict[str, Mount | None] = {}
        """The mount of each path that was asked for."""

    def mount_of(self, path: str) -> Mount | None:
        """Return the mount that has `path`, or None if the table cannot be read."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + REFRESH
            try:
                self._table = mounts(self._file.read_bytes())
            except OSError:
                self._table = []
            self._mounts = {}
        if path not in self._mounts:
            self._mounts[path] = mount_of(path, self._table)
        return self._mounts[path]


def may_hang(path: str, mount: Mount | None) -> bool:
    """Return whether a call on `path` may hang: if it is not a local mount point, it may be a link to any other."""
    return mount is None or mount.type not in LOCAL or mount.point != path
