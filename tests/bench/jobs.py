"""Cost of the accounting of jobs in a tick: processes, owners, cgroups, activity and charges."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.child import ROOT, command
from tests.bench.figure import Effort, Figure, cpu_ms
from tests.bench.nvidia import fake_driver

from chipwatch.collectors.jobs import JobsCollector
from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.facts import DeviceFacts, DeviceProcess, names_of
from chipwatch.contract.plugin import Given
from chipwatch.jobs.processor import JobsProcessor

GPUS, JOBS, PROCESSES = 8, 4, 50
TICKS = 40
PAUSE = 0.025
STAT = "{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 500 1000 25 0\n"
USAGE = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 100\nnr_throttled 12\n",
    "cpu.max": "400000 100000\n",
    "memory.current": "1000000\n",
    "memory.peak": "5000000\n",
    "memory.stat": "anon 1\ninactive_file 0\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n",
    "io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2\n",
}
CLIENTS = 8
"""Jobs with a process on each of the GPUs, which they share."""
SMALL, LARGE = "one process of each job on each of its GPUs", "all processes of each job on its GPUs"


def eight_gpus_with_jobs(effort: Effort) -> list[Figure]:
    """Measure what jobs add to a tick of eight GPUs, with few and with all of their processes on GPUs."""

    def measured(gpus: int, jobs: int, processes: int, on: list[list[int]]) -> list[float]:
        def tell(driver: Any) -> None:
            for number, gpu in enumerate(driver.gpus):
                gpu["processes"] = ",".join(f"{pid}:1000000000" for pid in on[number])
                gpu["parts"] = ",".join(f"{pid}:{100 // len(on[number])}" for pid in on[number])
                gpu["kernels"] = "0.2/5"

        with fake_driver(gpus, tell) as (folder, env):
            machine(Path(folder), jobs, processes)
            words = command("jobs", folder, str(effort.rounds), str(jobs))
            done = subprocess.run(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, timeout=120, check=True)
        return list(json.loads(done.stdout))

    figures = []
    for name, count in ((SMALL, 1), (LARGE, PROCESSES)):
        how = f"CPU that {GPUS} GPUs and {JOBS} jobs of {PROCESSES} processes add to a tick, {name}; mean of {TICKS} ticks"
        asked = 2.0 if name == SMALL else None
        values = measured(GPUS, JOBS, PROCESSES, [jobs_of(gpu)[:count] for gpu in range(GPUS)])
        figures.append(Figure(f"jobs, {count} of {PROCESSES} processes", "ms", asked, values, how))
    for gpus, jobs, count, asked in ((GPUS, CLIENTS, GPUS, 2.5), (64, 200, 1, 25.0)):
        on = [
            [pids_of(job, count)[gpu % count] for job in range(jobs) if count > 1 or job % gpus == gpu]
            for gpu in range(gpus)
        ]
        how = f"CPU that {jobs} jobs, which share {gpus} GPUs, add to a tick; mean of {TICKS} ticks"
        figures.append(Figure(f"jobs, {jobs} share {gpus}", "ms", asked, measured(gpus, jobs, count, on), how))
    return figures


def jobs_of(gpu: int) -> list[int]:
    """Return the pids of the job that holds a GPU."""
    return pids_of(gpu * JOBS // GPUS, PROCESSES)


def pids_of(job: int, processes: int) -> list[int]:
    """Return the pids of a job."""
    return [1000 * (job + 1) + n for n in range(processes)]


def machine(folder: Path, jobs: int = JOBS, processes: int = PROCESSES) -> None:
    """Write the files of a machine with Slurm's jobs in cgroup v2."""

    def write(name: str, text: str) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("proc/driver/nvidia/version", "")
    write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n")
    write("proc/self/cgroup", "0::/\n")
    write("proc/stat", "btime 1700000000\n")
    write("proc/2/stat", "2 (kthreadd) S 0 0\n")
    write("etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")
    for job in range(jobs):
        group = f"system.slice/slurmstepd.scope/job_{41337 + job}"
        task = f"{group}/step_0/user/task_0"
        pids = pids_of(job, processes)
        for name, text in USAGE.items():
            write(f"sys/fs/cgroup/{group}/{name}", text)
        write(f"sys/fs/cgroup/{task}/cgroup.procs", "".join(f"{pid}\n" for pid in pids))
        for pid in pids:
            write(f"proc/{pid}/stat", STAT.format(pid=pid))
            write(f"proc/{pid}/status", "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n")
            write(f"proc/{pid}/cgroup", f"0::/{task}\n")
            write(f"proc/{pid}/environ", "SLURM_JOB_PARTITION=h100\0")


def child(folder: str, rounds: str, count: str) -> None:
    """Measure in this process, which finds the fake driver."""
    root, now = Path(folder), [time.monotonic_ns()]
    gpus = NvidiaCollector(NvidiaCollector.Config(proc=root / "proc", root=root))
    gpus._clock = lambda: now[0]
    jobs = JobsCollector(JobsCollector.Config(proc=root / "proc", sys=root / "sys", root=root, max_jobs=int(count)))
    jobs._clock = lambda: now[0]
    processor = JobsProcessor(JobsProcessor.Config(max_jobs=int(count)))
    gpus.open(Given(level=Level.BASIC))
    jobs.open(Given(level=Level.BASIC))
    assert gpus._gpus is not None
    read = gpus._gpus
    points: list[object] = []

    def tick(at: int) -> None:
        processes = [one for one in read.processes() if isinstance(one, DeviceProcess)]
        found = DeviceFacts(now[0], processes, names_of(read.devices()), [*read.activity()])
        jobs.follow({one.pid for one in processes}, ())
        own = [*jobs.collect(at)]
        points[:] = [*own, *processor.derive((), at, [found, *jobs.facts()])]

    def whole(at: int) -> float:
        now[0] += 5_000_000_000
        list(gpus.collect(at))
        return cpu_ms(tick, 1, 0)

    for _ in range(5):
        whole(time.time_ns())
    means = []
    for _ in range(int(rounds)):
        spent = 0.0
        for _ in range(TICKS):
            time.sleep(PAUSE)
            spent += whole(time.time_ns())
        means.append(spent / TICKS)
    named = {point.dims.get("job") for point in points} - {None}  # type: ignore[attr-defined]
    assert named == {str(41337 + job) for job in range(int(count))}
    gpus.close()
    jobs.close()
    json.dump(means, sys.stdout)
