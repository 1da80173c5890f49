"""The spool's file: SQLite in WAL mode, so what was written outlives the process at once, without an fsync."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows: two agents on one spool are not told apart there
    fcntl = None  # type: ignore[assignment]

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS chunk (
    key INTEGER PRIMARY KEY, points INTEGER NOT NULL, done INTEGER NOT NULL, newest INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS aside (key INTEGER, why TEXT, body BLOB);
CREATE TABLE IF NOT EXISTS ledger (entry TEXT PRIMARY KEY, points INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memo (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""
NEWEST: Final = "newest"
"""Memo of when the newest point was measured that ever came (ns since the epoch, 8 bytes)."""
ASIDE: Final = 20
"""Unreadable chunks that are kept for a person to look at; older ones go."""


class Busy(Exception):
    """Another running agent holds this spool."""


class Store:
    """
    The chunks owed to one sink and the ledger, each change one transaction.

    A commit survives SIGKILL of the process at once; a power cut may lose what came after the last checkpoint.
    Every method may raise sqlite3.Error; the constructor also OSError and Busy. Used under the spool's lock.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file at `path`, readable by its owner only."""
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise Busy(f"{path} is in use by another agent") from None
        try:
            self._db = self._connect()
        except BaseException:
            os.close(self._lock)
            raise

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        db = sqlite3.connect(self.path, timeout=1, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA cache_size=-256")
            db.execute(f"PRAGMA journal_size_limit={4 << 20}")
            db.executescript(SCHEMA)
        except BaseException:
            db.close()
            raise
        return db

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def chunks(self) -> list[tuple[int, int, int, int, int]]:
        """Return (key, points, done, newest, bytes) of each chunk, oldest first."""
        found = self._db.execute("SELECT key, points, done, newest, length(body) FROM chunk ORDER BY key").fetchall()
        before = -1
        for key, points, done, newest, size in found:
            if not (all(type(n) is int for n in (points, done, newest, size)) and before < key and 0 <= done < points):
                raise sqlite3.DatabaseError(f"chunk {key} makes no sense")
            before = key
        return found

    def ledger(self) -> dict[str, int]:
        """Return the points of each entry of the ledger."""
        found = self._db.execute("SELECT entry, points FROM ledger").fetchall()
        if not all(type(entry) is str and type(points) is int for entry, points in found):
            raise sqlite3.DatabaseError("the ledger makes no sense")
        return dict(found)

    def add(self, *, key: int, newest: int, body: bytes, change: Mapping[str, int]) -> None:
        """Write a chunk of `change["collected"]` points, the newest of them at `newest` (ns)."""
        with self._transaction() as db:
            db.execute("INSERT INTO chunk VALUES (?, ?, 0, ?, ?)", (key, change["collected"], newest, body))
            self._book(db, change)
            self._note(db, NEWEST, newest.to_bytes(8, "big", signed=True))

    def note(self, name: str, body: bytes) -> None:
        """Keep `body` under `name`, in the place of what was there."""
        with self._transaction() as db:
            self._note(db, name, body)

    def noted(self, name: str) -> bytes:
        """Return what is kept under `name`, nothing where that is no bytes."""
        row = self._db.execute("SELECT body FROM memo WHERE name = ?", (name,)).fetchone()
        return row[0] if row is not None and type(row[0]) is bytes else b""

    def read(self, key: int) -> bytes:
        """Return the body of a chunk; raise LookupError if there is none."""
        row = self._db.execute("SELECT body FROM chunk WHERE key = ?", (key,)).fetchone()
        if row is None or type(row[0]) is not bytes:
            raise LookupError(f"no chunk {key}")
        return row[0]

    def settle(self, gone: Iterable[int], front: tuple[int, int] | None, change: Mapping[str, int]) -> None:
        """Delete the chunks `gone`, note how many points of `front` (key, done) have ended."""
        with self._transaction() as db:
            db.executemany("DELETE FROM chunk WHERE key = ?", [(key,) for key in gone])
            if front:
                db.execute("UPDATE chunk SET done = ? WHERE key = ?", (front[1], front[0]))
            self._book(db, change)

    def set_aside(self, key: int, why: str) -> None:
        """Copy a chunk that cannot be read to where a person can find it."""
        if row := self._db.execute("SELECT body FROM chunk WHERE key = ?", (key,)).fetchone():
            self.keep_aside(why, row[0], key)

    def keep_aside(self, why: str, body: bytes, key: int | None = None) -> None:
        """Keep a chunk where a person can find it."""
        with self._transaction() as db:
            db.execute("INSERT INTO aside (key, why, body) VALUES (?, ?, ?)", (key, why, body))
            db.execute("DELETE FROM aside WHERE rowid <= (SELECT max(rowid) FROM aside) - ?", (ASIDE,))

    @staticmethod
    def _book(db: sqlite3.Connection, change: Mapping[str, int]) -> None:
        db.executemany(
            "INSERT INTO ledger VALUES (?, ?) ON CONFLICT (entry) DO UPDATE SET points = points + excluded.points",
            list(change.items()),
        )

    @staticmethod
    def _note(db: sqlite3.Connection, name: str, body: bytes) -> None:
        db.execute("INSERT OR REPLACE INTO memo VALUES (?, ?)", (name, body))

    def close(self) -> None:
        """Close the file and let another agent have it; safe to call twice."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def set_file_aside(path: Path) -> Path:
    """Rename a file that SQLite cannot read, with its WAL; return its new name."""
    aside = path.with_suffix(".corrupt")
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    return aside
