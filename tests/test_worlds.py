"""The suite says the same wherever it runs: each test makes the world that it needs."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REPORT = """
import signal
ignored = {n.name for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN}
print(*sorted(ignored), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
"""


def again(folder, *words, before=(), **options):
    """Run tests in a new process; return what subprocess.run returns. `before`: words that run a command elsewhere."""
    words = (*words, "--basetemp", str(folder / "tests"))  # else pytest first removes the files of earlier runs
    command = [*before, sys.executable, "-m", "pytest", "-n", "0", "--quiet", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, **options)


def test_a_process_that_a_test_starts_takes_every_signal():
    done = subprocess.run([sys.executable, "-c", REPORT], capture_output=True, text=True, check=True)
    assert done.stdout == "SIGPIPE SIGXFSZ []\n"  # which Python itself ignores


def test_where_signals_are_ignored_the_tests_of_signals_pass(tmp_path):
    def ignore():
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))

    dispositions = f"{__file__}::{test_a_process_that_a_test_starts_takes_every_signal.__name__}"
    done = again(
        tmp_path,
        dispositions,
        "tests/agent/commands/test_run.py",
        "-k",
        "every_signal or second_signal",
        preexec_fn=ignore,
    )
    assert done.returncode == 0, done.stdout
    assert " skipped" not in done.stdout


DRIVER = """
set -e
mount -t tmpfs -o mode=755 none "$1"
for name in null zero full random urandom; do touch "$1/$name"; mount --bind "/dev/$name" "$1/$name"; done
mkdir "$1/pts" "$1/shm"
mount --rbind /dev/pts "$1/pts"
ln -s pts/ptmx "$1/ptmx"
ln -s /proc/self/fd "$1/fd"
touch "$1/nvidiactl" "$1/nvidia0"
mount --rbind "$1" /dev
shift
exec "$@"
"""
"""A shell script that runs a command where /dev has the files of an NVIDIA driver."""


def test_where_an_nvidia_driver_is_the_tests_of_its_absence_pass(tmp_path):
    (tmp_path / "dev").mkdir()
    beside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", DRIVER, "sh", str(tmp_path / "dev"))
    try:
        tried = subprocess.run([*beside, "test", "-e", "/dev/nvidiactl"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if tried.returncode:
        pytest.skip(f"no namespace with files of its own can be made here: {tried.stderr.strip()}")
    tests = ("tests/e2e/test_wanted.py", "tests/e2e/test_loaded.py", "tests/agent/collectors/nvidia/test_program.py")
    done = again(tmp_path, *tests, "-k", "asked_for_and_is_not_there or prints_loads or comes_later", before=beside)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
