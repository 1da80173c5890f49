"""`chipwatch status --spool FOLDER`, with an agent's own spool, whole and damaged."""

import os
import sqlite3
from contextlib import closing

import pytest
from tests.agent.engine.spool.draining import drain

from chipwatch.commands.check import repair
from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.spool.sqlite import Store

LOAD = gauge("x.load", "1", "The load.")
PAGE = 4096
AT = 1_732_000_000 * 10**9  # 2024-11-19 07:06:40
WHERE = {"namespace": "Trial\x1b[2J", "endpoint": ""}


def kept(path, n=9, each=200, **more):
    """Return a spool with `n` chunks of points, which have the ids 0, 1 and so on, one a second."""
    spool = Spool("kept", path, destination=WHERE, **more)
    for first in range(0, n * each, each):
        spool.append([LOAD.point(AT + n * 10**9, float(n), Dimensions(a="b" * 50)) for n in range(first, first + each)])
    return spool


def change(path, text):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(text)


@pytest.fixture
def asked(here, tmp_path):
    """Ask about the spools in a folder; return exit code, standard output and standard error."""

    def ask(*words):
        done = here("status", *words, "--spool", tmp_path)
        return done.returncode, done.stdout, done.stderr

    return ask


@pytest.mark.parametrize("runs", [True, False])
def test_it_says_what_is_kept_for_whom_from_when_to_when_and_writes_nothing(asked, tmp_path, runs):
    spool = kept(tmp_path / "kept.db")
    spool.take(150)
    spool.acknowledge({"sent": 148, "rejected:odd": 2})
    if not runs:
        spool.close()
    before = {*tmp_path.iterdir()}, (tmp_path / "kept.db").read_bytes()
    code, text, _ = asked()
    assert (code, text.splitlines()[0]) == (0, f"no agent runs in {tmp_path}")
    assert f"{tmp_path}/kept.db: collected 1800 = sent 148 + rejected 2 (odd 2) + dropped 0 + spooled 1650\n" in text
    assert "\nkept: 1,650 points wait (" in text
    assert ") from 2024-11-19T07:09:10Z (" in text
    assert " ago) to 2024-11-19T07:36:39Z for namespace=Trial\\x1b[2J\n" in text
    assert ({*tmp_path.iterdir()}, (tmp_path / "kept.db").read_bytes()) == before
    spool.close()


def test_a_running_agent_keeps_its_spool_and_repair_is_refused(asked, tmp_path):
    with closing(kept(tmp_path / "kept.db")) as spool:
        code, _, error = asked("--repair")
        assert (code, "is in use by another agent: stop it" in error) == (2, True)
        spool.append([LOAD.point(AT, 7.0)])
        assert not spool.file.faults
    assert {path.suffix for path in tmp_path.iterdir()} == {".db", ".lock"}


def test_a_folder_without_a_spool_and_without_an_agent_gives_1(asked):
    code, text, error = asked()
    assert (code, text) == (1, "")
    assert "no agent has made it" in error


def test_a_database_of_another_program_is_refused_and_stays(asked, tmp_path):
    change(tmp_path / "theirs.db", "CREATE TABLE user (name)")
    assert "it is a database of another program" in asked("--repair")[2]
    assert {path.suffix for path in tmp_path.iterdir()} == {".db", ".lock"}


ROTS = "UPDATE chunk SET body = zeroblob(length(body)) WHERE key = 4"


@pytest.mark.parametrize(
    ("damage", "says", "gone"),
    [
        (ROTS, "chunk 4: its checksum is wrong; 200 points until 2024-11-19T07:23:19Z", 4),
        ("UPDATE chunk SET points = 0 WHERE key = 4", "chunk 4: its checksum is wrong", 4),
        ("UPDATE chunk SET destination = NULL WHERE key = 8", "chunk 8: its checksum is wrong", 8),
        ("DELETE FROM chunk WHERE key = 0", "the ledger: it counts 200 points that no chunk has", 0),
    ],
)
def test_damage_is_named_and_repair_keeps_the_rest_and_the_damaged_file(asked, tmp_path, damage, says, gone):
    path = tmp_path / "kept.db"
    kept(path).close()
    change(path, damage)
    code, text, _ = asked()
    assert (code, f"damaged: {path}, {says}" in text) == (1, True)
    assert "kept: 200 points are lost; stop the agent, then use --repair\n" in text
    before = path.read_bytes()
    code, text, _ = asked("--repair")
    (aside,) = tmp_path.glob("kept.damaged-*Z")
    assert code == 0
    assert f"kept: 200 points are lost; the damaged file is {aside}, and a new one has the rest" in text
    assert aside.read_bytes() == before
    assert asked()[0] == 0
    with closing(Spool("kept", path, destination=WHERE)) as spool:
        assert (spool.ledger.balance(), spool.ledger.dropped["unreadable"]) == (0, 200)
        assert drain(spool, 100) == [n for n in range(1800) if n // 200 != gone]


def test_a_page_that_rots_costs_its_own_chunks_alone(tmp_path):
    path = tmp_path / "kept.db"
    kept(path, n=30, each=20).close()
    data, lost = path.read_bytes(), []
    for page in range(0, len(data), PAGE):
        path.write_bytes(data[:page] + b"\xa5" * PAGE + data[page + PAGE :])
        found = repair(path)
        with closing(Spool("kept", path, destination=WHERE)) as spool:
            assert (spool.ledger.balance(), spool.file.faults) == (0, {})
            lost.append(30 - len(drain(spool, 20)) // 20)
        assert found.damaged
        assert bool(lost[-1]) >= (found.ledger.balance() > 0)
        assert ("the loss is not known" in found.lines()[-1]) >= (page == 0)
    assert sorted(lost)[-3] < 10, "all but the file's head and the root of its table"


def test_a_link_that_waits_for_root_is_not_followed(tmp_path, monkeypatch):
    path, calls = tmp_path / "kept.db", []
    kept(path).close()
    change(path, ROTS)
    (tmp_path / "theirs").touch()
    (tmp_path / "kept.repaired").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="is a symbolic link, which is not followed"):
        repair(path)
    assert (tmp_path / "theirs").read_bytes() == b""
    (tmp_path / "kept.repaired").unlink()
    monkeypatch.setattr(os, "chown", lambda *words, **how: calls.append((words[0].name, how)))
    assert repair(path).aside
    assert calls == [("kept.repaired", {"follow_symlinks": False})]


@pytest.mark.parametrize("step", ["add", "shrink"])
def test_a_disk_that_takes_nothing_damages_nothing_and_nothing_is_renamed(tmp_path, monkeypatch, step):
    path = tmp_path / "kept.db"
    kept(path).close()
    change(path, ROTS)

    def full(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, step, full)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            repair(path)
    assert {file.suffix for file in tmp_path.iterdir()} == {".db", ".lock"}
    assert repair(path).aside
    assert {file.suffix.partition("-")[0] for file in tmp_path.iterdir()} == {".db", ".lock", ".damaged"}
