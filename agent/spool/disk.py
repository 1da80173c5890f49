"""The spool's file as the spool sees it: nothing here raises; what fails is said, counted, and tried again."""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from agent.logs.throttled import ThrottledLogger
from agent.spool.sqlite import Busy, Row, Store, Witness, set_file_aside

IN_MEMORY: Final = "points wait in memory, and are lost if this process ends"
Found = tuple[list[Row], dict[str, int], Witness]
"""The chunks of a file, the entries of its ledger, and what the last run knew of both."""
HARMLESS: Final = frozenset({"disk", "busy", "gone"})
"""Kinds of trouble that cost no point yet."""


def is_rot(problem: Exception) -> bool:
    """Tell whether it is the file that is wrong (also a table or column without its name), and no other trouble."""
    no_such_name = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return no_such_name or type(problem) in {sqlite3.DatabaseError, UnicodeDecodeError}


class SpoolFile:
    """
    A store that may fail, fill up, rot or belong to another agent for a while.

    The ends of points that it has not taken yet are kept as one debt, and paid first of all. Used under the spool's
    lock.
    """

    def __init__(self, path: Path | None, logger: ThrottledLogger, on_rot: Callable[[], None]) -> None:
        """Take the file's path (None: there is none), and what to call when what it held is lost."""
        self._path, self._logger, self._on_rot = path, logger, on_rot
        self._store: Store | None = None
        self._debt: tuple[list[int], tuple[int, int] | None, Counter[str]] | None = None
        self.faults: Counter[str] = Counter()

    @property
    def wanted(self) -> bool:
        """Whether there is to be a file."""
        return self._path is not None

    @property
    def is_open(self) -> bool:
        """Whether the file serves."""
        return self._store is not None

    def open(self) -> Found | None:
        """Open the file; return what it holds, or None where that fails."""
        if self._path is None:
            return None
        try:
            try:
                self._store, found = self._look(self._path)
            except (sqlite3.Error, UnicodeDecodeError) as problem:
                if not is_rot(problem):
                    raise
                self._set_aside(self._path, problem)
                self._store, found = self._look(self._path)
        except Busy as problem:
            self.fault("busy", f"{problem}; {IN_MEMORY}")
            return None
        except (OSError, sqlite3.Error) as problem:
            self.fault("disk", f"{self._path}: {problem}; {IN_MEMORY}")
            return None
        return found

    @staticmethod
    def _look(path: Path) -> tuple[Store, Found]:
        """Open the file and read what it owes; a file that cannot be read to its end is not kept open."""
        store = Store(path)
        try:
            return store, (store.chunks(), store.ledger(), store.before)
        except BaseException:
            store.close()
            raise

    def do(self, action: Callable[[Store], object]) -> bool:
        """Do `action` and tell whether it went well; a file that SQLite calls corrupt is set aside."""
        if self._store is None:
            return False
        try:
            action(self._store)
        except (sqlite3.Error, UnicodeDecodeError) as problem:
            if is_rot(problem):
                self._rot(problem)
            else:
                self.fault("disk", f"{self._path}: {problem}; {IN_MEMORY}")
            return False
        return True

    def _rot(self, problem: Exception) -> None:
        assert self._path is not None
        self._give_up()
        try:
            self._set_aside(self._path, problem)
        except OSError as stuck:
            self.fault("disk", f"{self._path}: {problem}, and cannot be set aside: {stuck}; {IN_MEMORY}")
            self._path = None
        self._on_rot()

    def _give_up(self) -> None:
        """Close the file, of which nothing is owed any more."""
        assert self._store is not None
        self._store.close(forget=True)
        self._store = self._debt = None

    def look_after(self) -> None:
        """Make the file anew where it was deleted or replaced: what is open still holds all of it."""
        if self._store is None or self._store.is_in_place():
            return
        gone = f"{self._path} was deleted or replaced while in use"
        try:
            self._store = self._store.rescue()
            self._store.ledger()
        except (Busy, OSError, sqlite3.Error, UnicodeDecodeError) as problem:
            self.fault("lost", f"{gone}, and cannot be made anew: {problem}; what only it held is lost; {IN_MEMORY}")
            self._give_up()
            self._on_rot()
        else:
            self.fault("gone", f"{gone}; it is made anew with all that it held")

    def _set_aside(self, path: Path, problem: Exception) -> None:
        aside = set_file_aside(path)
        self.fault("corrupt", f"{path}: {problem}; it is set aside as {aside}, a new one begins")

    def owe(self, change: Mapping[str, int], *, gone: int | None = None, front: tuple[int, int] | None = None) -> None:
        """Add ends that the file does not know yet: entries of its ledger, a chunk that is gone, or one that shrank."""
        keys, before, owed = self._debt or ([], None, Counter())
        owed.update(change)
        if gone is not None:
            keys.append(gone)
        self._debt = (keys, front or before, owed)

    def pay(self) -> bool:
        """Write what is owed; tell whether nothing is any more."""
        if self._debt is not None:
            gone, front, change = self._debt
            if self.do(lambda store: store.acknowledge(gone, front, change)):
                self._debt = None
        return self._debt is None and self.is_open

    def well(self) -> None:
        """Say that trouble is over."""
        self._logger.resolved("disk", "the disk takes points again")
        self._logger.resolved("busy", "the spool is ours now")

    def fault(self, kind: str, text: str) -> None:
        """Count trouble of a kind, and say it once."""
        self.faults[kind] += 1
        self._logger.log(logging.WARNING if kind in HARMLESS else logging.ERROR, kind, text)

    def close(self) -> None:
        """Close the file for good; safe to call twice."""
        if self._store is not None:
            self._store.close()
        self._store = self._path = None
