import logging
import math
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.agent.engine.spool.draining import drain, ids, take
from tests.doubles.frame import Clock

import chipwatch.engine.spool.queue
import chipwatch.engine.spool.sqlite
from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch.contract.errors import Retryable
from chipwatch.contract.trusted_clock import TRUSTED_CLOCK, TrustedClock
from chipwatch.engine.spool.queue import CHUNK_POINTS, POINT_BYTES, Spool
from chipwatch.engine.spool.sqlite import Store

LOAD = gauge("cpu.load", "1", "The load.")
HERE, THERE = Dimensions(host="here"), Dimensions(host="there")
UNLIMITED = 1 << 30  # pages


@pytest.fixture(params=["disk", "memory"])
def spool(request, path):
    with closing(Spool("sink", path if request.param == "disk" else None)) as spool:
        yield spool


def points(ids, at=1):
    return [LOAD.point(at, float(n)) for n in ids]


def in_file(path):
    """Return the ledger in the file and how many points of its chunks have not ended, in one transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN")
        ledger = dict(db.execute("SELECT entry, points FROM ledger"))
        (unsent,) = db.execute("SELECT coalesce(sum(points - done), 0) FROM chunk").fetchone()
    return ledger, unsent


def check_balance(spool, path=None):
    assert spool.ledger.balance() == 0
    assert spool.ledger.spooled == sum(part.left for part in spool._queue)
    if path is not None and path.exists():
        ledger, unsent = in_file(path)
        ended = sum(n for entry, n in ledger.items() if entry != "collected")
        assert ledger.get("collected", 0) == ended + unsent


def break_disk(spool):
    """Fill the disk: SQLite gets no page more."""
    spool.file.store._db.execute("PRAGMA max_page_count=1")


def mend_disk(spool):
    spool.file.store._db.execute(f"PRAGMA max_page_count={UNLIMITED}")


def kill(spool):
    """Leave the file as a killed process would: nothing more is written."""
    spool.file.close()


# -- a queue ------------------------------------------------------------------------------------------------------------


def test_points_of_machines_with_other_dimensions_are_parts_of_what_is_taken(spool):
    for number, common in enumerate((HERE, HERE, None, THERE, Dimensions())):
        spool.append(points([number]), common)
    taken = [(ids(part), common) for part, common in spool.take(100)]
    assert taken == [([0, 1], HERE), ([2], None), ([3], THERE), ([4], Dimensions())]


def test_the_end_of_many_chunks_is_one_transaction(spooled, path):
    spool, commits = spooled(), []
    for n in range(5):
        spool.append(points([2 * n, 2 * n + 1]))
    spool.file.store._db.set_trace_callback(lambda text: commits.append(text) if text == "COMMIT" else None)
    spool.take(9)
    spool.acknowledge({"sent": 7, "rejected:bad": 2})
    assert len(commits) == 1
    check_balance(spool, path)
    assert in_file(path) == ({"collected": 10, "sent": 7, "rejected:bad": 2}, 1)


def test_the_time_of_the_oldest_chunk_is_known(spool):
    spool.append(points([0], at=5) + points([1], at=7))
    spool.append(points([2], at=9))
    assert spool.oldest() == 7
    take(spool)
    spool.acknowledge({"sent": 2})
    assert spool.oldest() == 9


# -- a restart ----------------------------------------------------------------------------------------------------------


def test_a_closed_spool_can_be_closed_again_and_takes_points_into_memory(spooled):
    spool = spooled()
    spool.close()
    spool.close()
    spool.append(points([1]))
    assert take(spool) == [1]
    check_balance(spool)


def test_a_worker_that_returns_after_the_close_loses_and_logs_nothing(spooled, caplog):
    """Its sink hung over the deadline: the file still has all points, so the next run sends them."""
    first = spooled()
    for n in range(3):
        first.append(points([n]))
    take(first, 1)
    first.close()
    first.acknowledge({"sent": 1})
    assert take(first) == []
    first.release()
    assert caplog.messages == []
    assert drain(spooled()) == [0, 1, 2]


# -- bounds -------------------------------------------------------------------------------------------------------------


def test_a_full_spool_drops_the_oldest_and_counts_them(spooled, path, caplog):
    spool = spooled(max_bytes=20_000)
    for first in range(0, 5000, 50):
        spool.append(points(range(first, first + 50)))
        assert spool.bytes <= 20_000 + 50 * POINT_BYTES
        check_balance(spool)
    check_balance(spool, path)
    dropped = spool.ledger.dropped["spool full"]
    assert dropped > 0
    assert dropped % 50 == 0
    assert drain(spool, 100) == list(range(dropped, 5000))
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def test_memory_is_bounded_too(monkeypatch):
    monkeypatch.setattr(chipwatch.engine.spool.queue, "MEMORY_BYTES", 100 * POINT_BYTES)
    spool = Spool("sink")
    for first in range(0, 1000, 10):
        spool.append(points(range(first, first + 10)))
        assert spool.bytes <= 100 * POINT_BYTES
    assert spool.ledger.dropped == {"memory full": 900}
    assert drain(spool) == list(range(900, 1000))


def test_the_newest_window_is_kept_even_if_it_is_above_the_bound(spooled):
    spool = spooled(max_bytes=1)
    spool.append(points(range(1000)))
    assert drain(spool, 300) == list(range(1000))


def test_points_too_old_for_the_sink_are_dropped_and_counted(path, spooled):
    clock = Clock()
    spool = spooled(max_age=60, clock=clock)
    for n in range(4):
        spool.append(points([n], at=clock.now))
        clock.forward(30)
    assert take(spool) == [2, 3]
    assert spool.ledger.dropped == {"too old": 2}
    check_balance(spool, path)
    spool.close()
    clock.forward(3600)
    again = spooled(max_age=60, clock=clock)
    assert take(again) == []
    assert again.ledger.dropped == {"too old": 4}
    check_balance(again, path)


def test_no_point_is_too_old_while_the_clock_of_this_machine_is_not_trusted(spooled, monkeypatch):
    monkeypatch.setattr(TRUSTED_CLOCK, "_trusted_from", math.inf)  # as after a jump
    spool = spooled(max_age=60)
    spool.append(points([1], at=1))
    assert take(spool) == [1]
    monkeypatch.setattr(TRUSTED_CLOCK, "_trusted_from", 0)
    assert take(spool) == []


def test_points_on_disk_are_not_kept_in_memory_too(spooled):
    spool = spooled()
    for n in range(50):
        spool.append(points(range(20)))
        if n % 10 == 0:
            take(spool, 40)
            spool.release()
    kept = sum(part.points is not None for part in spool._queue)
    assert kept <= 4


# -- a disk that fails --------------------------------------------------------------------------------------------------


def test_a_full_disk_is_logged_once_and_the_points_wait_in_memory(spooled, path, caplog):
    spool = spooled()
    spool.append(points(range(10)))
    break_disk(spool)
    for first in range(10, 4010, 100):
        spool.append(points(range(first, first + 100)))
        check_balance(spool)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "lost if this process ends" in caplog.text
    assert spool.file.faults["disk"] > 0
    assert drain(spool, 100) == list(range(4010))
    check_balance(spool, path)


def test_points_that_no_disk_took_until_the_close_are_an_error(spooled, path, caplog):
    caplog.set_level(logging.INFO)
    spool = spooled()
    break_disk(spool)
    spool.append(points(range(2000)))
    spool.close()
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == [
        "spool sink: 2,000 points are lost: neither sent nor written to disk"
    ]


def test_counts_stay_right_if_the_file_is_corrupt_while_points_of_memory_are_in_flight(spooled, path, monkeypatch):
    spool = spooled()
    break_disk(spool)
    for n in range(3):
        spool.append(points(range(1000 * n, 1000 * n + 1000)))
    assert len(take(spool, 2500)) == 2500
    mend_disk(spool)
    spool.append(points([3000]))
    acknowledge = Store.acknowledge

    def rot(*_):
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(Store, "acknowledge", rot)
    spool.acknowledge({"sent": 1500})
    monkeypatch.setattr(Store, "acknowledge", acknowledge)
    spool.acknowledge({"sent": 1000})
    check_balance(spool)
    spool.append(points([3001]))
    check_balance(spool, path)
    assert drain(spool, 500) == list(range(2500, 3002))
    assert spool.ledger.sent == 3002
    check_balance(spool, path)


def test_points_wait_in_memory_until_the_folder_can_be_made(spooled, path, caplog):
    path.parent.parent.mkdir(exist_ok=True)
    path.parent.touch()  # a file where the folder should be: nobody can write below it, root neither
    spool = spooled()
    spool.append(points(range(5)))
    assert take(spool, 2) == [0, 1]
    spool.acknowledge({"sent": 2})
    spool.append(points(range(5, 10)))
    spool.release()
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    path.parent.unlink()
    spool.append(points(range(10, 12)))
    check_balance(spool, path)
    assert in_file(path) == ({"collected": 12, "sent": 2}, 10)
    kill(spool)
    assert drain(spooled()) == list(range(2, 12))


def test_ended_points_do_not_stay_in_memory_while_the_disk_fails(path, monkeypatch):
    path.parent.touch()
    spool = Spool("sink", path)
    for n in range(300):
        spool.append([LOAD.point(1, float(n))])
        take(spool)
        spool.acknowledge({"sent": 1})
    assert len(spool._unsaved) == 0
    monkeypatch.setattr(chipwatch.engine.spool.queue, "MEMORY_BYTES", 10 * POINT_BYTES)
    for n in range(300):
        spool.append([LOAD.point(1, float(n))])
    assert len(spool._unsaved) <= 10
    assert spool.ledger.balance() == 0


def test_pending_ends_do_not_grow_while_the_disk_fails(spooled, path, monkeypatch):
    spool = spooled()
    spool.append(points(range(1000)))
    acknowledge = Store.acknowledge

    def fail(*_):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Store, "acknowledge", fail)
    for n in range(500):
        take(spool, 1)
        spool.acknowledge({"sent": 1} if n % 5 else {"rejected:bad": 1})
    spool.append(points(range(1000, 1010)))
    assert sys.getsizeof(spool.file.pending.entries) < 1000
    check_balance(spool, path)
    monkeypatch.setattr(Store, "acknowledge", acknowledge)
    assert drain(spool) == list(range(500, 1010))
    check_balance(spool, path)
    assert in_file(path) == ({"collected": 1010, "sent": 910, "rejected:bad": 100}, 0)


def test_a_disk_that_cannot_be_read_for_a_moment_loses_nothing(spooled, path, monkeypatch):
    spool = spooled()
    for n in range(3):
        spool.append(points([n]))
    read = Store.read

    def fail(*_):
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(Store, "read", fail)
    with pytest.raises(Retryable):
        spool.take(10)
    check_balance(spool, path)
    monkeypatch.setattr(Store, "read", read)
    assert take(spool, 1) == [0]
    monkeypatch.setattr(Store, "read", fail)
    assert take(spool) == [0]
    spool.release()
    monkeypatch.setattr(Store, "read", read)
    assert drain(spool) == [0, 1, 2]
    assert not spool.ledger.dropped


# -- a second agent -----------------------------------------------------------------------------------------------------


def test_a_second_agent_on_the_same_spool_uses_memory_and_harms_nothing(spooled, path, caplog):
    first = spooled()
    first.append(points(range(3)))
    second = spooled()
    second.append(points(range(100, 103)))
    assert set(second.file.faults) == {"busy"}
    assert not second.file.store, "the start of a run says so"
    assert "in use by another agent" in caplog.text
    assert drain(second) == [100, 101, 102]
    second.close()
    assert drain(first) == [0, 1, 2]
    check_balance(first, path)


# -- points that cannot be written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison", [LOAD.point(1, 2**70), LOAD.point(1, 1.0, Dimensions(name="\udcff"))], ids=["value", "text"]
)
def test_a_window_that_cannot_be_written_is_dropped_and_counted_and_the_rest_goes_on(spooled, path, poison, caplog):
    spool = spooled()
    spool.append(points([0]))
    spool.append([poison, *points([1])])
    spool.append(points([2]))
    spool.append([poison])
    check_balance(spool, path)
    assert spool.ledger.dropped == {"unwritable": 3}
    assert drain(spool) == [0, 2]
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    check_balance(spool, path)


# -- a corrupt file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\x00" + bytes(4000)], ids=["text", "header"])
def test_a_file_that_is_not_a_database_is_set_aside_and_a_new_file_is_used(spooled, path, content, caplog):
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    spool = spooled()
    assert path.with_suffix(".corrupt").read_bytes() == content
    assert spool.file.faults == {"corrupt": 1}
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    spool.append(points(range(3)))
    spool.close()
    again = spooled()
    assert not again.file.faults
    assert drain(again) == [0, 1, 2]


def filled(path, chunks=60):
    """Write a file of many pages at `path`, with an empty log."""
    with closing(Spool("sink", path)) as spool:
        for n in range(chunks):
            spool.append(points(range(n * 40, n * 40 + 40)))
        spool.file.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = spool.file.store._db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chunk'").fetchone()
    return root


def overwrite(path, page, content, at=0):
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096 + at)
        file.write(content)


@pytest.mark.parametrize("when", ["found at the start", "found while running"])
def test_a_corrupt_page_drops_the_points_of_the_file_and_counts_them(spooled, path, when, caplog):
    root = filled(path)
    if when == "found at the start":
        overwrite(path, root, b"\xff" * 4096)
        spool = spooled()
        assert path.with_suffix(".corrupt").exists()
    else:
        spool = spooled()
        spool.file.store._db.execute("PRAGMA cache_size=0")
        spool.append(points([9000]))
        spool.file.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        overwrite(path, root, b"\xff" * 4096)
        assert take(spool) == [9000]
        spool.release()
        assert spool.ledger.dropped == {"unreadable": 60 * 40}
    assert spool.file.faults == {"corrupt": 1}
    assert {r.levelname for r in caplog.records} == {"ERROR"}
    check_balance(spool)
    spool.append(points([9001]))
    check_balance(spool, path)
    found = drain(spool)
    spool.append(points([9002]))
    spool.close()
    again = spooled()
    assert found + drain(again) == ([] if when == "found at the start" else [9000]) + [9001, 9002]
    assert not again.file.faults


@pytest.mark.parametrize(
    ("name", "rotten"),
    [(b"CREATE TABLE chunk", b"CREATE \xd5ABLE chunk"), (b"done INTEGER", b"dooe INTEGER"), (b"crc INTEGER", b"csc INTEGER"), (b"entry TEXT", b"entsy TEXT"),
     (b"CREATE TABLE memo (name", b"CREATE TABLE memo (nbme"), (b"aside (key", b"aside (kez")],
)  # fmt: skip
def test_a_file_with_a_corrupt_column_name_is_set_aside(spooled, path, *, name, rotten):
    filled(path)
    content = path.read_bytes()
    assert name in content
    path.write_bytes(content.replace(name, rotten))
    spool = spooled()
    if b"aside" in name:  # is not asked for until a chunk is to be set aside
        spool.file.do(lambda store: store.set_aside("why", points=points([1])))
    elif b"memo" in name:
        spool.file.recall()
    spool.append(points([9001]))
    check_balance(spool, path)
    assert path.with_suffix(".corrupt").exists()
    assert spool.file.faults["corrupt"] == 1
    assert drain(spool) == [9001]


def test_points_wait_in_memory_if_a_corrupt_file_cannot_be_set_aside(spooled, path, monkeypatch):
    """For instance, a failing disk was mounted again, read-only."""
    root = filled(path)
    spool = spooled()
    spool.file.store._db.execute("PRAGMA cache_size=0")
    overwrite(path, root, b"\xff" * 4096)

    def fail(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(chipwatch.engine.spool.sqlite, "set_file_aside", fail)
    spool.append(points([9001]))
    take(spool)
    spool.release()
    spool.append(points([9002]))
    check_balance(spool)
    assert drain(spool) == [9001, 9002]


def test_a_corrupt_chunk_is_set_aside_and_the_others_are_delivered(spooled, path, caplog):
    first = spooled()
    for n in range(5):
        first.append(points([2 * n, 2 * n + 1]))
    first.file.store._db.execute("UPDATE chunk SET body = x'01c1c1' WHERE key = 1")
    first.file.store._db.execute("UPDATE chunk SET body = x'02' WHERE key = 3")
    first.close()
    spool = spooled()
    assert drain(spool) == [0, 1, 4, 5, 8, 9]
    assert spool.ledger.dropped == {"unreadable": 4}
    check_balance(spool, path)
    assert {r.levelname for r in caplog.records} == {"ERROR"}
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT key, body FROM aside").fetchall() == [(1, b"\x01\xc1\xc1"), (3, b"\x02")]


def test_only_the_unsent_points_of_a_corrupt_chunk_are_dropped(spooled, path):
    first = spooled()
    first.append(points(range(10)))
    take(first)
    first.acknowledge({"sent": 4})
    first.file.store._db.execute("UPDATE chunk SET body = x''")
    first.close()
    spool = spooled()
    assert take(spool) == []
    assert (spool.ledger.sent, spool.ledger.dropped) == (4, {"unreadable": 6})
    check_balance(spool, path)


def test_it_knows_after_a_restart_when_the_newest_point_was_measured(tmp_path):
    path = tmp_path / "sink.db"
    with closing(Spool("s", path)) as spool:
        assert spool.file.newest() is None
        spool.append([LOAD.point(7, 1.0), LOAD.point(9, 1.0), LOAD.point(8, 1.0)])
        spool.take(10)
        spool.acknowledge({"sent": 3})
    with closing(Spool("s", path)) as spool:
        assert spool.file.newest() == 9


def test_it_keeps_what_the_sink_must_know_after_a_restart(tmp_path):
    path = tmp_path / "sink.db"
    with closing(Spool("s", path)) as spool:
        assert spool.file.recall() == b""
        spool.file.remember(b"this")
    with closing(Spool("s", path)) as spool:
        assert spool.file.recall() == b"this"


def test_without_a_file_no_state_is_kept_and_nothing_fails():
    spool = Spool("s")
    spool.file.remember(b"this")
    assert spool.file.recall() == b""
    assert spool.file.newest() is None


# -- a clock that jumps ---------------------------------------------------------------------------------------------------


def test_only_a_clock_that_stays_ahead_makes_points_too_old(path):
    wall, monotonic = Clock(), Clock()
    steady = TrustedClock(wall, monotonic)
    steady.compare(wall.now)
    with closing(Spool("sink", path, max_age=3600, clock=steady)) as spool:
        spool.append(points(range(5), at=wall.now))
        wall.forward(20 * 86_400)
        monotonic.forward(4)
        assert take(spool, 2) == [0, 1]
        wall.forward(-20 * 86_400)
        assert take(spool) == [0, 1, 2, 3, 4]
        assert not spool.ledger.dropped
        wall.forward(20 * 86_400)
        assert len(take(spool)) == 5
        monotonic.forward(1000)
        wall.forward(1000)
        assert take(spool) == []
        assert spool.ledger.dropped == {"too old": 5}
        check_balance(spool, path)


# -- what is beside the file ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sink.db", "sink.db-wal", "sink.db-shm", "sink.lock"])
def test_no_symbolic_link_is_followed(spooled, path, caplog, tmp_path, name):
    target = tmp_path / "precious"
    target.write_bytes(b"")
    path.parent.mkdir()
    (path.parent / name).symlink_to(target)
    spool = spooled()
    spool.append(points(range(3)))
    assert (target.read_bytes(), target.stat().st_nlink) == (b"", 1)
    assert "is a symbolic link, which is not followed: remove it" in caplog.text
    assert str(path.parent / name) in caplog.text
    (path.parent / name).unlink()
    spool.append(points([3]))
    check_balance(spool, path)
    assert in_file(path)[1] == 4


# -- corrupt data is not delivered ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "points = points + 20, rest = rest + 20",
        "points = points - 20, rest = rest - 20",
        "points = points + 1",
        "done = 3",
        "newest = newest + 1",
        "crc = NULL",
        "destination = x'7b7d'",
        "key = 77",
    ],
)
def test_a_corrupt_number_drops_its_own_chunk_only(spooled, path, change):
    filled(path, 3)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE chunk SET {change} WHERE key = 1")
        db.commit()
    spool = spooled()
    found = sorted(drain(spool))
    assert found == [*range(40), *range(80, 120)]
    assert spool.ledger.dropped == {"unreadable": 40}
    check_balance(spool, path)


def test_a_corrupt_state_counts_as_absent(spooled, path):
    first = spooled()
    first.file.remember(b"starts of counters")
    first.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE memo SET body = CAST(replace(body, 'c', 'd') AS BLOB)")
        db.commit()
    assert spooled().file.recall() == b""


# -- other versions -------------------------------------------------------------------------------------------------------


def test_a_file_of_a_newer_version_with_further_columns_is_used(spooled, path):
    first = spooled()
    first.append(points([0]))
    first.close()
    with closing(sqlite3.connect(path)) as db:
        for table in ("chunk", "ledger", "memo", "aside"):
            db.execute(f"ALTER TABLE {table} ADD COLUMN new TEXT DEFAULT 'new'")
        db.execute("PRAGMA user_version=9")
        db.commit()
    spool = spooled()
    spool.append(points([1]))
    spool.append(points([2]))
    spool.file.remember(b"state")
    spool.file.store._db.execute("UPDATE chunk SET body = x'00' WHERE key = 1")
    assert take(spool, 1) == [0]
    spool.acknowledge({"sent": 1})
    spool.close()
    again = spooled()
    assert drain(again) == [2]
    assert set(again.file.faults) == {"unreadable"}
    check_balance(again, path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (9,)


# -- where it is sent to --------------------------------------------------------------------------------------------------

TRIAL, REAL = (
    {"namespace": "Trial", "region": "a", "endpoint": ""},
    {"namespace": "Real", "region": "a", "endpoint": ""},
)


def sending(spooled, destination, **more):
    """Begin a life that sends to `destination`."""
    spool = spooled(destination=destination, **more)
    spool.bind(destination)
    return spool


def test_no_query_of_an_address_is_kept_and_a_new_key_finds_the_points(spooled, path):
    first = spooled(destination={"endpoint": "http://h/v1?api_key=K3Y"})
    first.bind({"endpoint": "http://h/v1?api_key=K3Y"})
    first.append(points([1]))
    first.file.remember(b"state")
    first.close()
    assert b"K3Y" not in b"".join(file.read_bytes() for file in path.parent.iterdir())
    again = spooled(destination={"endpoint": "http://h/v1?api_key=N3W"})
    again.bind({"endpoint": "http://h/v1?api_key=N3W"})
    assert (again.ledger.elsewhere, again.file.recall(), len(again.take(9))) == (0, b"state", 1)
    other = {"endpoint": "http://other/v1?api_key=K3Y"}
    again.close()
    last = spooled(destination=other)
    last.bind(other)
    assert last.ledger.elsewhere == 1


def test_points_for_another_destination_are_kept_apart_and_sent_when_it_returns(spooled, path, caplog):
    first = sending(spooled, TRIAL)
    first.append(points(range(5)))
    first.append(points(range(5, 8)))
    first.close()
    second = sending(spooled, REAL)
    assert not second.is_due
    assert second.ledger.elsewhere == 8
    assert second.oldest() is None
    assert "8 points for another destination (namespace=Trial, region=a; now: namespace=Real, region=a)" in caplog.text
    assert "are kept apart until it is set again" in caplog.text
    assert take(second) == []
    second.append(points([100]))
    assert drain(second) == [100]
    assert second.ledger.spooled == 8
    second.append(points([101]))
    assert second.ledger.balance() == 0
    second.close()
    third = sending(spooled, TRIAL)
    assert drain(third) == list(range(8))
    third.close()
    fourth = sending(spooled, REAL)
    assert drain(fourth) == [101]
    assert in_file(path) == ({"collected": 10, "sent": 10}, 0)


def test_points_for_another_destination_are_dropped_if_asked_for(spooled, path, caplog):
    first = sending(spooled, TRIAL)
    first.append(points(range(5)))
    first.close()
    second = sending(spooled, REAL, drop_others=True)
    second.append(points([5]))
    assert drain(second) == [5]
    assert second.ledger.dropped == {"other destination": 5}
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert in_file(path) == ({"collected": 6, "sent": 1, "dropped:other destination": 5}, 0)


def test_each_destination_has_a_separate_state(spooled):
    first = sending(spooled, TRIAL)
    first.file.remember(b"trial")
    first.close()
    second = sending(spooled, REAL)
    assert second.file.recall() == b""
    second.file.remember(b"real")
    second.close()
    assert sending(spooled, TRIAL).file.recall() == b"trial"


def test_an_empty_value_of_a_destination_is_a_known_value(spooled):
    first = sending(spooled, REAL)
    first.append(points([0]))
    first.close()
    assert not sending(spooled, REAL | {"endpoint": "http://127.0.0.1:5000"}).is_due


def test_a_corrupt_file_drops_points_kept_apart_too_and_counts_them(spooled, path):
    first = sending(spooled, TRIAL)
    first.append(points(range(5)))
    first.close()
    second = sending(spooled, REAL)
    second.append(points([5]))
    second.file._replace(sqlite3.DatabaseError("database disk image is malformed"))
    assert second.ledger.dropped == {"unreadable": 5}
    second.append(points([6]))
    assert drain(second) == [5, 6]
    assert second.ledger.balance() == 0
    check_balance(second, path)


def test_a_large_window_on_disk_is_several_chunks_so_that_an_acknowledgement_rewrites_little(path, spooled):
    spool = spooled()
    count = 2 * CHUNK_POINTS + 1
    spool.append(points(range(count)))
    assert all(chunk.points for chunk in spool._queue), "they are sent from memory"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*), max(points) FROM chunk").fetchone() == (3, CHUNK_POINTS)
    check_balance(spool, path)
    spool.close()
    spool = spooled()
    assert drain(spool, CHUNK_POINTS - 1) == [*range(count)]
    check_balance(spool, path)


def test_a_write_ahead_log_that_is_torn_keeps_the_chunks_before_the_tear(spooled, path, tmp_path):
    spool = spooled()
    for n in range(5):
        spool.append(points([n]))
    copy = tmp_path / "copy" / path.name
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    spool.close()
    log = Path(f"{copy}-wal")
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 3 // 4])
    torn = Spool("sink", copy)
    left = drain(torn)
    assert left == list(range(len(left)))
    assert 0 < len(left) < 5
    assert torn.ledger.balance() == 0
    torn.close()


def test_a_file_that_was_deleted_while_in_use_is_drained_and_a_new_one_follows(spooled, path):
    spool = spooled()
    spool.append(points([1]))
    for file in path.parent.iterdir():
        file.unlink()
    spool.append(points([2]))
    assert drain(spool) == [1, 2]
    spool.append(points([3]))
    spool.close()
    again = spooled()
    assert (drain(again), again.file.faults, again.ledger.balance()) == ([], {}, 0)


def test_the_file_gives_its_room_back_once_a_backlog_is_sent(path, monkeypatch):
    monkeypatch.setattr(chipwatch.engine.spool.sqlite, "SHRINK", 1 << 20)
    with closing(Spool("sink", path)) as spool:
        while path.stat().st_size < 1 << 20:
            spool.append([LOAD.point(n, n / 7, Dimensions(name=f"{n:0400}")) for n in range(500)])
    with closing(Spool("sink", path)) as spool:  # also a backlog of an earlier run
        drain(spool)
        assert spool.ledger.spooled == 0
        assert sum(file.stat().st_size for file in path.parent.iterdir()) < 200_000
    with closing(Spool("sink", path)) as spool:
        assert (spool.ledger.sent, spool.ledger.balance()) == (spool.ledger.collected, 0)
