import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.program import gone

from chipwatch.contract.errors import Unavailable
from chipwatch.host import supervised_process as module
from chipwatch.host.supervised_process import CHUNK, MAX_LINE, LineSplitter, SupervisedProcess, find_program, quoted


@pytest.fixture
def tool(script):
    """A script as a child, which is ended after the test."""

    def make(body, *, timeout=15.0):
        script.write(body)
        script.child = SupervisedProcess([script.path, "-x"], timeout=timeout)
        return script.child

    script.make, script.child = make, None
    yield script
    if script.child:
        script.child.close()


def gather(child, until, number, now=0.0):
    """Return so many lines, as they come."""
    lines = []

    def enough():
        lines.extend(child.lines(now))
        return len(lines) >= number

    until(enough)
    return lines


def test_lines_are_returned_as_printed_without_blank_ones(tool, until):
    child = tool.make("printf 'one\\n\\ntwo\\nthr'; exec sleep 60")
    child.start(0.0)
    assert gather(child, until, 2) == [b"one", b"two"]
    assert child.lines(0.0) == []
    assert child.problems() == []


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 300), max_size=6))
def test_lines_are_the_same_wherever_the_pipe_cuts(pieces, cuts):
    data = b"\n".join(pieces)
    child = SupervisedProcess(["tool"], timeout=1.0)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    lines = [line for a, b in itertools.pairwise(ends) for line in child._splitter.split(data[a:b])]
    assert lines == [line for line in data.split(b"\n")[:-1] if line.strip()]


def test_a_line_that_is_too_long_is_skipped_and_the_next_one_read(tool, until):
    child = tool.make(f"head -c {3 * MAX_LINE} /dev/zero | tr '\\0' x; echo; echo next; exec sleep 60")
    child.start(0.0)
    assert gather(child, until, 1) == [b"next"]
    assert child.problems() == ["tool: a line above 1 MiB was skipped"]
    assert child._splitter.take_rest() == b""


def test_much_output_is_read_in_parts(tool, until, monkeypatch):
    child = tool.make("exec yes")
    child.max_read = CHUNK
    child.start(0.0)
    assert len(gather(child, until, 1)) < 1 << 17


def test_a_program_that_ends_is_restarted_with_growing_back_off(tool, until):
    child = tool.make("echo 'no device 7' >&2; exit 3")
    child.start(0.0)
    why = "tool ended with 3; it is started again later (it said: no device N)"
    until(lambda: child.lines(0.0) or child.problems() == [why])
    assert child.failures == 1
    for now, starts in ((1.9, 1), (2.0, 2)):
        assert child.lines(now) == []
        assert tool.starts() <= starts
    until(lambda: child.lines(2.0) or child.failures == 2)
    assert tool.starts() == 2
    child.problems()
    assert child.lines(5.9) == []
    assert child.problems() == [why]
    until(lambda: child.lines(6.0) or child.failures == 3)
    assert tool.starts() == 3


def test_the_back_off_has_a_limit(tool):
    child = tool.make("exit 1")
    child.failures = 5000
    child._fail(0.0, "ended")
    assert child._start_at == 300.0


def test_a_program_that_worked_for_a_while_is_restarted_soon(tool, until):
    child = tool.make("seq 10; exit 1")
    child.failures = 6
    child.start(0.0)
    gather(child, until, 10)
    until(lambda: child.lines(0.0) or child._process is None)
    assert child._start_at == 2.0


def test_the_last_lines_are_read_before_the_end_is_noted(tool, until):
    child = tool.make("seq 10000; exit 0")
    child.start(0.0)
    assert gather(child, until, 10000)[-1] == b"10000"


def test_a_program_that_is_silent_for_too_long_is_restarted(tool, until):
    child = tool.make("echo ready >&2; exec sleep 60", timeout=15.0)
    child.start(0.0)
    pid = child._process.child.pid
    until(lambda: child.lines(24.9) or child._process._tail)
    assert child.problems() == []
    assert child.lines(25.0) == []
    assert child.problems() == ["tool prints nothing; it is started again later (it said: ready)"]
    assert gone(pid)


def test_a_program_that_printed_before_gets_only_the_timeout(tool, until):
    child = tool.make("echo up; exec sleep 60", timeout=15.0)
    child.start(0.0)
    assert gather(child, until, 1, 20.0) == [b"up"]
    assert (child.lines(34.9), child.problems()) == ([], [])
    assert child.lines(35.0) == []
    assert child.problems() == ["tool prints nothing; it is started again later"]


def test_a_program_that_closes_its_output_and_goes_on_is_ended(tool, until, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.5)
    child = tool.make("exec >&- 2>&-; exec sleep 60")
    child.start(0.0)
    until(lambda: child.lines(0.0) or child._process is None)
    assert child.problems() == ["tool closed its output; it is started again later"]


def test_the_end_is_noticed_while_a_child_of_the_program_holds_the_pipe(tool, until):
    child = tool.make("sleep 60 & echo last; exit 1")
    child.start(0.0)
    group = child._process.child.pid
    assert gather(child, until, 1) == [b"last"]
    until(lambda: child.lines(0.0) or child._process is None)
    os.killpg(group, 9)


def test_a_sigterm_from_outside_is_reported_at_the_next_tick_only(tool, until):
    child = tool.make("exec sleep 60")
    child.start(0.0)
    child._process.child.terminate()
    until(lambda: child.lines(0.0) or child._process is None)
    assert child.problems() == []
    child.lines(1.0)
    assert child.problems() == ["tool was ended by signal 15; it is started again later"]


def test_a_program_that_ignores_sigterm_is_killed(tool, until, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.5)
    child = tool.make("trap '' TERM; echo up; while :; do sleep 0.01; done")
    child.start(0.0)
    gather(child, until, 1)
    pid = child._process.child.pid
    child.close()
    assert until(lambda: gone(pid))
    child.close()


DEAF = """
import sys, threading, time
from chipwatch.host.supervised_process import SupervisedProcess
child = SupervisedProcess([sys.argv[1]], timeout=60)
child.open(0.0)
while not (lines := child.lines(0.0)):
    time.sleep(0.01)
print(lines[0].decode())
threading.Thread(target=child.close, daemon=True).start()
time.sleep(0.1)
"""


def test_a_program_that_ignores_sigterm_does_not_outlive_the_agent(tool, until):
    tool.make("trap '' TERM; echo $$; while :; do sleep 0.1; done")
    ran = subprocess.run([sys.executable, "-c", DEAF, tool.path], capture_output=True, text=True, check=True)
    assert until(lambda: gone(int(ran.stdout)))


def test_an_unfinished_line_of_a_continuous_program_is_dropped(tool, until):
    child = tool.make("printf 'a\\n12'")
    child.start(0.0)
    assert gather(child, until, 1) == [b"a"]
    until(lambda: child.lines(0.0) or child._process is None)
    assert child.problems() == ["tool ended with 0; it is started again later"]


def test_a_program_that_was_removed_is_reported_and_tried_again(tool, until):
    child = tool.make("exit 1")
    child.start(0.0)
    until(lambda: child.lines(0.0) or child._process is None)
    tool.path.unlink()
    child.problems()
    assert child.lines(2.0) == []
    assert child.problems() == ["tool cannot be started: No such file or directory; it is started again later"]


def test_standard_error_is_read_and_bounded(tool, until):
    child = tool.make(f"head -c {1 << 20} /dev/zero | tr '\\0' x >&2; echo done; exec sleep 60")
    child.start(0.0)
    assert gather(child, until, 1) == [b"done"]
    assert len(child._process._tail) <= module.MAX_STDERR


def test_no_file_stays_open_after_closing(tool, until, newly_open):
    child = tool.make("echo 1; exec sleep 60")
    child.start(0.0)
    gather(child, until, 1)
    child.close()
    assert not newly_open()


def test_a_program_is_found_in_the_path_or_at_a_known_place(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(shutil.which("sh")).parent))
    assert find_program("sh", None).name == "sh"
    assert find_program("macmon", None, Path(shutil.which("sh"))).name == "sh"
    assert find_program("sh", tmp_path) == tmp_path
    with pytest.raises(Unavailable, match=f"{tmp_path}/no is absent"):
        find_program("sh", tmp_path / "no")
    with pytest.raises(Unavailable, match="no nothing: neither in PATH nor /a nor /b"):
        find_program("nothing", None, Path("/a"), Path("/b"))


def test_foreign_text_is_quoted_on_one_line_and_without_numbers():
    assert quoted(b"pid 12:\n\x1b[31m  0x7f \xff") == "pid N: [Nm NxNf \ufffd"
    assert quoted(b"port 22: token=abcd1234", exact=True) == "port 22: token=..."
    assert len(quoted(b"x" * 10_000)) == 120


def test_a_line_of_exactly_the_largest_size_is_kept_and_a_longer_one_skipped():
    reports, line = [], b"x" * (1 << 20)
    splitter = LineSplitter(reports.append, len(line))
    assert list(splitter.split(line + b"\n" + line + b"y\nnext\n")) == [line, b"next"]
    assert reports == ["a line above 1 MiB was skipped"]
