"""Reads and replaces small files in the state folder, and follows no symbolic link."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from chipwatch.base.system import NO_WAIT, SAFE


def read_state(path: Path, most: int) -> bytes:
    """Return the first bytes of a file, at most `most`; raise OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | SAFE | NO_WAIT), "rb") as file:
        return file.read(most) or b""


def write_state(path: Path, data: bytes, *, durable: bool = False) -> None:
    """
    Replace a file as a whole; raise OSError, also if the folder belongs to another user.

    With `durable`, it waits for the disk, so that no loss of power empties the file.
    """
    if path.parent.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EACCES, "the folder is another user's")
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)  # what is there may be a pipe, whose writer would wait for ever
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DSYNC * durable, 0o600), "wb") as file:
        file.write(data)
    new.replace(path)
