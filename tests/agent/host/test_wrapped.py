import os
import signal
import subprocess
import sys
import threading

import pytest

from chipwatch.host import wrapped
from chipwatch.host.wrapped import FORWARDED, NotStarted, WrappedCommand, is_first_rank

LONG = 60.0


def python(program: str) -> WrappedCommand:
    return WrappedCommand([sys.executable, "-c", program])


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    monkeypatch.setattr(wrapped, "_from_terminal", lambda: False)


@pytest.fixture
def ready(tmp_path, until):
    """A place where a child says that it has set up its signals."""
    flag = tmp_path / "ready"

    def wait():
        until(flag.exists)

    wait.flag = flag
    return wait


def child_with_handler(ready, number, then: str) -> WrappedCommand:
    return python(
        "import pathlib, signal, sys, time\n"
        "def handler(number, frame):\n"
        f"    {then}\n"
        f"signal.signal({int(number)}, handler)\n"
        f"pathlib.Path({str(ready.flag)!r}).touch()\n"
        "for _ in range(3000):  # one long sleep would miss a signal that comes just before it\n"
        "    time.sleep(0.02)\n"
    )


@pytest.mark.parametrize(
    ("end", "code"),
    [
        *((f"raise SystemExit({code})", code) for code in (0, 1, 42, 255)),
        *((f"import os; os.kill(os.getpid(), {number})", 128 + number) for number in (9, 11, 15)),
    ],
)
def test_the_exit_code_is_the_childs_or_128_and_the_signal_that_ended_it(end, code):
    assert python(end).code() == code


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("nothing", 127, "command not found"),
        ("data", 126, "Permission denied"),
        ("", 126, "Permission denied"),
        ("script", 126, "the program that its first line names was not found"),
    ],
)
def test_a_command_that_is_not_there_is_127_and_one_that_cannot_be_executed_126(tmp_path, name, code, says):
    (tmp_path / "data").write_text("no program")
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    with pytest.raises(NotStarted) as caught:
        WrappedCommand([str(tmp_path / name)])
    assert (caught.value.code, str(caught.value)) == (code, f"{tmp_path / name}: {says}")


@pytest.mark.parametrize(
    ("env", "is_first"),
    [({}, True), ({"SLURM_LOCALID": "0"}, True), ({"LOCAL_RANK": "1"}, False), ({"SLURM_LOCALID": "7"}, False),
     ({"SLURM_LOCALID": "0", "LOCAL_RANK": "2"}, False)],
)  # fmt: skip
def test_the_first_process_of_a_job_on_a_machine_is_the_one_that_has_no_other_number(env, is_first):
    assert is_first_rank(env) is is_first


def test_the_counts_of_the_system_are_known_after_the_end(tmp_path):
    out = tmp_path / "out"
    child = python(
        f"import os; f = open({str(out)!r}, 'wb'); f.write(bytes(3_000_000)); f.flush(); os.fsync(f.fileno())"
    )
    assert (child.has_ended, child.cpu_seconds(), child.largest_process(), child.storage_bytes()) == (
        False,
        0,
        0,
        (0, 0),
    )
    assert child.code() == 0
    assert child.has_ended
    assert child.largest_process() == 0  # no more than this process
    assert child.seconds > child.cpu_seconds() / 4 > 0
    is_linux = sys.platform == "linux"
    assert child.storage_bytes()[1] == (512 * child._usage.ru_oublock if is_linux else 0)
    if child.storage_bytes()[1]:  # none where /tmp is in memory
        assert 3_000_000 <= child.storage_bytes()[1] < 10_000_000


def test_words_reach_the_child_as_they_are_and_no_shell_reads_them(tmp_path):
    out = tmp_path / "out"
    program = f"import pathlib, sys; pathlib.Path({str(out)!r}).write_text(repr(sys.argv[1:]))"
    words = ["a b", "$HOME", ";", "*", "", "'"]
    assert WrappedCommand([sys.executable, "-c", program, *words]).code() == 0
    assert out.read_text() == repr(words)


def test_another_thread_reports_the_end_of_the_child():
    told = threading.Event()
    threads = []

    def call():
        threads.append(threading.current_thread())
        told.set()

    python("pass").on_end(call)
    assert told.wait(LONG)
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon


@pytest.mark.parametrize("is_asked_first", [False, True])
def test_the_end_is_reported_whether_the_code_is_asked_before_or_meanwhile(is_asked_first):
    child, told = python("raise SystemExit(3)"), threading.Event()
    for step in (child.code, lambda: child.on_end(told.set))[:: 1 if is_asked_first else -1]:
        assert step() in (3, None)
    assert told.wait(LONG)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_a_signal_is_passed_on(ready, number):
    child = child_with_handler(ready, number, "sys.exit(number + 50)")
    ready()
    child.forward(number, None)
    assert child.code() == number + 50


def test_every_signal_that_users_send_is_passed_on():
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2} <= set(
        FORWARDED
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_what_the_terminal_has_sent_to_the_child_itself_is_not_sent_twice(ready, number, monkeypatch):
    monkeypatch.setattr(wrapped, "_from_terminal", lambda: True)
    child = child_with_handler(ready, number, "sys.exit(9)")
    ready()
    child.forward(number, None)
    child.forward(signal.SIGTERM, None)
    assert child.code() == 128 + signal.SIGTERM


def test_the_main_thread_never_waits_so_long_that_a_handler_of_a_signal_is_late(monkeypatch):
    waits, wait = [], os.wait4
    monkeypatch.setattr(os, "wait4", lambda pid, options: waits.append(options) or wait(pid, options))
    assert WrappedCommand(["sleep", "0.2"]).code() == 0
    assert {*waits} == {os.WNOHANG}


def test_a_signal_after_the_end_goes_nowhere():
    child = python("pass")
    child.code()
    child.forward(signal.SIGTERM, None)


def test_only_in_the_foreground_of_a_terminal_signals_come_from_it():
    program = """
import fcntl, pty, termios
from chipwatch.host.wrapped import _from_terminal
print(_from_terminal())
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
print(_from_terminal())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, start_new_session=True, check=True
    )
    assert done.stdout.split() == ["False", "True"]


def test_a_line_for_the_user_reaches_standard_error_while_libraries_do_not(capfd):
    with WrappedCommand(["true"]) as command:
        os.write(2, b"noise")
        command.tell("chipwatch: news")
    assert capfd.readouterr().err == "chipwatch: news\n"
