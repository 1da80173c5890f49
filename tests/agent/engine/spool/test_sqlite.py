import os
import sqlite3
from contextlib import closing

import pytest

from chipwatch.contract.datapoint import NO_DIMENSIONS, gauge
from chipwatch.engine.spool.file import Chunk
from chipwatch.engine.spool.sqlite import ASIDE, Busy, Store, decode_points, set_file_aside


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spool" / "sink.db"


LOAD = gauge("load", "1", "The load.")


def batch(key, points=3):
    return [LOAD.point(at, float(key)) for at in range(points)]


def add(store, key, points=3, newest=7):
    return store.add(Chunk(key, points, 0, newest, b'{"a": "b"}', points=batch(key, points), common=NO_DIMENSIONS))


def read(store, key, points, newest):
    return store.read(Chunk(key, points, 0, newest, b""))


def numbers(store):
    """Return key, points, done, newest and bytes of each chunk."""
    return [(chunk.key, chunk.count, chunk.done, chunk.newest, chunk.size) for chunk in store.chunks()]


def test_chunks_come_back_in_order_after_a_restart(path):
    sizes = {}
    with closing(Store(path)) as store:
        for key in (2, 0, 1):
            sizes[key] = add(store, key, points=key + 1, newest=10 * key)
    with closing(Store(path)) as store:
        assert numbers(store) == [(key, key + 1, 0, 10 * key, sizes[key]) for key in range(3)]
        assert read(store, 2, 3, 20) == (batch(2), NO_DIMENSIONS)
        assert store.ledger() == {"collected": 6}


def test_an_acknowledgement_changes_chunks_and_ledger_in_one_transaction(path):
    with closing(Store(path)) as store:
        size = [add(store, key) for key in range(3)][2]
        store.acknowledge([0, 1], (2, 2), {"sent": 5, "rejected:bad": 3})
        assert numbers(store) == [(2, 3, 2, 7, size)]
        store.acknowledge([], None, {"sent": 1})
        assert store.ledger() == {"collected": 9, "sent": 6, "rejected:bad": 3}


def test_a_change_that_fails_changes_nothing(path):
    with closing(Store(path)) as store:
        size = add(store, 0)
        with pytest.raises(sqlite3.IntegrityError):
            add(store, 0, points=50)
        with pytest.raises(sqlite3.Error):
            store.acknowledge([0], None, {"sent": [1]})
        assert numbers(store) == [(0, 3, 0, 7, size)]
        assert store.ledger() == {"collected": 3}
        add(store, 1)


def test_a_chunk_that_is_not_there_is_a_lookup_error(path):
    with closing(Store(path)) as store, pytest.raises(LookupError):
        read(store, 5, 3, 7)


def test_the_last_few_chunks_set_aside_are_kept_with_why(path):
    with closing(Store(path)) as store:
        for key in range(ASIDE + 5):
            add(store, key)
            store.set_aside(f"why {key}", key=key)
            store.acknowledge([key], None, {})
    with closing(sqlite3.connect(path)) as db:
        kept = db.execute("SELECT key, why, body FROM aside ORDER BY key").fetchall()
    assert [row[:2] for row in kept] == [(key, f"why {key}") for key in range(5, ASIDE + 5)]
    assert [decode_points(row[2], 3)[0] for row in kept] == [batch(key) for key in range(5, ASIDE + 5)]


def test_all_folders_that_are_missing_are_made(tmp_path):
    with closing(Store(tmp_path / "a" / "b" / "sink.db")) as store:
        add(store, 0)
        assert (tmp_path / "a" / "b" / "sink.db").exists()


def test_only_the_owner_can_read_the_files_whatever_the_umask(path):
    before = os.umask(0)
    try:
        with closing(Store(path)) as store:
            add(store, 0)
            modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
            folder = path.parent.stat().st_mode & 0o777
    finally:
        os.umask(before)
    assert set(modes) == {"sink.db", "sink.db-wal", "sink.db-shm", "sink.lock"}
    assert set(modes.values()) == {0o600}
    assert folder == 0o700


def test_a_second_store_on_the_same_file_is_busy_until_the_first_is_closed(path):
    with closing(Store(path)):
        with pytest.raises(Busy, match="in use by another agent"):
            Store(path)
        with pytest.raises(Busy):
            Store(path)
    Store(path).close()


def test_a_file_of_no_bytes_is_a_new_one(path):
    path.parent.mkdir()
    path.touch()
    with closing(Store(path)) as store:
        assert store.chunks() == []
        add(store, 0)


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_file_that_is_not_a_database_raises_a_database_error_and_leaves_no_lock(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError) as caught:
            Store(path)
        assert not isinstance(caught.value, sqlite3.OperationalError)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_made_is_an_os_error(tmp_path):
    (tmp_path / "file").touch()
    for below in ("file/sink.db", "file/further/sink.db"):
        with pytest.raises(OSError, match="file"):
            Store(tmp_path / below)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunk SET done = 3",
        "UPDATE chunk SET done = 1",
        "UPDATE chunk SET done = -1",
        "UPDATE chunk SET done = -1, rest = 4",
        "UPDATE chunk SET points = 0",
        "UPDATE chunk SET rest = NULL",
        "UPDATE chunk SET newest = x'00'",
        "UPDATE chunk SET points = 'three'",
        "UPDATE chunk SET destination = x'00'",
        "UPDATE chunk SET destination = CAST(replace(CAST(destination AS TEXT), 'b', 'c') AS BLOB)",
        "UPDATE chunk SET destination = NULL",
    ],
)
def test_a_row_that_makes_no_sense_is_set_aside_and_the_others_stay(path, change):
    with closing(Store(path)) as store:
        for key in range(3):
            add(store, key)
        store._db.execute(f"{change} WHERE key = 1")
        assert [row.key for row in store.chunks()] == [0, 2]
    with closing(Store(path)) as store:
        assert [row.key for row in store.chunks()] == [0, 2]
        ((key, body),) = store._db.execute("SELECT key, body FROM aside").fetchall()
        assert (key, decode_points(body, 3)[0]) == (1, batch(1))


@pytest.mark.parametrize(
    "change", ["UPDATE ledger SET points = 'three'", "UPDATE ledger SET entry = x'00'", "UPDATE chunk SET key = -1"]
)
def test_corrupt_rows_are_a_database_error(path, change):
    with closing(Store(path)) as store:
        add(store, 0)
        store._db.execute(change)
        with pytest.raises(
            sqlite3.DatabaseError,
            match=r"an entry of the ledger is corrupt: |the key of a chunk is corrupt: -1 after -1",
        ):
            (store.chunks(), store.ledger())


def test_a_body_of_another_type_than_bytes_is_a_lookup_error(path):
    with closing(Store(path)) as store:
        add(store, 0)
        store._db.execute("UPDATE chunk SET body = 1000000000000")
        with pytest.raises(LookupError):
            read(store, 0, 3, 7)


def test_closing_is_safe_twice(path):
    store = Store(path)
    store.close()
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store.chunks()


def test_a_file_set_aside_takes_its_log_along_and_replaces_an_older_one(tmp_path):
    path = tmp_path / "sink.db"
    for content in ("old", "new"):
        for suffix in ("", "-wal"):
            (tmp_path / f"sink.db{suffix}").write_text(content + suffix)
        text = set_file_aside(path, OSError("it is malformed"))
    aside = tmp_path / "sink.corrupt"
    assert text == f"{path}: it is malformed; it is renamed to {aside}, and a new file is made"
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"sink.corrupt": "new", "sink.corrupt-wal": "new-wal"}


def test_the_file_does_not_grow_with_chunks_that_were_sent(path):
    with closing(Store(path)) as store:
        for key in range(300):
            add(store, key, points=1000)
            store.acknowledge([key], None, {"sent": 1000})
        assert sum(p.stat().st_size for p in path.parent.iterdir()) < 8 << 20


def test_the_last_note_of_a_name_survives_a_restart(path):
    with closing(Store(path)) as store:
        assert "sink" not in store.memos()
        store.acknowledge([], None, {}, sink=b"old")
        store.acknowledge([], None, {}, sink=b"new")
    with closing(Store(path)) as store:
        assert store.memos() == {"sink": b"new"}


def test_a_note_of_another_type_than_bytes_counts_as_absent(path):
    with closing(Store(path)) as store:
        store._db.execute("INSERT INTO memo (name, body, crc) VALUES ('sink', 5, 0)")
        assert "sink" not in store.memos()


def test_a_chunk_without_a_key_is_a_database_error(path):
    with closing(Store(path)) as store:
        add(store, 0)
    with closing(sqlite3.connect(path)) as db, db:
        columns = ", ".join(row[1] for row in db.execute("PRAGMA table_info(chunk)"))
        db.execute("ALTER TABLE chunk RENAME TO former")
        db.execute(f"CREATE TABLE chunk AS SELECT {columns} FROM former")  # its key may be NULL now, as after rot
        db.execute("UPDATE chunk SET key = NULL")
    with (
        closing(Store(path)) as store,
        pytest.raises(sqlite3.DatabaseError, match="the key of a chunk is corrupt: None after -1"),
    ):
        store.chunks()
