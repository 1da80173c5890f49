"""
The spool's SQLite database, in WAL mode: what is committed survives a kill of the process, without an fsync.

The file beside it locks the spool, and has counts to compare the database with.
"""

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

from chipwatch.contract.system import SAFE, lock
from chipwatch.spool.chunk import NEWEST, Chunk

SCHEMA: Final = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
ASIDE: Final = 20
"""Unreadable chunks that are kept for a person to look at; older ones are deleted."""
FILES: Final = ("", "-wal", "-shm")
"""Endings of the files of a database."""
NUMBERS: Final = Struct("<qqq")


class Busy(OSError):
    """Another running agent holds this spool."""


class LockCounts(NamedTuple):
    """The points that the database collected and has not yet sent, and the samples of the open window."""

    collected: int = 0
    unsent: int = 0
    samples: int = 0


def with_checksum(text: bytes) -> bytes:
    """Return `text` with its CRC-32 appended."""
    return b"%b%08x" % (text, zlib.crc32(text))


def verified(text: object) -> bytes | None:
    """Return `text` without the checksum that was appended, or None if the checksum is wrong."""
    return text[:-8] if isinstance(text, bytes) and with_checksum(text[:-8]) == text else None


def checksum(key: int, points: int, newest: int, body: bytes) -> int:
    """Return the checksum of a chunk."""
    return zlib.crc32(b"%d %d %d" % (key, points, newest), zlib.crc32(body))


def refuse_links(path: Path) -> None:
    """Raise OSError if one of the spool's files is a symbolic link: it may lead to a file that is not ours."""
    for file in (*(Path(f"{path}{suffix}") for suffix in FILES), path.with_suffix(".lock")):
        if file.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed: remove it", str(file))


class LockFile:
    """Locks a spool until it is closed. Its counts are not flushed to the disk; nor is the database."""

    def __init__(self, path: Path) -> None:
        """Lock the spool whose database is at `path`; raise Busy or OSError."""
        self._fd = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | SAFE, 0o600)
        try:
            lock(self._fd)
            counts = verified(os.read(self._fd, NUMBERS.size + 8))
        except BlockingIOError:
            os.close(self._fd)
            raise Busy(f"{path} is in use by another agent: give each its own --spool") from None
        except BaseException:
            os.close(self._fd)
            raise
        self.left = LockCounts(*NUMBERS.unpack(counts)) if counts else LockCounts()
        """The counts that the last run left."""
        self.counts = LockCounts()
        self._written = self.left if counts else None

    def add(self, change: Mapping[str, int]) -> None:
        """Add what a transaction added to the ledger."""
        collected, unsent, samples = self.counts
        fresh = change.get("collected", 0)
        self.write(LockCounts(collected + fresh, unsent + 2 * fresh - sum(change.values()), samples))

    def write(self, counts: LockCounts) -> None:
        """Replace the counts, unless the file has them."""
        self.counts = counts
        if counts == self._written:
            return
        self._written = None
        with contextlib.suppress(OSError):
            os.lseek(self._fd, 0, os.SEEK_SET)
            os.write(self._fd, with_checksum(NUMBERS.pack(*counts)))
            self._written = counts

    def close(self) -> None:
        """Unlock; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Store:
    """
    The chunks and the ledger of one sink; each change is one transaction.

    A commit survives a SIGKILL of the process; a power cut may lose what came after the last checkpoint.
    Every method may raise one of `failures`; the constructor also OSError and Busy. Used under the spool's lock.
    """

    failures: Final = (sqlite3.Error, UnicodeDecodeError)

    def __init__(self, path: Path) -> None:
        """Open or make the file at `path`, readable by its owner only."""
        self.path = path
        self._names = str(path), f"{path}-wal", str(path.with_suffix(".lock"))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_links(path)
        self._lock = LockFile(path)
        self.left = self._lock.left
        """The counts that the last run left."""
        try:
            self._db = self._connect()
        except BaseException:
            self._lock.close()
            raise
        self._files = self._identities()

    @classmethod
    def load(cls, path: Path) -> tuple[Store, list[Chunk], dict[str, int]]:
        """Return the store at `path`, its chunks, and the entries of its ledger."""
        store = cls(path)
        try:
            return store, store.chunks(), store.ledger()
        except BaseException:
            store.close()
            raise

    @staticmethod
    def is_corruption(problem: Exception) -> bool:
        """Return whether the file itself is wrong: it is corrupt, or a table or column has lost its name."""
        no_such_name = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
        return no_such_name or type(problem) in {sqlite3.DatabaseError, UnicodeDecodeError}

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | SAFE, 0o600))
        db = sqlite3.connect(self.path, timeout=1, isolation_level=None, check_same_thread=False)
        try:
            db.text_factory = bytes.decode  # so that a corrupt text is a UnicodeDecodeError, not an OperationalError
            db.executescript(SCHEMA)
        except BaseException:
            db.close()
            raise
        return db

    @contextlib.contextmanager
    def _transaction(self, change: Mapping[str, int] | None = None) -> Iterator[sqlite3.Connection]:
        """Commit at the end of the block, after adding `change` to the ledger; roll back after an exception."""
        with self._db as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            if change:
                db.executemany(
                    "INSERT INTO ledger (entry, points) VALUES (?, ?)"
                    " ON CONFLICT (entry) DO UPDATE SET points = points + excluded.points",
                    list(change.items()),
                )
        if change:
            self._lock.add(change)

    def chunks(self) -> list[Chunk]:
        """Return the chunks, oldest first, without their points; a row with impossible counts is set aside."""
        chunks, before = [], -1
        rows = self._db.execute(
            "SELECT key, points, done, rest, newest, length(body), destination FROM chunk ORDER BY key"
        )
        for key, points, done, rest, newest, size, destination in rows.fetchall():
            if type(key) is not int or key <= before:
                raise sqlite3.DatabaseError(f"the key of a chunk is corrupt: {key!r:.80} after {before}")
            before, label = key, verified(destination)
            are_numbers = all(type(n) is int for n in (points, done, rest, newest, size))
            if are_numbers and label is not None and 0 <= done < points == done + rest:
                chunks.append(Chunk(key, points, size, newest, label, done, stored=True))
            else:
                self.set_aside("its counts are impossible", key=key)
                self.acknowledge([key], None, {})
        return chunks

    def ledger(self) -> dict[str, int]:
        """Return the points of each entry of the ledger."""
        rows = self._db.execute("SELECT entry, points FROM ledger").fetchall()
        if wrong := [row for row in rows if [*map(type, row)] != [str, int]]:
            raise sqlite3.DatabaseError(f"an entry of the ledger is corrupt: {wrong[0]!r:.80}")
        entries = dict(rows)
        collected = entries.get("collected", 0)
        self._lock.counts = LockCounts(collected, 2 * collected - sum(entries.values()))
        return entries

    def add(self, chunk: Chunk, body: bytes) -> None:
        """Write a chunk of which no point has ended, and count its points as collected."""
        key, points, newest = chunk.key, chunk.count, chunk.newest
        with self._transaction({"collected": points}) as db:
            db.execute(
                "INSERT INTO chunk (key, points, done, rest, newest, body, crc, destination)"
                " VALUES (?, ?, 0, ?, ?, ?, ?, ?)",
                (key, points, points, newest, body, checksum(key, points, newest, body),
                 with_checksum(chunk.destination)),
            )  # fmt: skip
            self._note(db, NEWEST, newest.to_bytes(8, "big", signed=True))

    def noted(self, name: str) -> bytes:
        """Return what is kept under `name`, or b"" if there is nothing or its checksum is wrong."""
        row = self._db.execute("SELECT body, crc FROM memo WHERE name = ?", (name,)).fetchone()
        return row[0] if row is not None and type(row[0]) is bytes and zlib.crc32(row[0]) == row[1] else b""

    def read(self, chunk: Chunk) -> bytes:
        """Return the body of a chunk; raise LookupError if there is none, or if its checksum is wrong."""
        row = self._db.execute("SELECT body, crc FROM chunk WHERE key = ?", (chunk.key,)).fetchone()
        if row is None or type(row[0]) is not bytes:
            raise LookupError(f"no chunk {chunk.key}")
        if checksum(chunk.key, chunk.count, chunk.newest, row[0]) != row[1]:
            raise LookupError("its checksum is wrong")
        return row[0]

    def acknowledge(
        self, gone: Iterable[int], front: tuple[int, int] | None, change: Mapping[str, int], **memos: bytes
    ) -> None:
        """
        Delete the chunks with the keys `gone`; `front` has the key of a chunk and how many of its points ended.

        Keep each of `memos` under its name; it replaces what was there.
        """
        with self._transaction(change) as db:
            for name, body in memos.items():
                self._note(db, name, body)
            db.executemany("DELETE FROM chunk WHERE key = ?", [(key,) for key in gone])
            if front:
                key, done = front
                db.execute("UPDATE chunk SET done = ?, rest = points - ? WHERE key = ?", (done, done, key))

    def readdress(self, old: bytes, new: bytes) -> None:
        """Change the destination of chunks from `old` to `new`."""
        with self._transaction() as db:
            values = with_checksum(new), with_checksum(old)
            db.execute("UPDATE chunk SET destination = ? WHERE destination = ?", values)

    def set_aside(self, why: str, *, key: int | None = None, body: bytes | None = None) -> None:
        """Add the chunk with the key `key`, or `body`, to the table `aside`."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO aside (key, why, body) SELECT ?, ?, coalesce(?, (SELECT body FROM chunk WHERE key = ?))",
                (key, why, body, key),
            )
            db.execute("DELETE FROM aside WHERE rowid <= (SELECT max(rowid) FROM aside) - ?", (ASIDE,))

    @staticmethod
    def _note(db: sqlite3.Connection, name: str, body: bytes) -> None:
        db.execute("INSERT OR REPLACE INTO memo (name, body, crc) VALUES (?, ?, ?)", (name, body, zlib.crc32(body)))

    def note_samples(self, samples: int) -> None:
        """Note how many samples the open window holds."""
        self._lock.write(self._lock.counts._replace(samples=samples))

    def _identities(self) -> list[tuple[str, int, int]]:
        """Return name, device and inode of the spool's files that exist."""
        files = []
        for file in self._names:
            with contextlib.suppress(OSError):
                stat = os.lstat(file)
                files.append((file, stat.st_dev, stat.st_ino))
        return files

    def is_in_place(self) -> bool:
        """Return whether the files at the path are still the files that are open here."""
        return self._identities() == self._files

    def rescue(self) -> Store:
        """Close this store, whose files were deleted, and return a new one at the path with the same content."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = self.path.with_suffix(".copy")
        copy.unlink(missing_ok=True)
        os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE, 0o600))
        self._db.execute("VACUUM INTO ?", (str(copy),))
        self.close(forget=True)
        set_file_aside(self.path)
        copy.replace(self.path)
        return Store(self.path)

    def close(self, *, forget: bool = False) -> None:
        """Close the file and unlock it; safe to call twice. `forget`: the next run does not miss what it held."""
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        if forget:
            self._lock.write(LockCounts())
        self._lock.close()


def set_file_aside(path: Path) -> Path:
    """Rename a corrupt database and its WAL; return the new path of the database."""
    aside = path.with_suffix(".corrupt")
    for suffix in FILES:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    return aside
