"""The spool's file as the spool sees it: nothing here raises; a failure is logged and counted, and retried later."""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chipwatch.logs.throttled import ThrottledLogger
from chipwatch.spool.lock_file import Busy
from chipwatch.spool.memory import NoFile
from chipwatch.spool.sqlite import Store, set_file_aside

if TYPE_CHECKING:
    from chipwatch.spool.memory import Found

IN_MEMORY: Final = "points wait in memory, and are lost if this process ends"
HARMLESS: Final = frozenset({"disk", "busy", "gone"})
"""Kinds of faults that have lost no point yet."""


def is_corruption(problem: Exception) -> bool:
    """Return whether the file itself is wrong: it is corrupt, or a table or column has lost its name."""
    no_such_name = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return no_such_name or type(problem) in {sqlite3.DatabaseError, UnicodeDecodeError}


class SpoolFile(NoFile):
    """
    A store that may fail, fill up, become corrupt or be locked by another agent for a while.

    Changes that it did not take are merged into one and written before anything else. Used under the spool's lock.
    """

    def __init__(self, path: Path, logger: ThrottledLogger, on_loss: Callable[[], None]) -> None:
        """Take the file's path, and what to call after its content was lost."""
        super().__init__()
        self._path: Path | None = path  # None: given up
        self._logger, self._on_loss = logger, on_loss
        self._store: Store | None = None
        self._pending: tuple[list[int], tuple[int, int] | None, Counter[str]] | None = None

    @property
    def wanted(self) -> bool:
        """Whether there should be a file."""
        return self._path is not None

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return self._store is not None

    def open(self) -> Found | None:
        """Open the file; return its content, or None if that fails."""
        if self._path is None:
            return None
        try:
            try:
                return self._open(self._path)
            except (sqlite3.Error, UnicodeDecodeError) as problem:
                if not is_corruption(problem):
                    raise
                self._set_aside(self._path, problem)
                return self._open(self._path)
        except Busy as problem:
            self.fault("busy", f"{problem}; {IN_MEMORY}")
        except (OSError, sqlite3.Error) as problem:
            self.fault("disk", f"{self._path}: {problem}; {IN_MEMORY}")
        return None

    def _open(self, path: Path) -> Found:
        store = Store(path)
        try:
            found = store.chunks(), store.ledger(), store.found
        except BaseException:
            store.close()
            raise
        self._store = store
        return found

    def do(self, action: Callable[[Store], object]) -> bool:
        """Call `action`; return whether it succeeded; a corrupt file is set aside."""
        if self._store is None:
            return False
        try:
            action(self._store)
        except (sqlite3.Error, UnicodeDecodeError) as problem:
            if is_corruption(problem):
                self._replace(problem)
            else:
                self.fault("disk", f"{self._path}: {problem}; {IN_MEMORY}")
            return False
        return True

    def get(self, read: Callable[[Store], bytes]) -> bytes | None:
        """Return what `read` returns, or None if the file fails."""
        found: list[bytes] = []
        self.do(lambda store: found.append(read(store)))
        return found[0] if found else None

    def _replace(self, problem: Exception) -> None:
        """Close a corrupt file and set it aside; `_save` of the spool makes a new one."""
        assert self._path is not None
        self._give_up()
        try:
            self._set_aside(self._path, problem)
        except OSError as error:
            self.fault("disk", f"{self._path}: {problem}, and cannot be renamed: {error}; {IN_MEMORY}")
            self._path = None
        self._on_loss()

    def _give_up(self) -> None:
        """Close a file whose content is lost."""
        assert self._store is not None
        self._store.close(forget=True)
        self._store = self._pending = None

    def restore(self) -> None:
        """Write the file again if it was deleted or replaced: the open file still has all of its content."""
        if self._store is None or self._store.is_in_place():
            return
        gone = f"{self._path} was deleted or replaced while in use"
        try:
            self._store = self._store.rescue()
            self._store.ledger()
        except (Busy, OSError, sqlite3.Error, UnicodeDecodeError) as problem:
            lost = f"cannot be written again: {problem}; points that only it had are lost"
            self.fault("lost", f"{gone}, and {lost}; {IN_MEMORY}")
            self._give_up()
            self._on_loss()
        else:
            self.fault("gone", f"{gone}; it is written again with all of its content")

    def _set_aside(self, path: Path, problem: Exception) -> None:
        aside = set_file_aside(path)
        self.fault("corrupt", f"{path}: {problem}; it is renamed to {aside}, and a new file is made")

    def acknowledge(
        self, change: Mapping[str, int], *, gone: int | None = None, front: tuple[int, int] | None = None
    ) -> None:
        """Add to the ledger, delete the chunk with the key `gone`, store how many points of a chunk have ended."""
        keys, before, entries = self._pending or ([], None, Counter())
        entries.update(change)
        if gone is not None:
            keys.append(gone)
        self._pending = (keys, front or before, entries)
        self.flush()

    def flush(self) -> bool:
        """Write the changes that the file did not take; return whether none is left and the file is open."""
        if self._pending is not None:
            gone, front, entries = self._pending
            if self.do(lambda store: store.acknowledge(gone, front, entries)):
                self._pending = None
        return self._pending is None and self.is_open

    def resolved(self) -> None:
        """Log that a failure is over."""
        self._logger.resolved("disk", "points are written to disk again")
        self._logger.resolved("busy", "no other agent uses the spool any more")

    def fault(self, kind: str, text: str) -> None:
        """Count a fault of a kind, and log it once."""
        self.faults[kind] += 1
        self._logger.log(logging.WARNING if kind in HARMLESS else logging.ERROR, kind, text)

    def close(self) -> None:
        """Close the file for good; safe to call twice."""
        if self._store is not None:
            self._store.close()
        self._store = self._path = None
