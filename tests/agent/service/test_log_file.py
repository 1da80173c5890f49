import logging

import pytest

from chipwatch.service import log_file as file
from chipwatch.service.log_file import LogFile, to_file

log = logging.getLogger("chipwatch.test")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state/command.log"


def test_a_run_with_nothing_to_say_makes_no_file(path):
    logs = to_file("warning", path)
    log.info("all is well")
    assert not path.parent.exists()
    assert logs.trouble(only_errors=False) == []


def test_warnings_and_errors_are_in_a_file_for_its_owner_alone_and_counted(path, capfd):
    logs = to_file("warning", path)
    log.warning("odd")
    log.error("lost")
    log.error("lost again")
    assert [line.split(" ", 1)[1] for line in path.read_text().splitlines()] == [
        "chipwatch: odd", "chipwatch: lost", "chipwatch: lost again"
    ]  # fmt: skip
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert logs.trouble(only_errors=False) == [f"chipwatch: 2 errors and 1 warning logged in {path}"]
    assert logs.trouble(only_errors=True) == [f"chipwatch: 2 errors logged in {path}"]
    assert capfd.readouterr() == ("", "")


def test_a_warning_alone_is_passed_over_where_only_errors_count(path):
    logs = to_file("warning", path)
    log.warning("odd")
    assert logs.trouble(only_errors=True) == []


def test_what_cannot_be_written_is_shown_at_the_end(tmp_path):
    (tmp_path / "state").write_text("no folder")
    logs = to_file("warning", tmp_path / "state/command.log")
    for n in range(file.MAX_LINES + 5):
        log.getChild(str(n)).error("lost %d", n)
    first, *lines = logs.trouble(only_errors=False)
    assert first == f"chipwatch: 25 errors logged in {tmp_path}/state/command.log, which cannot be written:"
    assert len(lines) == file.MAX_LINES
    assert lines[-1].endswith("chipwatch: lost 24")


def test_the_file_and_the_one_before_it_are_limited(path, monkeypatch):
    monkeypatch.setattr(file, "MAX_BYTES", 100)
    made = LogFile(path)
    for n in range(50):
        made.write(f"record {n:02}\n")
    made.close()
    before = path.with_name("command.log.1")
    assert (before.read_text() + path.read_text()).endswith("record 48\nrecord 49\n")
    assert max(path.stat().st_size, before.stat().st_size) <= 100
    assert {*path.parent.iterdir()} == {path, before}


def test_two_processes_may_share_the_file_and_neither_rotates_what_the_other_has_begun(path, monkeypatch):
    monkeypatch.setattr(file, "MAX_BYTES", 100)
    one, other = LogFile(path), LogFile(path)
    other.write("of the other\n")
    for n in range(9):
        one.write(f"record {n:02}\n")  # the last one begins a new file
    other.write("the last record\n")
    assert path.read_text() == "record 08\nthe last record\n"
    one.close()
    other.close()


def test_a_link_in_the_place_of_the_file_is_not_followed(path, tmp_path):
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    made = LogFile(path)
    made.write("record\n")
    assert [*made.unwritten] == ["record\n"]
    assert not (tmp_path / "elsewhere").exists()
