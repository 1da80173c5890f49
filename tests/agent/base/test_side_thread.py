"""The side thread gives each guest its turns, whatever happens to the others."""

import os

import pytest

from chipwatch.base.side_thread import SideThread

LONG = 3600.0


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_guest_has_a_turn_now_after_its_pause_and_when_its_file_can_be_read(pipe, until):
    side, turns, seen = SideThread(), [], []
    side.add(lambda: turns.append(1) or 0.001)
    until(lambda: len(turns) > 2)
    side.add(lambda: os.set_blocking(pipe[0], False) or seen.append(read(pipe[0])), pipe[0])
    until(lambda: seen == [b""])
    os.write(pipe[1], b"x")
    until(lambda: seen == [b"", b"x"])


def read(file):
    try:
        return os.read(file, 10)
    except BlockingIOError:
        return b""


def test_a_guest_that_raises_has_no_further_turn_and_the_others_go_on(pipe, until, caplog):
    side, turns = SideThread(), []
    os.write(pipe[1], b"x")
    side.add(lambda: turns.append("bad") or 1 / 0, pipe[0])
    side.add(lambda: turns.append("good") or 0.001)
    until(lambda: turns.count("good") > 3)
    assert turns.count("bad") == 1
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


def test_a_guest_that_was_removed_has_no_further_turn(pipe, until):
    side, turns = SideThread(), []

    def removed():
        turns.append(1)
        side.remove(removed)
        return 0.0

    side.add(removed, pipe[0])
    until(lambda: turns)
    os.write(pipe[1], b"x")
    others = []
    side.add(lambda: others.append(1) or 0.001)
    until(lambda: len(others) > 3)
    side.remove(removed)
    assert turns == [1]
    side.add(lambda: turns.append(2), pipe[0])  # the file is free for another guest
    until(lambda: 2 in turns)
