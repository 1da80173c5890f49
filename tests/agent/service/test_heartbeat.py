import fcntl
import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from chipwatch.base.system import state_folder
from chipwatch.service.heartbeat import MIN_TIMEOUT, NAME, SIZE, Heartbeat, start, tick_timeout
from chipwatch.service.probe import text_of_holder


@pytest.fixture
def alive(tmp_path):
    made = Heartbeat(tmp_path / "state" / NAME, 5.0)
    yield made
    made.close()


def record(tmp_path):
    return json.loads((tmp_path / "state" / NAME).read_bytes())


def test_before_the_first_tick_it_has_no_time(alive, tmp_path):
    assert record(tmp_path) == {"at": None, "late": 15.0, "why": None, "pid": os.getpid()}


def test_a_beat_says_when_and_why_not_ready(alive, tmp_path):
    before = time.monotonic()
    alive.beat("cloudwatch refuses: no such role")
    said = record(tmp_path)
    assert before <= said["at"] <= time.monotonic()
    assert said["why"] == "cloudwatch refuses: no such role"
    alive.beat(None)
    assert record(tmp_path)["why"] is None


@pytest.mark.parametrize("why", ["x" * 10_000, "\N{SNOWMAN}" * 500, "\x00" * 500, '"\\' * 300])
def test_the_file_never_grows_whatever_the_reason(alive, tmp_path, why):
    for _ in range(3):
        alive.beat(why)
        assert (tmp_path / "state" / NAME).stat().st_size == SIZE
    said = record(tmp_path)
    assert said["why"]
    assert why.startswith(said["why"])


def test_a_reason_that_is_not_unicode_is_written_all_the_same(alive, tmp_path):
    alive.beat("no file \udcff")
    assert record(tmp_path)["why"] == "no file ?"


def test_only_its_owner_may_read_it(alive, tmp_path):
    assert stat.S_IMODE((tmp_path / "state" / NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_it_is_held_until_it_is_closed(alive, tmp_path):
    assert text_of_holder(tmp_path / "state" / NAME)
    alive.close()
    alive.close()
    assert text_of_holder(tmp_path / "state" / NAME) is None


def test_one_agent_at_a_time_holds_it(alive, tmp_path):
    with pytest.raises(BlockingIOError):
        Heartbeat(tmp_path / "state" / NAME, 5.0)
    assert start(tmp_path / "state", 5.0) is None
    alive.beat(None)
    assert record(tmp_path)["at"] is not None


def test_a_probe_that_holds_it_for_a_moment_is_waited_for(tmp_path):
    Heartbeat(tmp_path / NAME, 5.0).close()
    file = (tmp_path / NAME).open("rb")
    fcntl.flock(file, fcntl.LOCK_SH)  # until it is closed
    threading.Timer(0.02, file.close).start()
    Heartbeat(tmp_path / NAME, 5.0).close()


def test_a_link_that_somebody_laid_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("x")
    (tmp_path / NAME).symlink_to(target)
    assert start(tmp_path, 5.0) is None
    assert target.read_text() == "x"


def test_the_agent_goes_on_where_the_folder_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert start(tmp_path / "file" / "state", 5.0) is None


def test_a_clock_is_late_after_three_intervals_and_never_before_three_seconds():
    assert tick_timeout(0.1) == tick_timeout(1.0) == MIN_TIMEOUT == 3.0
    assert tick_timeout(60.0) == 180.0


@pytest.mark.parametrize(
    ("spool", "env", "folder"),
    [
        (Path("/s"), {"STATE_DIRECTORY": "/a:/b"}, "/s"),
        (None, {"STATE_DIRECTORY": "/a:/b", "XDG_STATE_HOME": "/x"}, "/a"),
    ],
)
def test_the_folder_is_the_configured_one_else_the_systems(spool, env, folder):
    assert state_folder(spool, env) == Path(folder)


def test_the_folder_of_a_user_is_below_the_home(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    assert state_folder(None, {"XDG_STATE_HOME": "/x"}) == Path("/x/chipwatch")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert state_folder(None, {"XDG_STATE_HOME": "/x"}) == Path("/var/lib/chipwatch")


def test_a_user_without_a_home_has_the_folder_of_the_system(monkeypatch):
    nobody = 4_000_000_000
    monkeypatch.setattr(os, "geteuid", lambda: nobody)
    monkeypatch.setattr(os, "getuid", lambda: nobody)
    monkeypatch.delenv("HOME")
    assert state_folder(None, {}) == Path("/var/lib/chipwatch")
