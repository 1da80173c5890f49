"""Windows and macOS, as far as Linux can show them: without the modules, attributes and files that they lack."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chipwatch.contract import system
from chipwatch.runtime.wrapped import WrappedCommand

ROOT = Path(__file__).parents[2]
ON_LINUX_ONLY = {
    "container", "gaudi", "hardware", "intel", "jobs", "kernel", "nccl", "neuron", "pressure", "rdma", "storage", "tpu",
}  # fmt: skip
TERMINAL = "ModuleNotFoundError('import of termios halted; None in sys.modules')"
HOST = {"cpu.utilization", "memory.used", "disk.used", "disk.read", "network.received"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes away what Linux has")


@pytest.fixture
def run_on(tmp_path):
    """Run chipwatch as if on a platform; return the finished process."""
    (tmp_path / "proc").symlink_to("/proc")

    def run(platform, *words):
        words = ["-P", "-m", "tests.doubles.other_system", platform, str(tmp_path / "proc"), *words]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path), "PYTHONWARNINGS": "ignore",
               "PYTHONPATH": f"{ROOT}:{ROOT}/agent:{ROOT}/sinks", "AWS_EC2_METADATA_DISABLED": "true"}  # fmt: skip
        return subprocess.run(
            [sys.executable, *words], check=False, env=env, capture_output=True, text=True, timeout=120, cwd=tmp_path
        )

    return run


def test_on_windows_every_module_is_imported_but_the_terminal_of_unix(run_on):
    done = run_on("win32")
    assert not done.stderr
    refused = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert {*refused} == {"chipwatch.top.terminal"}
    assert all(reason.startswith(TERMINAL) for reason in refused.values())


def test_on_macos_every_module_is_imported(run_on):
    done = run_on("darwin")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_check_reads_the_host_and_says_of_each_other_collector_why_it_is_absent(run_on, platform):
    done = run_on(platform, "check", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    states = {}
    for name, state, reason in re.findall(r"^collector +(\w+) +(\w+) +(.*)", done.stdout, re.MULTILINE):
        states.setdefault(state, {})[name] = reason
    assert {*states} == {"ok", "absent"}
    assert {*states["ok"]} == {"cpu", "disk", "memory", "network"}
    assert states["absent"].keys() >= ON_LINUX_ONLY | {"amd", "apple", "nvidia"}
    if platform == "win32":
        assert "nvml.dll cannot be loaded" in states["absent"]["nvidia"]


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_one_reading_goes_to_standard_output(run_on, platform):
    done = run_on(platform, "--once", "--interval", "0.2", "--sink", "stdout", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    points = {point["name"]: point["value"] for point in map(json.loads, done.stdout.splitlines())}
    assert points.keys() >= HOST
    assert points["memory.used"] > 0


def test_on_windows_a_command_is_watched_and_its_exit_code_returned(run_on):
    done = run_on("win32", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert done.returncode == 3
    assert "ended with 3" in done.stderr
    assert "logged" not in done.stderr, "no error"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["version"], "chipwatch "),
        (["top"], "chipwatch: top: standard input and output are not a terminal; `chipwatch --once --format table`"),
        (["status"], "chipwatch: Windows has no such sockets; start the agent with --health PORT"),
    ],
)
def test_on_windows_a_command_works_or_says_what_to_use_instead(run_on, words, answer):
    done = run_on("win32", *words)
    assert (done.stdout + done.stderr).startswith(answer)
    assert "Traceback" not in done.stderr


def test_on_windows_ctrl_c_is_not_forwarded_since_the_console_signals_each_process(monkeypatch):
    command = WrappedCommand([sys.executable, "-c", "import time; time.sleep(60)"])
    sent = []
    try:
        with monkeypatch.context() as windows:
            windows.setattr(sys, "platform", "win32")
            windows.setattr(os, "kill", lambda *signal: sent.append(signal))
            command.forward(signal.SIGINT, None)
            command.forward(signal.SIGTERM, None)
    finally:
        os.kill(command.pid, signal.SIGKILL)
        command.code()
    assert sent == [(command.pid, signal.SIGTERM)]


def test_windows_opens_files_of_ours_without_a_translation_of_line_ends(monkeypatch):
    monkeypatch.setattr(os, "O_BINARY", 0x8000, raising=False)
    assert runpy.run_path(system.__file__)["SAFE"] & 0x8000
