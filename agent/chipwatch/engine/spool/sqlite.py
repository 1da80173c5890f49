"""
The SQLite database of a spool, in WAL mode: a commit survives a kill of the process, without an fsync.

A chunk is stored as a version byte, then MessagePack with each metric and each set of dimensions once. A file beside
the database is its lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from chipwatch.base.system import SAFE, open_locked
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary
from chipwatch.engine.spool.file import KINDS, NEWEST, Chunk

SCHEMA: Final = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
ASIDE: Final = 20
"""Most unreadable chunks that are kept for a person to look at; older ones are deleted."""
SHRINK: Final = 8 << 20
"""Bytes that are written until the file gives the room of ended chunks back; less is filled again soon."""
FILES: Final = ("", "-wal", "-shm")
"""Endings of the files that SQLite makes for a database."""

VERSION: Final = b"\x01"

_Metric = tuple[str, Kind, str, str, Level, tuple[str, ...]]
_Row = tuple[int, int, float, int, int | None, int | None, Summary | None, float | None]
_Pairs = tuple[tuple[str, str], ...]
_Body = tuple[_Pairs | None, list[_Metric], list[_Pairs], list[_Row]]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


class Busy(OSError):
    """Another running agent uses this spool."""


def with_checksum(text: bytes) -> bytes:
    """Return `text` with its CRC-32 appended."""
    return b"%b%08x" % (text, zlib.crc32(text))


def verified(text: object) -> bytes | None:
    """Return `text` without the checksum of `with_checksum`, or None if the checksum is wrong."""
    return text[:-8] if isinstance(text, bytes) and with_checksum(text[:-8]) == text else None


def checksum(key: int, points: int, newest: int, body: bytes) -> int:
    """Return the CRC-32 of a chunk."""
    return zlib.crc32(b"%d %d %d" % (key, points, newest), zlib.crc32(body))


def refuse_links(path: Path) -> None:
    """Raise OSError if one of the spool's files is a symbolic link, which may lead to a file of somebody else."""
    for file in (*(Path(f"{path}{suffix}") for suffix in FILES), path.with_suffix(".lock")):
        if file.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link, which is not followed: remove it", str(file))


class Content(NamedTuple):
    """An open file of a spool, and what was in it."""

    store: Store
    chunks: list[Chunk]
    entries: dict[str, int]
    """Numbers of points in its ledger, with keys as in `Ledger.add`."""
    repair: str = ""
    """The fault of a corrupt file, and what was done about it; "" if there was none."""


class Tables:
    """
    The tables of one spool, to read: chunks, ledger and memos.

    An agent may write them meanwhile. Every method may raise one of `failures`, and the constructor also OSError.
    """

    failures: Final = (sqlite3.Error, UnicodeDecodeError)

    def __init__(self, path: Path, mode: str = "ro") -> None:
        """Open the file at `path`; with the mode "ro", write nothing and take no lock of the agent."""
        self.path = path
        refuse_links(path)
        is_at_rest = mode == "ro" and not Path(f"{path}-wal").exists()  # then it is read where nothing can be written
        address = f"{path.absolute().as_uri()}?mode={mode}&immutable={is_at_rest:d}"
        self._db = sqlite3.connect(address, uri=True, timeout=1, isolation_level=None, check_same_thread=False)
        self._db.text_factory = bytes.decode  # a corrupt text then raises UnicodeDecodeError
        if mode == "ro":
            self._db.execute("BEGIN")  # all that is read is of one moment

    @staticmethod
    def is_corruption(problem: Exception) -> bool:
        """Return whether `problem` means that the file is corrupt, or that a table or a column is missing."""
        no_such_name = getattr(problem, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
        return no_such_name or type(problem) in {sqlite3.DatabaseError, sqlite3.DataError, UnicodeDecodeError}

    def rows(self, *, newest_first: bool = False) -> Iterator[Chunk]:
        """Yield the chunks, oldest first, without their points; one with impossible counts has no point."""
        before, order = (1 << 63, "DESC") if newest_first else (-1, "ASC")
        columns = "key, points, done, rest, newest, length(body), destination"
        rows = self._db.execute(f"SELECT {columns} FROM chunk ORDER BY key {order}")  # noqa: S608  # no text from outside
        for key, points, done, rest, newest, size, destination in rows:
            if type(key) is not int or key < 0 or key == before or (key < before) is not newest_first:
                raise sqlite3.DatabaseError(f"the key of a chunk is corrupt: {key!r:.80} after {before}")
            before, label = key, verified(destination)
            are_numbers = all(type(n) is int for n in (points, done, rest, newest, size))
            is_whole = are_numbers and label is not None and 0 <= done < points == done + rest
            whole = Chunk(key, points, size, newest, label or b"", done, stored=True)
            yield whole if is_whole else Chunk(key, 0, 0, 0, b"")

    def ledger(self) -> dict[str, int]:
        """Return the numbers of points in the ledger, with keys as in `Ledger.add`."""
        rows = self._db.execute("SELECT entry, points FROM ledger").fetchall()
        if wrong := [row for row in rows if [*map(type, row)] != [str, int] or row[0].partition(":")[0] not in KINDS]:
            raise sqlite3.DatabaseError(f"an entry of the ledger is corrupt: {wrong[0]!r:.80}")
        return dict(rows)

    def read(self, chunk: Chunk) -> tuple[list[Datapoint], Dimensions | None]:
        """Return the points of a chunk and the machine's dimensions; raise LookupError if it is missing or corrupt."""
        row = self._db.execute("SELECT body, crc FROM chunk WHERE key = ?", (chunk.key,)).fetchone()
        if row is None or type(row[0]) is not bytes:
            raise LookupError(f"no chunk {chunk.key}")
        if checksum(chunk.key, chunk.count, chunk.newest, row[0]) != row[1]:
            raise LookupError("its checksum is wrong")
        return decode_points(row[0], chunk.count)

    def memos(self) -> dict[str, bytes]:
        """Return all memos by name, without those whose checksum is wrong."""
        rows = self._db.execute("SELECT name, body, crc FROM memo").fetchall()
        return {name: body for name, body, crc in rows if type(body) is bytes and zlib.crc32(body) == crc}

    def check(self) -> None:
        """Raise DatabaseError for the first fault that SQLite finds in the file's pages."""
        (fault,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if fault != "ok":
            raise sqlite3.DatabaseError(fault)

    def close(self) -> None:
        """Close the database; safe to call twice."""
        with contextlib.suppress(sqlite3.Error, AttributeError):  # the latter where it could not be opened
            self._db.close()


class Store(Tables):
    """
    The tables of one spool: chunks, ledger, memos, and chunks set aside. Each change is one transaction.

    A commit survives a SIGKILL of the process; a power cut may lose the commits since the last checkpoint. Every method
    may raise one of `failures`, and the constructor also OSError and Busy. The caller holds the spool's lock.
    """

    def __init__(self, path: Path) -> None:
        """Open or make the file at `path`, readable by its owner only."""
        refuse_links(path)
        try:
            self._lock = open_locked(path.with_suffix(".lock"))
        except BlockingIOError:
            raise Busy(f"{path} is in use by another agent: stop it, or give each its own --spool") from None
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | SAFE, 0o600))
            super().__init__(path, "rw")
            self._db.executescript(f"PRAGMA auto_vacuum=INCREMENTAL; {SCHEMA}")  # so that a new file can shrink
        except BaseException:
            self.close()
            raise
        self._written = path.stat().st_size
        """Bytes written since the file was last made smaller."""

    @classmethod
    def load(cls, path: Path) -> Content:
        """Return the content of the file at `path`; set a corrupt one aside and make a new one."""
        try:
            return cls._load(path)
        except cls.failures as problem:
            if not cls.is_corruption(problem):
                raise
            repair = set_file_aside(path, problem)
            return cls._load(path)._replace(repair=repair)

    @classmethod
    def _load(cls, path: Path) -> Content:
        store = cls(path)
        try:
            return Content(store, store.chunks(), store.ledger())
        except BaseException:
            store.close()
            raise

    @contextlib.contextmanager
    def _transaction(self, change: Mapping[str, int] | None = None) -> Iterator[sqlite3.Connection]:
        """Add `change` to the ledger and commit at the end of the block; roll back after an exception."""
        with self._db as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            if change:
                db.executemany(
                    "INSERT INTO ledger (entry, points) VALUES (?, ?)"
                    " ON CONFLICT (entry) DO UPDATE SET points = points + excluded.points",
                    list(change.items()),
                )

    def chunks(self) -> list[Chunk]:
        """Return the chunks, oldest first, without their points; set chunks with impossible counts aside."""
        chunks = [*self.rows()]
        for chunk in chunks:
            if not chunk.count:
                self.set_aside("its counts are impossible", key=chunk.key)
                self.acknowledge([chunk.key], None, {})
        return [chunk for chunk in chunks if chunk.count]

    def add(self, chunk: Chunk) -> int:
        """
        Write a new chunk, and count its points as collected; return the chunk's bytes.

        Also raise TypeError, ValueError or OverflowError for points that cannot be encoded.
        """
        key, points, newest = chunk.key, chunk.count, chunk.newest
        body = encode_points(chunk.points or (), chunk.common)
        with self._transaction({"collected": points}) as db:
            db.execute(
                "INSERT INTO chunk (key, points, done, rest, newest, body, crc, destination)"
                " VALUES (?, ?, 0, ?, ?, ?, ?, ?)",
                (key, points, points, newest, body, checksum(key, points, newest, body),
                 with_checksum(chunk.destination)),
            )  # fmt: skip
            self._note(db, NEWEST, newest.to_bytes(8, "big", signed=True))
        self._written += len(body)
        return len(body)

    def acknowledge(
        self, gone: Collection[int], front: tuple[int, int] | None, change: Mapping[str, int], **memos: bytes
    ) -> None:
        """
        Write that points have ended.

        Delete the chunks with the keys `gone`. `front` has the key of a chunk, and how many of its points have ended.
        Add `change` to the ledger. Each of `memos` replaces the one of its name. Raise DatabaseError where a chunk is
        there and cannot be deleted: it would come back.
        """
        with self._transaction(change) as db:
            for name, body in memos.items():
                self._note(db, name, body)
            if db.executemany("DELETE FROM chunk WHERE key = ?", [(key,) for key in gone]).rowcount < len(gone):
                raise sqlite3.DatabaseError("a chunk is there, and is not found by its key")
            if front:
                db.execute("UPDATE chunk SET done = ?2, rest = points - ?2 WHERE key = ?1", front)

    def shrink(self, *, always: bool = False) -> None:
        """Give the room of ended chunks back to the disk, once SHRINK bytes were written since the last time."""
        if always or self._written >= SHRINK:
            self._written = 0
            # A script, since `execute` ends the first one after a page.
            self._db.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);")

    def readdress(self, old: bytes, new: bytes) -> None:
        """Change the label of the destination from `old` to `new` in all chunks."""
        with self._transaction() as db:
            values = with_checksum(new), with_checksum(old)
            db.execute("UPDATE chunk SET destination = ? WHERE destination = ?", values)

    def set_aside(self, why: str, *, key: int | None = None, points: Sequence[Datapoint] = ()) -> None:
        """Copy the chunk with the key `key`, or `points`, to the table `aside`, with the reason."""
        body = encode_points(points, None) if points else None
        with self._transaction() as db:
            db.execute(
                "INSERT INTO aside (key, why, body) SELECT ?, ?, coalesce(?, (SELECT body FROM chunk WHERE key = ?))",
                (key, why, body, key),
            )
            db.execute("DELETE FROM aside WHERE rowid <= (SELECT max(rowid) FROM aside) - ?", (ASIDE,))

    @staticmethod
    def _note(db: sqlite3.Connection, name: str, body: bytes) -> None:
        db.execute("INSERT OR REPLACE INTO memo (name, body, crc) VALUES (?, ?, ?)", (name, body, zlib.crc32(body)))

    def close(self) -> None:
        """Close the database and release its lock; safe to call twice."""
        super().close()
        self._lock.close()

    def retire(self, problem: Exception) -> str:
        """Close a corrupt file and rename it; return a sentence with the fault and the new name; raise OSError."""
        self.close()
        return set_file_aside(self.path, problem)


def set_file_aside(path: Path, problem: object, ending: str = ".corrupt") -> str:
    """Rename a corrupt database and its WAL; return a sentence with the fault and the new name; raise OSError."""
    aside = path.with_suffix(ending)
    for suffix in FILES:
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    return f"{path}: {problem}; it is renamed to {aside}, and a new file is made"


def encode_points(points: Sequence[Datapoint], common: Dimensions | None) -> bytes:
    """
    Return `points` and the machine's dimensions `common` as bytes.

    Raise TypeError, ValueError or OverflowError for points that cannot be encoded.
    """
    metrics: dict[int, int] = {}  # by id(metric), since the hash of a metric is slow
    dims: dict[int, int] = {}
    metric_rows: list[_Metric] = []
    dims_rows: list[_Pairs] = []
    rows: list[_Row] = []
    for metric, value, pairs, at, start_time, start, summary, increase in points:
        m = metrics.get(id(metric))
        if m is None:
            m = metrics[id(metric)] = len(metric_rows)
            metric_rows.append((metric.name, metric.kind, metric.unit, metric.help, metric.level, metric.dims))
        d = dims.get(id(pairs))
        if d is None:
            d = dims[id(pairs)] = len(dims_rows)
            dims_rows.append(pairs.items_sorted)
        rows.append((m, d, value, at, start_time, start, summary, increase))
    machine = None if common is None else common.items_sorted
    return VERSION + _encoder.encode((machine, metric_rows, dims_rows, rows))


def decode_points(body: bytes, count: int) -> tuple[list[Datapoint], Dimensions | None]:
    """Return the `count` points and the machine's dimensions in `body`; raise LookupError if it is corrupt."""
    if body[:1] != VERSION:
        raise LookupError(f"version {body[:1].hex() or 'none'}, this agent reads {VERSION.hex()}")
    try:
        common, metric_rows, dims_rows, rows = _decoder.decode(memoryview(body)[1:])
        if len(rows) != count:
            raise IndexError(f"{len(rows)} points, expected {count}")  # noqa: TRY301
        metrics = [Metric(*row) for row in metric_rows]
        dims = [Dimensions(dict(pairs)) for pairs in dims_rows]
        points = [Datapoint(metrics[m], value, dims[d], *rest) for m, d, value, *rest in rows]
    except (msgspec.MsgspecError, ValueError, IndexError) as problem:
        raise LookupError(str(problem)) from problem
    return points, None if common is None else Dimensions(dict(common))
