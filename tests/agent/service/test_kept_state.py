"""The state of processors, over a restart."""

import os
import stat

import pytest

from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Needs
from chipwatch.contract.processor import Processor
from chipwatch.engine.derivation import Derivation
from chipwatch.service.life import keep_state


class Keeps(Processor):
    """Keeps a fixed state."""

    needs = Needs(state=True)

    def __init__(self, kept=b"new"):
        self.kept = kept

    def derive(self, tick, at, facts):
        return ()

    def saved(self):
        return self.kept

    def restore(self, saved):
        if saved == b"bad":
            raise ValueError("it is bad")
        self.kept = saved


def derivation(processor):
    return Derivation("jobs", processor, Level.BASIC)


def test_what_was_saved_is_restored(tmp_path):
    first = derivation(Keeps(b"old"))
    keep_state(tmp_path, [first])
    first.run([], 1)
    later = Keeps()
    keep_state(tmp_path, [derivation(later)])
    assert later.kept == b"old"
    assert stat.S_IMODE((tmp_path / "jobs.json").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["jobs.json"]  # noqa: PTH208  # no other file is left


def test_why_it_is_not_saved_is_logged_once(tmp_path, caplog):
    counting = derivation(Keeps())
    keep_state(tmp_path, [counting])
    (tmp_path / "jobs.json").mkdir()
    for at in range(3):
        counting.run([], at)
    (tmp_path / "jobs.json").rmdir()
    counting.run([], 4)
    (tmp_path / "jobs.json").unlink()
    (tmp_path / "jobs.json").mkdir()
    counting.run([], 5)
    texts = [record.getMessage() for record in caplog.records if "is not saved" in record.getMessage()]
    assert texts == [f"{tmp_path}/jobs.json is not saved: Is a directory"] * 2


def test_it_is_saved_before_the_points_of_a_tick_are_sent(tmp_path):
    class Counts(Keeps):
        def derive(self, tick, at, facts):
            self.kept = b"%d" % at
            return ()

    counting = derivation(Counts())
    keep_state(tmp_path, [counting])
    for at in (1, 2):
        assert counting.run([], at) == []
        assert (tmp_path / "jobs.json").read_bytes() == b"%d" % at


def test_a_state_that_cannot_be_replaced_goes_since_it_is_older_than_what_was_sent(tmp_path):
    processor = Keeps(b"1")
    keeping = derivation(processor)
    keep_state(tmp_path, [keeping])
    keeping.run([], 1)
    (tmp_path / "jobs.json.new").mkdir()
    keeping.run([], 2)
    assert not (tmp_path / "jobs.json").exists()
    (tmp_path / "jobs.json.new").rmdir()
    keeping.run([], 3)
    assert (tmp_path / "jobs.json").read_bytes() == b"1"


def test_records_are_added_in_the_folder(tmp_path):
    kept = derivation(Keeps())
    keep_state(tmp_path, [kept])
    kept.append([{"job": "41337"}])
    assert (tmp_path / "ended-jobs.jsonl").read_text() == '{"job":"41337"}\n'


@pytest.mark.parametrize("kind", ["bad", "link", "folder"])
def test_a_file_that_cannot_be_read_is_left_out(tmp_path, kind, caplog):
    path = tmp_path / "jobs.json"
    if kind == "bad":
        path.write_bytes(b"bad")
    elif kind == "link":
        (tmp_path / "other").write_bytes(b"theirs")
        path.symlink_to(tmp_path / "other")
    else:
        path.mkdir()
    processor = Keeps()
    keep_state(tmp_path, [derivation(processor)])
    assert processor.kept == b"new"
    assert "begins without" in caplog.text


def test_a_folder_that_is_gone_costs_only_the_state(tmp_path):
    keeping = derivation(Keeps())
    keep_state(tmp_path / "gone", [keeping])
    assert keeping.run([], 1) == []
    assert not (tmp_path / "gone").exists()


def test_a_processor_that_keeps_nothing_writes_nothing(tmp_path):
    keeping = derivation(Keeps(None))
    keep_state(tmp_path, [keeping])
    keeping.run([], 1)
    assert not any(tmp_path.iterdir())
