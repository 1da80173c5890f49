"""The state of processors, over a restart."""

from __future__ import annotations

import os
import stat

import pytest

from chipwatch.contract.datapoint import Level
from chipwatch.contract.processor import Processor
from chipwatch.pipeline.sampler import Derivation
from chipwatch.runtime import life
from chipwatch.runtime.life import KeptState


class Keeps(Processor):
    """Keeps a fixed state."""

    def __init__(self, kept=b"new"):
        self.kept = kept

    def derive(self, tick, at):
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
    KeptState(tmp_path, [derivation(Keeps(b"old"))]).save()
    later = Keeps()
    KeptState(tmp_path, [derivation(later)])
    assert later.kept == b"old"
    assert stat.S_IMODE((tmp_path / "jobs.json").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["jobs.json"]  # noqa: PTH208  # no other file is left


def test_it_is_saved_once_a_minute(tmp_path, monkeypatch):
    processor = Keeps(b"1")
    state = KeptState(tmp_path, [derivation(processor)])
    state.look()
    assert not (tmp_path / "jobs.json").exists()
    monkeypatch.setattr(life, "SAVE_INTERVAL", 0.0)
    state.save()
    processor.kept = b"2"
    state.look()
    assert (tmp_path / "jobs.json").read_bytes() == b"2"


def test_it_is_saved_in_the_tick_that_writes_a_record_so_that_a_kill_writes_no_second_one(tmp_path):
    processor = Keeps(b"1")
    processor.append = None
    state = KeptState(tmp_path, [derivation(processor)])
    processor.append([{"job": "41337"}])
    state.look()
    assert (tmp_path / "jobs.json").read_bytes() == b"1"
    processor.kept = b"2"
    state.look()
    assert (tmp_path / "jobs.json").read_bytes() == b"1"


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
    KeptState(tmp_path, [derivation(processor)])
    assert processor.kept == b"new"
    assert "begins without" in caplog.text


def test_a_folder_that_is_gone_costs_only_the_state(tmp_path):
    state = KeptState(tmp_path / "gone", [derivation(Keeps())])
    state.save()
    assert not (tmp_path / "gone").exists()


def test_a_processor_that_keeps_nothing_writes_nothing(tmp_path):
    KeptState(tmp_path, [derivation(Keeps(None))]).save()
    assert not any(tmp_path.iterdir())
