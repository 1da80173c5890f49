import os
import stat

import pytest

from chipwatch.host.failures import Failure, note
from chipwatch.host.state_file import read_state, write_state


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("other"), lambda path: path.write_text("cut")]
)
def test_whatever_lies_where_the_new_file_is_made_the_state_is_replaced_by_a_plain_file(tmp_path, make):
    make(tmp_path / "state.new")
    write_state(tmp_path / "state", b"2")
    assert read_state(tmp_path / "state", 9) == b"2"
    assert stat.filemode((tmp_path / "state").lstat().st_mode) == "-rw-------"
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_only_failures_wait_for_the_disk(tmp_path, monkeypatch):
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *mode: (opened.append(flags), real(path, flags, *mode))[1])
    write_state(tmp_path / "state", b"")
    note(tmp_path / "failures.json", Failure(1, "gpu-lost", "gpu 6 is lost"))
    assert [flags & os.O_DSYNC == os.O_DSYNC for flags in opened if flags & os.O_EXCL] == [False, True]
