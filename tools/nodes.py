"""
Invented nodes for the demo, the stack and the proof of the dashboards: 8 H100 each, of a fake driver, with jobs of Slurm.

The files of a host, its cgroups and its fabric are written below a folder; a real agent reads them by --proc, --sys and
--root. GPUs follow schedules of kernels that the fake driver keeps by itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.doubles import sysfs
from tests.doubles.nvml.driver import VARIABLE, CannotBuild, Driver, build

BUILT: Final = Path(__file__).parents[1] / "lib/libnvidia-ml.so.1"
"""The fake driver where it is built already: the image of the demo has no compiler."""
GIB: Final = 2**30
CPUS: Final = 16
TICKS: Final = 100
"""Ticks of /proc in a second."""
GROUPS: Final = "/system.slice/slurmstepd.scope"


class Job(NamedTuple):
    """A job: its number, its user, its GPUs, their schedule of kernels, their memory (GiB), and the cores that it uses."""

    number: int
    user: str
    gpus: range
    kernels: str
    memory: int
    cores: float


TRAINING: Final = Job(41337, "ada", range(5), "1.9/2", 61, 6.0)
LOADING: Final = Job(41352, "eve", range(5, 6), "0.5/2", 37, 3.9)
NOTEBOOK: Final = Job(41340, "bob", range(6, 7), "0.2/1;20", 24, 0.01)
JOBS: Final = ((TRAINING, LOADING, NOTEBOOK), (TRAINING._replace(gpus=range(8)),), (LOADING._replace(number=41360),))
"""Jobs of the first, the second and the third node, and so on in turn."""
USERS: Final = {"ada": 1000, "bob": 1001, "eve": 1002}
GROUP: Final = {
    "cpu.max": "400000 100000\n", "memory.current": f"{8 * GIB}\n", "memory.peak": f"{9 * GIB}\n",
    "memory.stat": "anon 1\ninactive_file 0\n", "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n",
    "memory.swap.current": "0\n",
    "io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
}  # fmt: skip
PCI: Final = {"class": "0x030200", "current_link_width": "16", "current_link_speed": "32.0 GT/s PCIe",
              "max_link_width": "16", "aer_dev_fatal": "TOTAL_ERR_FATAL 0"}  # fmt: skip


class Node:
    """The files of one node; `load` lets them follow the time."""

    def __init__(self, folder: Path, number: int, library: Path | None) -> None:
        """Write the files; without the library of the fake driver the node has no GPUs."""
        self.name, self._folder, self._library = f"node-{number + 1}", folder, library
        self._jobs = JOBS[number % len(JOBS)] if library else ()
        self._began = time.monotonic()
        self._booted = round(time.time()) - 900
        self._share = 1 + number % 3
        self.has_gpus = bool(library)
        users = {**USERS, "demo": os.getuid()}
        self._write("root/etc/passwd", "".join(f"{name}:x:{uid}:{uid}::/:/bin/sh\n" for name, uid in users.items()))
        (folder / "root/scratch").mkdir()
        self._write("proc/1/mountinfo", "24 1 259:1 / /scratch rw - xfs /dev/nvme0n1 rw\n")
        cgroup = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
        self._write("proc/self/mountinfo", f"{cgroup}24 1 259:1 / /scratch rw - xfs /dev/nvme0n1 rw\n")
        self._write("proc/self/cgroup", "0::/\n")
        self._write("proc/2/stat", "2 (kthreadd) S 0 0\n")
        self._write("sys/class/nvme/nvme0/state", "live\n")
        self._write("sys/block/nvme0n1/device/model", "invented\n")
        sysfs.build(folder / "sys", "rdma_mlx5", "hwmon", "edac", "rapl")
        for job in self._jobs:
            self._processes(job)
        if library:
            self._gpus(folder)
        self.load()

    def _write(self, path: str, text: str) -> None:
        place = self._folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        # Agents keep these files open, and read them meanwhile: the same file, and never empty.
        with place.open("r+b" if place.exists() else "xb", buffering=0) as file:
            file.write(text.encode())
            file.truncate()

    def _processes(self, job: Job) -> None:
        task, uid, pid = f"{GROUPS}/job_{job.number}/step_0/user/task_0", USERS[job.user], job.number
        self._write(f"proc/{pid}/status", f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        self._write(f"proc/{pid}/cgroup", f"0::{task}\n")
        self._write(f"proc/{pid}/environ", f"SLURM_JOB_PARTITION=h100\0SLURM_JOB_GPUS={','.join(map(str, job.gpus))}\0")
        with suppress(PermissionError):  # without root all processes are of the user who runs this
            os.chown(self._folder / f"proc/{pid}", uid, uid)
        self._write(f"sys/fs/cgroup{task}/cgroup.procs", f"{pid}\n")
        for name, text in GROUP.items():
            self._write(f"sys/fs/cgroup{GROUPS}/job_{job.number}/{name}", text)

    def _gpus(self, folder: Path) -> None:
        self._write("root/dev/nvidiactl", "")
        self._write("proc/driver/nvidia/version", "")
        driver = Driver(folder, "h100", 8)
        holders = {number: job for job in self._jobs for number in job.gpus}
        for number, gpu in enumerate(driver.gpus):
            job = holders.get(number)
            busy = float(job.kernels.partition("/")[0]) / 2 if job else 0.0
            gpu.pop("samples", None)
            power = round(95_000 + 560_000 * busy)
            gpu |= {"kernels": job.kernels if job else "0/1", "processes": None, "power": power}
            for name, text in PCI.items():
                self._write(f"sys/bus/pci/devices/0000:{number:02x}:00.0/{name}", f"{text}\n")
            gpu["fan"], gpu["temperature"] = round(40 + 40 * busy), round(34 + number + 28 * busy)
            gpu["utilization"] = {"gpu": round(100 * busy), "memory": round(30 * busy)}
            gpu["memory"]["used"] = job.memory * GIB if job else 0
            gpu["field"] |= {"83": f"0@{power}", "138.-1": f"0@{round(9e6 * busy)}", "139.-1": f"0@{round(8e6 * busy)}"}
            gpu["gpm"] |= {"1": 100 * busy, "2": 100 * busy, "3": 60 * busy, "5": 70 * busy, "10": 40 * busy}
            if job:
                gpu["processes"] = f"{job.number}:{(job.memory - 1) * GIB}"
        driver.machine |= {"began": str(int(time.monotonic())), "events": "7:13"}  # an Xid that an application causes
        driver.write()

    def load(self) -> None:
        """Write what follows the time."""
        seconds = time.monotonic() - self._began
        cores = sum(job.cores for job in self._jobs) + 0.2 * self._share
        busy, idle = (round(TICKS * seconds * part) for part in (cores, CPUS - cores))
        rows = [f"cpu{n} {busy // CPUS} 0 0 {idle // CPUS} 0 0 0 0" for n in range(CPUS)]
        self._write(
            "proc/stat", "\n".join([f"cpu  {busy} 0 0 {idle} 0 0 0 0", *rows, "intr 0", f"btime {self._booted}", ""])
        )
        self._write("proc/loadavg", f"{cores:.2f} {cores:.2f} {cores:.2f} 3/300 1\n")
        total, used = 1 << 30, (200 + 60 * self._share) << 20
        self._write("proc/meminfo", f"MemTotal: {total} kB\nMemFree: {total - used} kB\nMemAvailable: {total - used} kB\n"
                    "SwapTotal: 8388608 kB\nSwapFree: 8388608 kB\n")  # fmt: skip
        moved = round(seconds * 1.2e9 * self._share)
        self._write("proc/diskstats", f"259 0 nvme0n1 1 0 {moved // 512} {busy} 1 0 {moved // 4096} 0 0 {busy} 0\n")
        interface = f" eth0: {moved} {moved >> 13} 0 0 0 0 0 0 {moved // 2} {moved >> 14} 0 0 0 0 0 0\n"
        self._write("proc/1/net/dev", f"a\nb\n{interface}")
        self._write("proc/1/net/snmp", f"Tcp: ActiveOpens RetransSegs OutSegs\nTcp: 1 {moved >> 28} {moved >> 13}\n")
        self._write("proc/1/net/netstat", "TcpExt: TCPTimeouts ListenDrops\nTcpExt: 0 0\n")
        for kind in ("cpu", "io", "memory"):
            text = "avg10=1.50 avg60=1.20 avg300=1.00"
            self._write(
                f"proc/pressure/{kind}",
                f"some {text} total={round(seconds * 4e4)}\nfull {text} total={round(seconds * 1e4)}\n",
            )
        for job in self._jobs:
            spent = round(seconds * job.cores * 1e6)
            pid = job.number
            stat = f"{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 {spent // 10_000} 0 0 0 20 0 4 0 500 1000 25 0\n"
            self._write(f"proc/{pid}/stat", stat)
            usage = f"usage_usec {spent}\nuser_usec {spent}\nsystem_usec 0\nnr_periods 100\nnr_throttled 0\n"
            self._write(f"sys/fs/cgroup{GROUPS}/job_{pid}/cpu.stat", usage)
        port = "sys/class/infiniband/mlx5_bond_0/ports/1/counters"
        for name in ("port_xmit_data", "port_rcv_data"):
            self._write(f"{port}/{name}", f"{moved * 8}\n")

    def environment(self) -> dict[str, str]:
        """Return the variables with which chipwatch reads this node."""
        folder, state = self._folder, str(self._folder / "state")
        options = {name: str(folder / name) for name in ("proc", "sys", "root")} | {
            "collectors__jobs__dimensions": "user", "processors__jobs__dimensions": "user",
            "processors__jobs__dollars_per_hour": "2.5", "recorder": "false",
        }  # fmt: skip
        env = {f"CHIPWATCH_{key.upper()}": value for key, value in options.items()}
        env |= {"STATE_DIRECTORY": state, "XDG_STATE_HOME": state}
        if self._library:
            env |= {"LD_LIBRARY_PATH": str(self._library.parent), VARIABLE: str(folder / "nvml.txt")}
        return env

    def start(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        """Start an agent that reads this node and ends with this process; its output goes to agent.log in the folder."""
        options = ("--level", "detailed", "--dim", f"hostname={self.name}", "--parent", str(os.getpid()))
        command = [sys.executable, "-m", "chipwatch", *words, *options]
        env = {**os.environ, **self.environment(), **env}
        with (self._folder / "agent.log").open("wb") as log:
            return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def nodes(folder: Path, many: int) -> list[Node]:
    """Return this many nodes below `folder`; without a C compiler they have no GPUs."""
    try:
        library = BUILT if BUILT.exists() else build(folder)
    except CannotBuild:
        library = None
    made = []
    for number in range(many):
        place = folder / f"node-{number + 1}"
        place.mkdir()
        made.append(Node(place, number, library))
    return made


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """End processes, and wait for each."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
