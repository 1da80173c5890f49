"""What is mounted where, and whether it can be asked without fear."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

AGE: Final = 60.0
"""Seconds after which the table is read anew."""

LOCAL: Final = frozenset(
    {"apfs", "bcachefs", "btrfs", "devtmpfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs",
     "msdos", "ntfs3", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "udf", "vfat", "xfs", "zfs"}
)  # fmt: skip
"""File systems that the kernel answers for itself; behind any other stands a server or a program that may hang."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A line of the table."""

    point: str
    type: str
    source: str


def mounts(table: bytes) -> list[Mount]:
    """Return the mounts that a mountinfo file tells of, in its order (proc_pid_mountinfo(5)), without other lines."""
    found = []
    for line in os.fsdecode(table).split("\n"):
        left, _, right = (part.split(" ") for part in line.partition(" - "))
        if len(left) > 4 and len(right) > 1:
            found.append(Mount(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), left[4]), *right[:2]))
    return found


def mount_of(path: str, table: Iterable[Mount]) -> Mount | None:
    """Return the mount that `path` is on if no link leads elsewhere: the longest point, the last of equals."""
    best = None
    for mount in table:
        within = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if within and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


class MountTable:
    """
    The mounts that this process sees, read at most once a minute; never touches a file system.

    It is `self/mountinfo` also where the host's trees are mounted elsewhere: a call on /host/data goes to what is
    mounted there for us, under that name, and not to what the host calls /data.
    """

    def __init__(self, proc: Path) -> None:
        """Take where /proc is."""
        self._file = proc / "self/mountinfo"
        self._due = float("-inf")
        self._table: list[Mount] = []

    def find(self, path: str) -> Mount | None:
        """Return the mount that `path` is on, or None where the table cannot be read."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + AGE
            try:
                self._table = mounts(self._file.read_bytes())
            except OSError:
                self._table = []
        return mount_of(path, self._table)


def may_hang(path: str, mount: Mount | None) -> bool:
    """Tell whether asking about `path` may never return; one that is no mount point may be a link to anywhere."""
    return mount is None or mount.type not in LOCAL or mount.point != path
