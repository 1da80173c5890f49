"""Real processes in cgroups of jobs, on a fake driver: loaders that starve, a quota, a stopped rank, late ranks."""

import html
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.doubles.nvml.driver import machine_with

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(sys.platform != "linux", reason="the fake driver, cgroups and /proc are Linux's"),
]
HIERARCHIES = [Path("/sys/fs/cgroup") / name for name in ("cpu", "memory", "unified", "blkio")]
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
READ = """
import mmap, os, random, sys
with open(sys.argv[1], "wb") as file:
    file.write(os.urandom(1 << 24))
    os.fsync(file.fileno())
file, into = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
while True:
    os.preadv(file, [into], random.randrange(16) << 20)
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
    "disk": (READ, "0.3/1", "files"),
    "late": (READ, "0.3/1", "rank_files"),
    "healthy": (IDLE, "1/1", "none"),
}
"""Job -> its program, its schedule of kernels, and its cause."""
PEERS = 3
"""Healthy ranks of the job `late`, on the last GPUs."""


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
    (driver, env), children, peers = machine_with(tmp_path, len(JOBS) + PEERS), {}, []
    try:
        for number, (name, (code, kernels, _)) in enumerate(JOBS.items()):
            arguments = [str(Path.cwd()), str(PORT)] if name == "behind" else [str(tmp_path / name)]
            children[name] = child = subprocess.Popen(
                ["sh", "-c", 'read go; exec nice -n -10 "$0" "$@"', sys.executable, "-c", code, *arguments],
                stdin=subprocess.PIPE, env={**os.environ, "NCCL_RAS_ADDR": f"localhost:{PORT}"}, start_new_session=True,
            )  # fmt: skip
            attach(child.pid, number)
            driver.gpus[number] |= {"kernels": kernels, "processes": f"{child.pid}:1000000000"}
            child.stdin.write(b"go\n")
            child.stdin.close()
        for gpu in driver.gpus[len(JOBS) :]:
            peers.append(subprocess.Popen([sys.executable, "-c", IDLE]))
            attach(peers[-1].pid, [*JOBS].index("late"))
            gpu |= {"kernels": "1/1", "processes": f"{peers[-1].pid}:1000000000"}
        disk = tmp_path.stat().st_dev
        for name in ("disk", "late"):
            folder = HIERARCHIES[-1] / f"slurm/uid_0/job_{[*JOBS].index(name)}/step_0/task_0"
            with suppress(OSError):  # a partition has no such limit; without one the disk is slow enough
                (folder / "blkio.throttle.read_bps_device").write_text(f"{os.major(disk)}:{os.minor(disk)} 4000000")
        for folder in (HIERARCHIES[0] / "slurm").rglob("cpu.shares"):  # before other work on this machine
            folder.write_text("60000")
        (HIERARCHIES[0] / f"slurm/uid_0/job_{[*JOBS].index('quota')}/cpu.cfs_quota_us").write_text("20000")
        driver.write()
        yield env | {"CHIPWATCH_SINKS__STDOUT__PATH": str(tmp_path / "points")}, children
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()
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
    record = tmp_path / "run.chipwatch"
    running = agent.start(
        "--collector", "nvidia,jobs,nccl,disk", "--interval", "1", "--spool", state, "--record", str(record), env=env
    )
    children["stopped"].send_signal(signal.SIGSTOP)
    begun, moments, last = time.monotonic(), {}, {}
    named = {name: Counter() for name in JOBS}  # a busy machine may slow a reader for a moment
    while time.monotonic() - begun < SECONDS:
        time.sleep(3)
        done = agent.run("why", "--json", "--spool", state)
        for job in json.loads(done.stdout)["jobs"] if done.returncode == 0 else ():
            name = [*JOBS][int(job["job"])]
            cause = next((each["cause"] for each in job["why"]["causes"]), "none")
            last[name] = cause, job["why"]["sentence"]
            if cause != "none":
                named[name][cause] += 1
                moments.setdefault(name, time.monotonic() - begun)
    running.stop()
    with capsys.disabled():
        for name, (cause, sentence) in last.items():
            sys.stdout.write(f"\n{name:8} {cause:12} after {moments.get(name, 0):3.0f} s: {sentence}")
    most = {name: next(iter(causes.most_common(1)), ("none",))[0] for name, causes in named.items()}
    assert most == {name: cause for name, (_, _, cause) in JOBS.items()}
    assert last["healthy"][1] == "nothing slows it"
    assert max(moments.values()) < SECONDS
    page = tmp_path / "report.html"
    assert agent.run("report", str(record), "-o", str(page)).returncode == 0
    for name in ("stopped", "behind", "disk"):
        assert f"job {[*JOBS].index(name)}: {last[name][1]}"[:80] in html.unescape(page.read_text())
