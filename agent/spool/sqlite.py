"""The spool's file: SQLite in WAL mode, so what was written outlives the process at once, without an fsync."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

try:
    import fcntl
except ImportError:  # Windows: two agents on one spool are not told apart there
    fcntl = None  # type: ignore[assignment]

VERSION: Final = 2
"""Of the tables; a file of a newer version is used as far as it has the columns that are named here."""
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS chunk (
    key INTEGER PRIMARY KEY, points INTEGER NOT NULL, done INTEGER NOT NULL, newest INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS aside (key INTEGER, why TEXT, body BLOB);
CREATE TABLE IF NOT EXISTS ledger (entry TEXT PRIMARY KEY, points INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS memo (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""
ADDED: Final = (("chunk", "rest"), ("chunk", "crc"), ("chunk", "destination"), ("memo", "crc"))
"""Columns that files of version 1 lack."""
NEWEST: Final = "newest"
"""Memo of when the newest point was measured that ever came (ns since the epoch, 8 bytes)."""
ASIDE: Final = 20
"""Unreadable chunks that are kept for a person to look at; older ones go."""
FILES: Final = ("", "-wal", "-shm")
"""Endings of the files of a database."""
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
NUMBERS: Final = Struct("<qqq")


class Busy(Exception):
    """Another running agent holds this spool."""


class Row(NamedTuple):
    """A chunk without its body: `done` of its points have ended, the newest is of `newest` (ns), `size` in bytes."""

    key: int
    points: int
    done: int
    newest: int
    size: int
    destination: bytes


class Witness(NamedTuple):
    """What the file is known to have held at the end, from beside it: points, and samples of the window then open."""

    collected: int = 0
    owed: int = 0
    samples: int = 0


def sealed(text: bytes) -> bytes:
    """Return `text` with its checksum behind it."""
    return b"%b%08x" % (text, zlib.crc32(text))


def unsealed(text: object) -> bytes | None:
    """Return what was sealed, None where it was altered."""
    return text[:-8] if isinstance(text, bytes) and sealed(text[:-8]) == text else None


def checksum(key: int, points: int, newest: int, body: bytes) -> int:
    """Return the checksum of a chunk."""
    return zlib.crc32(b"%d %d %d" % (key, points, newest), zlib.crc32(body))


def refuse_links(path: Path) -> None:
    """Raise OSError where one of the spool's files is a symbolic link: nothing is written through it."""
    for file in (*(Path(f"{path}{suffix}") for suffix in FILES), path.with_suffix(".lock")):
        if file.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed: remove it", str(file))


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
        refuse_links(path)
        self._lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.before = self._read_witness()
            """What the last one to have the file open knew of it."""
            self._now = Witness()
            self._db = self._connect()
        except BlockingIOError:
            os.close(self._lock)
            raise Busy(f"{path} is in use by another agent") from None
        except BaseException:
            os.close(self._lock)
            raise
        self._files = self._find()

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600))
        db = sqlite3.connect(self.path, timeout=1, isolation_level=None, check_same_thread=False)
        try:
            db.text_factory = bytes.decode  # a text that rotted is a UnicodeDecodeError, and no OperationalError
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA cache_size=-256")
            db.execute(f"PRAGMA journal_size_limit={4 << 20}")
            db.executescript(SCHEMA)
            self._upgrade(db)
        except BaseException:
            db.close()
            raise
        return db

    @staticmethod
    def _upgrade(db: sqlite3.Connection) -> None:
        """Give the tables of an earlier version what they lack."""
        columns = {(table, row[1]) for table in ("chunk", "memo") for row in db.execute(f"PRAGMA table_info({table})")}
        missing = [pair for pair in ADDED if pair not in columns]
        if not missing:
            return
        if len(missing) < len(ADDED) or db.execute("PRAGMA user_version").fetchone()[0] >= VERSION:
            raise sqlite3.DatabaseError("columns are missing")  # their names rotted: what is there proves nothing
        db.create_function("checksum", 4, checksum)
        db.create_function("crc32", 1, zlib.crc32)
        db.execute("BEGIN IMMEDIATE")
        for table, column in missing:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        db.execute(
            "UPDATE chunk SET rest = points - done, crc = checksum(key, points, newest, body), destination = ?"
            " WHERE typeof(points) || typeof(newest) || typeof(body) = 'integerintegerblob'",
            (sealed(b"{}"),),
        )
        db.execute("UPDATE memo SET crc = crc32(body) WHERE typeof(body) = 'blob'")
        db.execute(f"PRAGMA user_version={VERSION}")
        db.execute("COMMIT")

    @contextlib.contextmanager
    def _transaction(self, change: Mapping[str, int] | None = None) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            if change:
                self._db.executemany(
                    "INSERT INTO ledger (entry, points) VALUES (?, ?)"
                    " ON CONFLICT (entry) DO UPDATE SET points = points + excluded.points",
                    list(change.items()),
                )
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        if change:
            collected, owed, samples = self._now
            fresh = change.get("collected", 0)
            self._bear_witness(Witness(collected + fresh, owed + 2 * fresh - sum(change.values()), samples))

    def chunks(self) -> list[Row]:
        """Return what is owed, oldest first; a row that makes no sense is set aside."""
        found, bad, before = [], [], -1
        rows = self._db.execute(
            "SELECT key, points, done, rest, newest, length(body), destination FROM chunk ORDER BY key"
        )
        for key, points, done, rest, newest, size, destination in rows.fetchall():
            if type(key) is not int or key <= before:
                raise sqlite3.DatabaseError(f"chunk {key} makes no sense")
            before, label = key, unsealed(destination)
            whole = all(type(n) is int for n in (points, done, rest, newest, size))
            if whole and label is not None and 0 <= done < points == done + rest:
                found.append(Row(key, points, done, newest, size, label))
            else:
                bad.append(key)
        for key in bad:
            self.set_aside(key, "its numbers make no sense")
        if bad:
            self.acknowledge(bad, None, {})
        return found

    def ledger(self) -> dict[str, int]:
        """Return the points of each entry of the ledger."""
        found = self._db.execute("SELECT entry, points FROM ledger").fetchall()
        if not all(type(entry) is str and type(points) is int for entry, points in found):
            raise sqlite3.DatabaseError("the ledger makes no sense")
        entries = dict(found)
        collected = entries.get("collected", 0)
        self._now = Witness(collected, 2 * collected - sum(entries.values()))
        return entries

    def add(self, *, key: int, newest: int, body: bytes, change: Mapping[str, int], destination: bytes = b"{}") -> None:
        """Write a chunk of `change["collected"]` points, the newest of them at `newest` (ns)."""
        points = change["collected"]
        with self._transaction(change) as db:
            db.execute(
                "INSERT INTO chunk (key, points, done, rest, newest, body, crc, destination)"
                " VALUES (?, ?, 0, ?, ?, ?, ?, ?)",
                (key, points, points, newest, body, checksum(key, points, newest, body), sealed(destination)),
            )
            self._note(db, NEWEST, newest.to_bytes(8, "big", signed=True))

    def note(self, name: str, body: bytes) -> None:
        """Keep `body` under `name`, in the place of what was there."""
        with self._transaction() as db:
            self._note(db, name, body)

    def noted(self, name: str) -> bytes:
        """Return what is kept under `name`, nothing where that is no bytes or was altered."""
        row = self._db.execute("SELECT body, crc FROM memo WHERE name = ?", (name,)).fetchone()
        return row[0] if row is not None and type(row[0]) is bytes and zlib.crc32(row[0]) == row[1] else b""

    def read(self, key: int, points: int, newest: int) -> bytes:
        """Return the body of a chunk; raise LookupError if there is none, or if it was altered."""
        row = self._db.execute("SELECT body, crc FROM chunk WHERE key = ?", (key,)).fetchone()
        if row is None or type(row[0]) is not bytes:
            raise LookupError(f"no chunk {key}")
        if checksum(key, points, newest, row[0]) != row[1]:
            raise LookupError("its checksum is wrong")
        return row[0]

    def acknowledge(self, gone: Iterable[int], front: tuple[int, int] | None, change: Mapping[str, int]) -> None:
        """Delete the chunks `gone`, note how many points of `front` (key, done) have ended."""
        with self._transaction(change) as db:
            db.executemany("DELETE FROM chunk WHERE key = ?", [(key,) for key in gone])
            if front:
                key, done = front
                db.execute("UPDATE chunk SET done = ?, rest = points - ? WHERE key = ?", (done, done, key))

    def readdress(self, old: bytes, new: bytes) -> None:
        """Give the chunks for the destination `old` to `new`."""
        with self._transaction() as db:
            db.execute("UPDATE chunk SET destination = ? WHERE destination = ?", (sealed(new), sealed(old)))

    def set_aside(self, key: int, why: str) -> None:
        """Copy a chunk that cannot be read to where a person can find it."""
        self._keep_aside("SELECT key, ?, body FROM chunk WHERE key = ?", (why, key))

    def keep_aside(self, why: str, body: bytes) -> None:
        """Keep a chunk that never was in the file where a person can find it."""
        self._keep_aside("VALUES (NULL, ?, ?)", (why, body))

    def _keep_aside(self, row: str, values: tuple[object, ...]) -> None:
        with self._transaction() as db:
            db.execute(f"INSERT INTO aside (key, why, body) {row}", values)
            db.execute("DELETE FROM aside WHERE rowid <= (SELECT max(rowid) FROM aside) - ?", (ASIDE,))

    @staticmethod
    def _note(db: sqlite3.Connection, name: str, body: bytes) -> None:
        db.execute("INSERT OR REPLACE INTO memo (name, body, crc) VALUES (?, ?, ?)", (name, body, zlib.crc32(body)))

    # -- beside the file --------------------------------------------------------------------------------------------

    def _read_witness(self) -> Witness:
        text = unsealed(os.read(self._lock, NUMBERS.size + 8))
        return Witness(*NUMBERS.unpack(text)) if text else Witness()

    def _bear_witness(self, now: Witness) -> None:
        """Note in the lock's file what the database holds now; as with the database, nothing is flushed."""
        self._now = now
        with contextlib.suppress(OSError):
            os.lseek(self._lock, 0, os.SEEK_SET)
            os.write(self._lock, sealed(NUMBERS.pack(*now)))

    def note_samples(self, samples: int) -> None:
        """Note how many samples the open window holds."""
        self._bear_witness(self._now._replace(samples=samples))

    def _find(self) -> list[tuple[int, int] | None]:
        """Return which files there are at the path."""
        found: list[tuple[int, int] | None] = []
        for file in (self.path, f"{self.path}-wal", self.path.with_suffix(".lock")):
            try:
                stat = os.lstat(file)
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_dev, stat.st_ino))
        return found

    def is_in_place(self) -> bool:
        """Tell whether the files at the path are still those that are open here."""
        return self._find() == self._files

    def rescue(self) -> Store:
        """Return a new store at the path with all that this one holds, whose files are gone; this one is closed."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = self.path.with_suffix(".copy")
        with contextlib.suppress(FileNotFoundError):
            copy.unlink()
        os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK, 0o600))
        self._db.execute("VACUUM INTO ?", (str(copy),))
        self.close(forget=True)
        set_file_aside(self.path)
        copy.replace(self.path)
        return Store(self.path)

    def close(self, *, forget: bool = False) -> None:
        """Close the file and let another agent have it; safe to call twice. `forget`: what it held is counted."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        if self._lock >= 0:
            if forget:
                self._bear_witness(Witness())
            os.close(self._lock)
            self._lock = -1


def set_file_aside(path: Path) -> Path:
    """Rename a file that SQLite cannot read, with its WAL; return its new name."""
    aside = path.with_suffix(".corrupt")
    for suffix in FILES:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    return aside
