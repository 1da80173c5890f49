"""A spool at its edges: with a corrupt file, at its bounds, and with odd counts."""

import sqlite3
from contextlib import closing

import pytest
from tests.agent.engine.spool.draining import drain, take

import chipwatch.engine.spool.queue
import chipwatch.engine.spool.sqlite
from chipwatch.contract.datapoint import gauge
from chipwatch.contract.errors import Retryable
from chipwatch.engine.spool.queue import POINT_BYTES, Spool
from chipwatch.engine.spool.sqlite import Store

LOAD = gauge("cpu.load", "1", "The load.")
PAGE = 4096


def points(*ids, at=1):
    return [LOAD.point(at, float(n)) for n in ids]


def rows(path):
    """Return the chunks of the file: key, points and how many of them have ended."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT key, points, done FROM chunk ORDER BY key").fetchall()


def ledger(path):
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute("SELECT entry, points FROM ledger"))


@pytest.fixture
def locked(path):
    """Lock the file by another writer: nothing can be written until the block ends."""

    def lock(spool):
        spool.file.store._db.execute("PRAGMA busy_timeout=0")
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("BEGIN IMMEDIATE")
        return closing(db)

    return lock


# -- corrupt --------------------------------------------------------------------------------------------------------------


def overwritten(path, word):
    content = path.read_bytes()
    assert word in content
    path.write_bytes(content.replace(word, b"\xff" * len(word)))


def test_bytes_are_those_in_memory_after_the_file_is_corrupt_and_zero_when_all_is_sent(spool, spooled, path):
    for n in range(40):
        spool.append(points(*range(50 * n, 50 * n + 50)))
    spool.close()
    spool = spooled()
    db = spool.file.store._db
    db.execute("PRAGMA cache_size=0")
    (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chunk'").fetchone()
    spool.append(points(9000, 9001))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek((root - 1) * PAGE)
        file.write(b"\xff" * PAGE)
    assert take(spool) == [9000, 9001]  # the file is set aside; only what was in memory is left
    assert spool.file.faults == {"corrupt": 1}
    assert spool.bytes == 2 * POINT_BYTES
    spool.acknowledge({"sent": 2})
    assert (spool.bytes, spool.ledger.balance()) == (0, 0)
    spool.append(points(1))
    assert drain(spool) == [1]
    assert spool.bytes == 0


# -- its bounds -----------------------------------------------------------------------------------------------------------


def test_exactly_the_most_bytes_are_kept_and_one_more_drops_the_oldest(monkeypatch):
    monkeypatch.setattr(chipwatch.engine.spool.queue, "MEMORY_BYTES", 4 * POINT_BYTES)
    spool = Spool("mem")
    spool.append(points(0, 1))
    spool.append(points(2, 3))
    assert (spool.bytes, spool.ledger.dropped) == (4 * POINT_BYTES, {})
    spool.append(points(4))
    assert spool.ledger.dropped == {"memory full": 2}
    assert drain(spool) == [2, 3, 4]


def test_a_point_of_exactly_the_maximum_age_is_sent():
    now = 100 * 10**9
    spool = Spool("mem", max_age=10, clock=lambda: now)
    spool.append(points(0, at=now - 10 * 10**9 - 1))
    spool.append(points(1, at=now - 10 * 10**9))
    assert drain(spool) == [1]
    assert spool.ledger.dropped == {"too old": 1}


def test_the_age_of_a_chunk_is_that_of_its_newest_point():
    now = 100 * 10**9
    spool = Spool("mem", max_age=10, clock=lambda: now)
    spool.append([*points(0, at=1), *points(1, at=now), *points(2, at=2)])
    assert spool.oldest() == now
    assert drain(spool) == [0, 1, 2]


def test_a_chunk_that_cannot_be_read_is_tried_ten_times(spool, monkeypatch):
    spool.append(points(0))
    spool.append(points(1))
    read = Store.read

    def withhold(store, chunk):
        if chunk.key == 0:
            raise sqlite3.OperationalError("disk I/O error")
        return read(store, chunk)

    monkeypatch.setattr(Store, "read", withhold)
    for _ in range(9):
        with pytest.raises(Retryable):
            spool.take(10)
    assert drain(spool) == [1]
    assert spool.ledger.dropped == {"unreadable": 1}


def test_points_in_memory_at_the_close_are_counted_as_lost_and_logged(caplog):
    caplog.set_level("INFO")
    spool = Spool("mem")
    spool.append(points(0, 1))
    spool.append(points(2))
    assert take(spool, 1) == [0]
    spool.acknowledge({"sent": 1})
    spool.close()
    assert (spool.lost, spool.bytes, spool.is_due, spool.ledger.balance()) == (2, 0, False, 0)
    assert "2 points are lost" in caplog.text
    spool.close()
    assert spool.lost == 2


# -- its file -------------------------------------------------------------------------------------------------------------


def test_a_chunk_in_which_no_point_can_be_written_leaves_no_row(spool, path):
    spool.append([LOAD.point(1, 2**70), LOAD.point(1, 2**71)])
    assert rows(path) == []
    assert (spool.bytes, spool.is_due, spool.ledger.dropped) == (0, False, {"unwritable": 2})
    spool.append(points(1))
    assert drain(spool) == [1]
    assert ledger(path) == {"collected": 3, "dropped:unwritable": 2, "sent": 1}


# -- counts ---------------------------------------------------------------------------------------------------------------


def change_ledger(path, points):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE ledger SET points = points + ? WHERE entry = 'collected'", (points,))


def test_a_ledger_that_counts_too_few_points_makes_no_point_missing(spool, spooled, path):
    spool.append(points(*range(10)))
    spool.close()
    change_ledger(path, -3)
    again = spooled()
    assert drain(again) == list(range(10))
    assert (again.file.faults, again.ledger.dropped) == ({}, {})


def test_an_unreadable_chunk_counts_at_least_one_point_whatever_the_ledger_says(spool, spooled, path):
    spool.append(points(0, 1, 2))
    spool.close()
    change_ledger(path, -100)
    again = spooled()
    again.file.store._db.execute("UPDATE chunk SET body = x'ff'")
    assert drain(again) == []
    assert (again.ledger.dropped, again.ledger.spooled, again.bytes) == ({"unreadable": 1}, 0, 0)


def test_points_in_memory_go_to_the_destination_that_is_bound_later(spooled, path, caplog):
    path.parent.touch()  # a file where the folder should be
    spool = spooled(destination={"region": "a"})
    spool.append(points(0, 1))
    spool.bind({"region": "b"})
    assert "another destination" not in caplog.text
    path.parent.unlink()
    spool.append(points(2))
    spool.close()
    again = spooled(destination={"region": "b"})
    again.bind({"region": "b"})
    assert drain(again) == [0, 1, 2]
    assert (again.ledger.balance(), again.bytes) == (0, 0)
    assert ledger(path) == {"collected": 3, "sent": 3}


def test_points_in_memory_are_written_again_after_the_file_was_corrupt(spool, spooled, path):
    spool.append(points(0))
    spool.append(points(1))
    spool.file._replace(sqlite3.DatabaseError("database disk image is malformed"))
    assert spool.ledger.dropped == {"unreadable": 1}
    spool.append(points(2))
    assert [count for _, count, _ in rows(path)] == [1, 1]
    spool.file.close()  # as at a kill
    assert drain(spooled()) == [1, 2]


def test_a_file_that_is_corrupt_while_points_for_another_destination_are_dropped_counts_each_once(
    spooled, path, monkeypatch
):
    first = spooled(destination={"region": "a"})
    first.bind({"region": "a"})
    for n in range(3):
        first.append(points(n))
    first.close()
    second = spooled(destination={"region": "b"}, drop_others=True)

    def fail(*_):
        raise sqlite3.DatabaseError("database disk image is malformed")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "acknowledge", fail)
        second.bind({"region": "b"})
    assert second.ledger.dropped == {"other destination": 1, "unreadable": 2}
    second.append(points(3))
    assert drain(second) == [3]
    assert (second.ledger.balance(), second.bytes) == (0, 0)


def test_points_in_flight_stay_in_flight_if_the_file_becomes_corrupt(spool, path):
    spool.append(points(0))
    assert take(spool) == [0]
    spool.append(points(1))
    spool.file._replace(sqlite3.DatabaseError("database disk image is malformed"))
    spool.acknowledge({"sent": 1})
    assert (spool.ledger.sent, spool.ledger.dropped) == (1, {})
    assert drain(spool) == [1]
    spool.close()
    assert (ledger(path), rows(path)) == ({"collected": 2, "sent": 2}, [])


def test_pending_ends_are_counted_once_if_their_file_becomes_corrupt(spool, path, locked):
    spool.append(points(0, 1, 2))
    assert take(spool) == [0, 1, 2]
    with locked(spool):
        spool.acknowledge({"sent": 1})
    spool.file._replace(sqlite3.DatabaseError("database disk image is malformed"))
    spool.release()
    spool.append(points(3))
    assert ledger(path) == {"collected": 4, "sent": 1}
    assert drain(spool) == [1, 2, 3]
    assert ledger(path) == {"collected": 4, "sent": 4}


def test_a_corrupt_file_that_cannot_be_renamed_is_not_opened_again(spool, monkeypatch):
    spool.append(points(0))
    spool.append(points(1))

    def fail(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(chipwatch.engine.spool.sqlite, "set_file_aside", fail)
    spool.file._replace(sqlite3.DatabaseError("database disk image is malformed"))
    spool.append(points(2))
    assert drain(spool) == [1, 2]
    assert spool.ledger.dropped == {"unreadable": 1}


def test_a_file_that_cannot_be_read_at_the_start_is_opened_later_and_not_renamed(spooled, path, monkeypatch):
    first = spooled()
    first.append(points(0))
    first.close()

    def fail(*_):
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "chunks", fail)
        spool = spooled()
        spool.append(points(1))
    assert set(spool.file.faults) == {"disk"}
    assert not path.with_suffix(".corrupt").exists()
    spool.append(points(2))
    assert drain(spool) == [0, 1, 2]


def test_a_destination_is_the_same_in_any_order_of_its_keys(spooled):
    first = spooled(destination={"namespace": "x", "region": "a"})
    first.file.remember(b"state")
    first.close()
    assert spooled(destination={"region": "a", "namespace": "x"}).file.recall() == b"state"
