"""macOS, as far as Linux can show it, without the modules, attributes and files that it lacks; and no Windows."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chipwatch.__main__ import main

ROOT = Path(__file__).parents[2]
ON_LINUX_ONLY = {
    "container", "gaudi", "hardware", "intel", "jobs", "kernel", "nccl", "neuron", "pressure", "rdma", "storage", "tpu",
}  # fmt: skip
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


def test_on_macos_every_module_is_imported(run_on):
    done = run_on("darwin")
    assert (done.stdout, done.stderr) == ("", "")


def test_check_reads_the_host_and_says_of_each_other_collector_why_it_is_absent(run_on):
    done = run_on("darwin", "check", "-v")
    assert done.returncode == 0, done.stdout + done.stderr
    states = {}
    for name, state, reason in re.findall(r"^collector +(\w+) +(\w+) +(.*)", done.stdout, re.MULTILINE):
        states.setdefault(state, {})[name] = reason
    assert {*states} == {"ok", "absent"}
    assert {*states["ok"]} == {"cpu", "disk", "memory", "network"}
    assert states["absent"].keys() >= ON_LINUX_ONLY | {"amd", "apple", "nvidia"}


def test_one_reading_goes_to_standard_output(run_on):
    done = run_on("darwin", "--once", "--interval", "0.2", "--sink", "stdout", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    points = {point["name"]: point["value"] for point in map(json.loads, done.stdout.splitlines())}
    assert points.keys() >= HOST
    assert points["memory.used"] > 0


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--version"], "chipwatch "),
        (["top"], "chipwatch: top: standard input and output are not a terminal; `chipwatch --once --format table`"),
    ],
)
def test_on_macos_a_command_works_or_says_what_to_use_instead(run_on, words, answer):
    done = run_on("darwin", *words)
    assert (done.stdout + done.stderr).startswith(answer)
    assert "Traceback" not in done.stderr


def test_on_windows_it_ends_with_a_line_that_names_wsl(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(SystemExit, match="on Windows use WSL"):
        main()
