"""Names of users by the node's passwd."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from chipwatch.host.procfs import read

MAX_BYTES: Final = 1 << 20


class UserNames:
    """Reads etc/passwd of the node again when it has changed; no directory service is queried."""

    def __init__(self, root: Path) -> None:
        """`root`: the node's /."""
        self._file = root / "etc/passwd"
        self._names: dict[str, str] = {}
        self._version: tuple[int, int] | None = None

    def name(self, uid: str) -> str:
        """Return the name of a user, or the number itself."""
        try:
            status = self._file.stat()
        except OSError:
            return uid
        if (version := (status.st_ino, status.st_mtime_ns)) != self._version:
            rows = (line.split(":") for line in os.fsdecode(read(self._file, MAX_BYTES)).splitlines())
            self._names = {row[2]: row[0].encode(errors="backslashreplace").decode() for row in rows if len(row) > 3}
            self._version = version
        return self._names.get(uid, uid)
