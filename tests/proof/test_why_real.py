"""Real processes in cgroups of jobs, on a fake driver: a starved loader, a quota, a stopped rank, files, a late rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.doubles.nvml.driver import machine_with

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(sys.platform != "linux", reason="the fake driver, cgroups and /proc are Linux's"),
]
HIERARCHIES = [Path("/sys/fs/cgroup") / name for name in ("cpu", "memory", "unified")]
SECONDS = 90
PIPE = """
import multiprocessing, os
def produce(pipe):
    while True:
        pipe.send(sum(i * i for i in range(3_000_000)))
mine, theirs = multiprocessing.Pipe(False)
multiprocessing.Process(target=produce, args=(theirs,), daemon=True).start()
while True:
    mine.recv()
"""
COMPUTE = "while True: sum(i * i for i in range(100_000))"
WRITE = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for _ in range(16):
            file.write(bytes(1 << 22))
        os.fsync(file.fileno())
"""
RAS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tests.doubles.ras import FakeRas, ranks, render
members = ranks(64)
members[21].counts = {"AllReduce": 6649}
FakeRas(lambda: render("2.29.7", [members]), port=int(sys.argv[2]))
while True:
    time.sleep(60)
"""
IDLE = "import time\nwhile True: time.sleep(0.01)"
PORT = 28_931
JOBS = {
    "pipe": (PIPE, "0.2/1", "few_workers"),
    "quota": (COMPUTE, "0.2/1", "quota"),
    "stopped": (IDLE, "1/1", "stopped"),
    "writes": (WRITE, "0.4/1", "checkpoint"),
    "behind": (RAS, "1/1", "rank_behind"),
    "healthy": (IDLE, "1/1", "none"),
}
"""Job -> its program, its schedule of kernels, and its cause."""


def attach(pid, number):
    """Put a process into the cgroups of a job of Slurm; skip the test where that is not possible."""
    for root in HIERARCHIES:
        folder = root / f"slurm/uid_0/job_{number}/step_0/task_0"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cgroup.procs").write_text(str(pid))
        except OSError as problem:
            pytest.skip(f"no cgroups of version 1 to write to: {problem}")


@pytest.fixture
def machine(tmp_path):
    (driver, env), children = machine_with(tmp_path, len(JOBS)), {}
    try:
        for number, (name, (code, kernels, _)) in enumerate(JOBS.items()):
            arguments = {"writes": [str(tmp_path / "file")], "behind": [str(Path.cwd()), str(PORT)]}.get(name, [])
            children[name] = child = subprocess.Popen(
                ["sh", "-c", 'read go; exec nice -n -10 "$0" "$@"', sys.executable, "-c", code, *arguments],
                stdin=subprocess.PIPE, env={**os.environ, "NCCL_RAS_ADDR": f"localhost:{PORT}"}, start_new_session=True,
            )  # fmt: skip
            attach(child.pid, number)
            driver.gpus[number] |= {"kernels": kernels, "processes": f"{child.pid}:1000000000"}
            child.stdin.write(b"go\n")
            child.stdin.close()
        for folder in (HIERARCHIES[0] / "slurm").rglob("cpu.shares"):  # before other work on this machine
            folder.write_text("60000")
        (HIERARCHIES[0] / f"slurm/uid_0/job_{[*JOBS].index('quota')}/cpu.cfs_quota_us").write_text("20000")
        driver.write()
        yield env | {"CHIPWATCH_SINKS__STDOUT__PATH": str(tmp_path / "points")}, children
    finally:
        for child in children.values():
            os.killpg(child.pid, signal.SIGKILL)  # with the children of a loader
            child.wait()
        time.sleep(0.5)
        for root in HIERARCHIES:
            for folder in sorted((root / "slurm").rglob("*"), key=lambda path: -len(path.parts)):
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):
                (root / "slurm").rmdir()


def test_real_jobs_have_their_causes_within_ninety_seconds_and_a_healthy_one_has_none(agent, machine, tmp_path, capsys):
    env, children = machine
    state = str(tmp_path / "state")
    running = agent.start("--collector", "nvidia,jobs,nccl,disk", "--interval", "1", "--spool", state, env=env)
    children["stopped"].send_signal(signal.SIGSTOP)
    begun, moments, last = time.monotonic(), {}, {}
    while time.monotonic() - begun < SECONDS:
        time.sleep(3)
        done = agent.run("why", "--json", "--spool", state)
        for job in json.loads(done.stdout)["jobs"] if done.returncode == 0 else ():
            name = [*JOBS][int(job["job"])]
            cause = next((each["cause"] for each in job["why"]["causes"]), "none")
            last[name] = cause, job["why"]["sentence"]
            if cause != "none":
                moments.setdefault(name, time.monotonic() - begun)
    running.stop()
    with capsys.disabled():
        for name, (cause, sentence) in last.items():
            sys.stdout.write(f"\n{name:8} {cause:12} after {moments.get(name, 0):3.0f} s: {sentence}")
    assert {name: cause for name, (cause, _) in last.items()} == {name: cause for name, (_, _, cause) in JOBS.items()}
    assert last["healthy"][1] == "nothing slows it"
