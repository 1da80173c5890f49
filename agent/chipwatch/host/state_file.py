"""Small files of the state folder: read with a bound, replaced as a whole, no symbolic link followed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from chipwatch.base.system import NO_WAIT, SAFE


def read_state(path: Path, most: int) -> bytes:
    """Return at most `most` bytes of a file; raise OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | SAFE | NO_WAIT), "rb") as file:
        return file.read(most) or b""


def write_state(path: Path, data: bytes) -> None:
    """Replace a file; raise OSError, also where the folder is another user's."""
    if path.parent.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EACCES, "the folder is another user's")
    new = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | SAFE, 0o600), "wb") as file:
        file.write(data)
    new.replace(path)
