"""Tools that answer and end."""

import fcntl
import sys
import termios
import time

import pytest
from tests.doubles.program import gone
from tests.load import seconds_since

from chipwatch.host import supervised_process as limits
from chipwatch.host.supervised_process import OneShot, ProgramOutput, QueryFailed


@pytest.fixture
def tool(script):
    """A script that is run once and again."""

    def make(body, *, interval=15.0, timeout=10.0):
        script.write(body)
        script.oneshot = OneShot(interval, timeout)
        return script.oneshot

    script.make, script.oneshot = make, None
    script.poll = lambda now=0.0, **more: script.oneshot.poll([script.path, "-x"], now, **more)
    yield script
    if script.oneshot:
        script.oneshot.close()


def test_the_output_is_complete_and_returned_once(tool, until):
    tool.make("seq 3; echo; printf end")
    assert until(tool.poll) == ProgramOutput(b"1\n2\n3\n\nend", "")
    assert tool.poll() is None
    assert tool.starts() == 1


def test_the_next_run_begins_after_the_interval_or_at_once_if_asked_for(tool, until):
    tool.make("echo 1", interval=15.0)
    until(lambda: tool.poll(100.0))
    assert tool.poll(114.9) is None
    assert tool.oneshot._process is None
    tool.poll(115.0)
    until(lambda: tool.poll(115.0))
    assert tool.starts() == 2
    tool.oneshot.run_now()
    until(lambda: tool.poll(115.0))
    assert tool.starts() == 3


def test_without_leave_to_start_a_run_is_read_but_none_is_started(tool, until):
    tool.make("echo 1")
    assert tool.poll(start=False) is None
    assert tool.oneshot._process is None
    tool.poll()
    assert until(lambda: tool.poll(start=False)).data == b"1\n"


def test_the_answer_has_the_exit_code_and_the_last_line_of_standard_error(tool, until):
    tool.make("echo half; echo 'no device 7' >&2; exit 3")
    assert until(tool.poll) == ProgramOutput(b"half\n", " (ended with 3) (it said: no device N)")


def test_poll_never_waits_and_a_run_that_hangs_is_ended_and_reported_once(tool, until):
    tool.make("exec sleep 60", timeout=10.0)
    tool.poll(0.0)
    until(tool.starts)
    begun = time.monotonic()
    for now in range(11):
        assert tool.poll(float(now)) is None
    with pytest.raises(QueryFailed, match="tool gave no answer in 10 s"):
        tool.poll(10.1)
    assert tool.poll(10.2, start=False) is None
    assert seconds_since(begun) < 5
    assert until(lambda: tool.poll(10.3, start=False) or tool.oneshot._process is None)
    assert tool.starts() == 1


def test_a_run_that_ignores_sigterm_is_killed_before_the_next_one_begins(tool, until):
    tool.make("trap '' TERM; echo up; while :; do sleep 0.01; done", interval=1.0, timeout=1.0)
    tool.poll(0.0)
    until(lambda: tool.poll(0.5) or tool.oneshot._data)
    pid = tool.oneshot._process.child.pid
    with pytest.raises(QueryFailed):
        tool.poll(5.0)
    assert tool.poll(5.5) is None
    assert not gone(pid)
    until(lambda: tool.poll(6.5, start=False) or tool.oneshot._process is None)
    assert gone(pid)
    assert tool.starts() == 1


def test_a_run_that_prints_too_much_is_ended_and_reported(tool, until):
    tool.make("exec cat /dev/zero")

    def told():
        try:
            return tool.poll()
        except QueryFailed as error:
            return str(error)

    assert until(told) == "tool printed too much"
    assert len(tool.oneshot._data) <= limits.MAX_READ + limits.CHUNK


def test_a_run_that_waited_with_a_full_pipe_is_not_late(tool, until):
    tool.make(f"exec head -c {1 << 20} /dev/zero", timeout=1.0)
    tool.poll(0.0)
    pid, pipe = tool.oneshot._process.child.pid, tool.oneshot._process.child.stdout

    def waits_or_ended():
        held = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
        return int.from_bytes(held, sys.byteorder) >= limits.CHUNK or gone(pid)

    now, answer = 0.0, None
    while answer is None:
        until(waits_or_ended)
        now += 60.0  # a tick a minute
        answer = tool.poll(now, start=False)
    assert len(answer.data) == 1 << 20


def test_a_program_that_cannot_be_started_is_reported_at_each_interval(tool, tmp_path):
    oneshot = OneShot(15.0, 10.0)
    with pytest.raises(QueryFailed, match="nothing cannot be started: No such file"):
        oneshot.poll([tmp_path / "nothing"], 0.0)
    assert oneshot.poll([tmp_path / "nothing"], 14.0) is None


def test_closing_kills_it_with_its_own_children_and_leaves_no_file_open(tool, until, newly_open):
    tool.make("sleep 60 & echo $!; wait")
    tool.poll()
    until(lambda: tool.poll() or tool.oneshot._data)
    pids = tool.oneshot._process.child.pid, int(tool.oneshot._data)
    tool.oneshot.close()
    tool.oneshot.close()
    assert until(lambda: all(gone(pid) for pid in pids))
    assert not newly_open()
