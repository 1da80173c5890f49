import math
import os
import shutil
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from chipwatch.collectors.jobs import JobsCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.owner import Allocation, Owner
from chipwatch.contract.plugin import Given
from chipwatch.host import procfs

MOUNT = "30 23 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
STAT = "{pid} (python) {state} 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 4 0 {began} 1000 25 0\n"
CONTAINER = "713a77a26fe2a38ebebd5709604a048c3d380db1eb16aa43aca0b2499e54733c"
USAGE = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\nnr_periods 100\nnr_throttled 12\n",
    "cpu.max": "400000 100000\n",
    "memory.current": "1000000\n",
    "memory.peak": "5000000\n",
    "memory.stat": "anon 1\ninactive_file 0\n",
    "memory.events": "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n",
    "memory.swap.current": "4096\n",
    "io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=3000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n",
}


class Machine:
    """A machine's files, with cgroup v2."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.proc, self.sys = folder, folder / "proc", folder / "sys"
        self.groups = self.sys / "fs/cgroup"
        self.write(self.proc / "self/mountinfo", MOUNT.format(root="/sys/fs/cgroup"))
        self.write(self.proc / "self/cgroup", "0::/\n")
        self.write(self.proc / "stat", "btime 1700000000\n")
        self.write(self.proc / "2/stat", "2 (kthreadd) S 0 0\n")
        self.write(folder / "etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(self, pid, cgroup, *, state="S", cpu=(150, 50), uid=1000, **environ):
        folder = self.proc / str(pid)
        user, system = cpu
        self.write(folder / "stat", STAT.format(pid=pid, state=state, user=user, system=system, began=500))
        self.write(folder / "status", f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        self.write(folder / "cgroup", f"0::{cgroup}\n")
        self.write(folder / "environ", "".join(f"{name}={value}\0" for name, value in environ.items()))

    def group(self, path, **changes):
        for name, text in (USAGE | changes).items():
            self.write(self.groups / path.strip("/") / name, text)

    def slurm(self, job, pid, *, gpus="", step="batch"):
        path = f"/system.slice/slurmstepd.scope/job_{job}"
        self.group(path)
        task = f"{path}/step_{step}/user/task_special"
        self.write(self.groups / task.strip("/") / "cgroup.procs", f"{pid}\n")
        self.process(pid, task, SLURM_JOB_PARTITION="h100", SLURM_JOB_GPUS=gpus)
        return path

    def collector(self, **options):
        config = JobsCollector.Config(proc=self.proc, sys=self.sys, root=self.folder, **options)
        collector = JobsCollector(config)
        collector.open(Given())
        return collector


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def read(collector, *pids):
    collector.follow(pids, ())
    points = {(p.metric.name, *p.dims.values()): p.value for p in collector.collect(at=1_800_000_000 * 10**9)}
    (facts,) = collector.facts()
    return points, facts


def test_a_job_of_slurm_is_found_without_a_process_on_a_gpu(machine):
    machine.slurm(41337, 88, gpus="2,3")
    collector = machine.collector(dimensions=("user",))
    points, facts = read(collector)
    assert points == {
        ("job.cpu.time", "41337", "h100", "ada"): 2.5,
        ("job.memory.max", "41337", "h100", "ada"): 5_000_000,
        ("job.oom_kills", "41337", "h100", "ada"): 2,
    }
    assert facts.owners == {}
    assert [(one.device, one.owner.job, one.owner.user, one.source) for one in facts.allocations] == [
        ("2", "41337", "ada", "environment"), ("3", "41337", "ada", "environment")
    ]  # fmt: skip
    (use,) = facts.uses
    assert (use.cpu, use.cores, use.periods, use.throttled) == (2.5, 4.0, 100, 12)
    assert (use.io_some, use.memory_full, use.swapped, use.blocked) == (3.0, 0.25, 4096, False)
    assert use.since == 1_700_000_000 * 10**9 + 500 * 10**9 // os.sysconf("SC_CLK_TCK")
    assert collector.describe() == "jobs found: 1, devices by their environment"


def test_jobs_of_slurm_26_are_each_found_by_their_number_and_given_their_gpus(machine):
    """The folders of two jobs in Slurm 26.05's cgroup tree, of an idle one and of the waiting area of slurmstepd."""
    scope = "/system.slice/slurmstepd.scope"
    jobs = ("s8FXKTA79XAR00", 88, "41337"), ("s8FXKTA79XAR01", 98, "41340")
    for sluid, pid, number in jobs:
        machine.group(f"{scope}/{sluid}")
        task = f"{scope}/{sluid}/step_batch/user/task_special"
        machine.write(machine.groups / task.strip("/") / "cgroup.procs", f"{pid}\n")
        machine.write(machine.groups / f"{scope}/{sluid}/step_batch/slurm/cgroup.procs".strip("/"), f"{pid - 1}\n")
        machine.write(machine.proc / f"{pid - 1}/cmdline", f"slurmstepd: [{number}.batch]")
        machine.process(pid, task, SLURM_JOB_PARTITION="h100")
    machine.write(machine.groups / f"{scope}/system/cgroup.procs".strip("/"), "70\n")
    machine.write(machine.folder / "run/slurm/dcgm-job-mapping/0", "41337\n41340\n")  # shards of one GPU
    machine.write(machine.folder / "run/slurm/dcgm-job-mapping/1", "41340\n")
    collector = machine.collector()
    points, facts = read(collector, 88)
    assert {key[1] for key in points} == {"41337", "41340"}
    found = [(one.device, one.owner.job, one.owner.cgroup[-14:]) for one in facts.allocations]
    assert found == [
        ("0", "41337", "s8FXKTA79XAR00"), ("0", "41340", "s8FXKTA79XAR01"), ("1", "41340", "s8FXKTA79XAR01")
    ]  # fmt: skip
    assert collector.describe().endswith("dcgm-job-mapping, jobs' numbers by slurmstepd")


@pytest.mark.parametrize("slices", ["system.slice", "hpc.slice", "hpc.slice/hpc-jobs.slice"])
def test_the_jobs_are_found_in_the_slice_that_slurm_was_given(machine, slices):
    path = f"/{slices}/node1_slurmstepd.scope/job_9"
    machine.group(path)
    machine.write(machine.groups / f"{path}/step_0/user/task_0/cgroup.procs".strip("/"), "88\n")
    machine.process(88, f"{path}/step_0/user/task_0")
    assert [use.owner.job for use in read(machine.collector())[1].uses] == ["9"]


def test_counters_begin_with_the_job(machine):
    machine.slurm(41337, 88)
    collector = machine.collector()
    points = list(collector.collect(at=7))
    assert {p.start_time for p in points if p.metric.kind == "counter"} == {collector.facts()[0].uses[0].since}


def test_the_processes_that_drivers_list_have_owners(machine):
    path = machine.slurm(7, 88)
    machine.process(89, f"{path}/step_0/user/task_0", state="D")
    machine.group(f"/docker/{CONTAINER}")
    machine.process(90, f"/docker/{CONTAINER}")
    machine.process(91, "/user.slice/user-1000.slice/session-3.scope", cpu=(300, 100), state="D")
    points, facts = read(machine.collector(), 89, 90, 91, 92)
    assert {pid: owner.job for pid, owner in facts.owners.items()} == {89: "7", 90: CONTAINER[:12], 91: "ada"}
    assert {use.owner.job: use.blocked for use in facts.uses} == {"7": True, CONTAINER[:12]: False}
    assert facts.cpu == {91: 400 / os.sysconf("SC_CLK_TCK")}
    assert facts.blocked == {89, 91}
    assert ("job.cpu.time", CONTAINER[:12]) in points


def test_the_mapping_folder_is_better_than_the_environment(machine):
    machine.slurm(7, 88, gpus="2,3")
    machine.write(machine.folder / "run/slurm/dcgm-job-mapping/5", "7\n")
    machine.write(machine.folder / "run/slurm/dcgm-job-mapping/6", "8\n")
    collector = machine.collector()
    _, facts = read(collector)
    found = [(one.device, one.owner.job, one.owner.partition, one.source) for one in facts.allocations]
    assert found == [("5", "7", "h100", "mapping"), ("6", "8", "", "mapping")]
    assert "dcgm-job-mapping" in collector.describe()


@pytest.mark.parametrize("container", ["", "main"])
def test_a_device_is_given_to_the_container_that_its_source_names(machine, container):
    machine.slurm(7, 88)
    collector = machine.collector()
    given = Allocation("2", Owner("slurm", "7", container=container), "kubelet")
    collector._allocations.read = lambda: [given]
    (one,) = read(collector)[1].allocations
    assert (one.owner.container, one.owner.partition) == (container, "h100")


def test_slurms_numbers_of_gpus_are_not_used_with_mig(machine):
    machine.slurm(7, 88, gpus="2,3")
    (machine.proc / "driver/nvidia/capabilities/gpu0/mig/gi1").mkdir(parents=True)
    _, facts = read(machine.collector())
    assert facts.allocations == []


def test_numbers_in_a_mapping_folder_are_not_used_with_mig(machine):
    for name in ("2", "0.3", "MIG-5a", "GPU-1b"):
        machine.write(machine.folder / "run/slurm/dcgm-job-mapping" / name, "7\n")
    (machine.proc / "driver/nvidia/capabilities/gpu0/mig/gi1").mkdir(parents=True)
    _, facts = read(machine.collector())
    assert {one.device for one in facts.allocations} == {"0.3", "MIG-5a", "GPU-1b"}
    assert facts.missing["numbers"] == "with MIG, Slurm numbers the GPUs differently: jobs have what they use"


def test_jobs_on_devices_come_first_and_jobs_left_out_are_not_asked(machine):
    for job in range(100, 300):
        machine.slurm(job, 1000 + job, gpus="3")
    collector = machine.collector(max_jobs=8)
    _, facts = read(collector, 1298, 1299)
    assert {"298", "299"} < {use.owner.job for use in facts.uses}
    assert len(facts.uses) == 8
    assert len(collector._slurm.devices) <= 16
    assert facts.missing["jobs"] == "192 jobs are left out: max_jobs is 8"


def test_a_tick_reads_each_file_of_a_jobs_cgroup_once_and_never_its_memory_stat(machine, monkeypatch):
    path = machine.slurm(7, 88)
    collector = machine.collector()
    read(collector)
    reads = []
    monkeypatch.setattr(procfs, "pread", lambda fd, *rest, to=os.pread: (
        reads.append(Path(f"/proc/self/fd/{fd}").readlink()) or to(fd, *rest)
    ))  # fmt: skip
    (use,) = read(collector)[1].uses
    assert (use.cpu, use.memory_max, use.io_some, use.oom_kills) == (2.5, 5_000_000, 3.0, 2)
    names = [file.name for file in reads if str(file.parent).endswith(path)]
    kept = ["cpu.stat", "io.pressure", "memory.events", "memory.peak", "memory.pressure", "memory.swap.current"]
    assert sorted(names) == kept, "memory.stat makes the kernel sum over all CPUs"


def test_bytes_and_waits_for_a_cpu_are_read_each_ten_seconds_and_when_a_process_comes(machine):
    path, now = machine.slurm(7, 88), [10**9]
    collector = machine.collector()
    collector._clock = lambda: now[0]

    def totals(count, *pids, after=1):
        now[0] += after * 10**9
        for pid in pids:
            machine.write(machine.proc / f"{pid}/io", f"read_bytes: {count}\nwrite_bytes: 0\n")
            machine.write(machine.proc / f"{pid}/schedstat", f"1 {count * 10**9} 1\n")
        collector.follow(pids, pids)
        list(collector.collect(at=7))
        (facts,) = collector.facts()
        assert {pid: read for pid, (read, _) in facts.transfers.items()} == facts.delays
        return facts.delays

    assert totals(0) == {}
    assert totals(1, 88) == {88: 1}
    assert totals(2, 88) == {88: 1}
    assert totals(3, 88, after=10) == {88: 3}
    machine.process(89, f"{path}/step_0/user/task_0")
    assert totals(4, 88, 89) == {88: 4, 89: 4}
    assert totals(5, 88) == {88: 5}


def test_a_job_that_ended_between_two_ticks_is_gone(machine):
    path = machine.slurm(7, 88)
    machine.slurm(8, 89)
    collector = machine.collector()
    assert len(read(collector)[1].uses) == 2
    shutil.rmtree(machine.groups / path.strip("/"))  # files on a disk can still be read: a cgroup's answer ENODEV
    collector._groups[path].close()
    points, facts = read(collector)
    assert [use.owner.job for use in facts.uses] == ["8"]
    assert {key[1] for key in points} == {"8"}


def test_a_job_that_begins_between_two_ticks_is_there(machine):
    collector = machine.collector()
    assert read(collector)[0] == {}
    assert collector.describe() == "jobs found: 0, devices by processes only"
    machine.slurm(7, 88)
    collector._slurm._due = 0  # the folder of slurmd is new too: it is looked for once a minute
    assert len(read(collector)[1].uses) == 1
    machine.slurm(8, 89)
    assert len(read(collector)[1].uses) == 2


def test_without_the_machines_pids_nobody_owns_a_process(machine):
    machine.slurm(7, 88)
    machine.process(90, f"/docker/{CONTAINER}")
    machine.write(machine.proc / "2/stat", "2 (sh) S 0 0\n")
    collector = machine.collector()
    _, facts = read(collector, 90)
    assert facts.owners == {}
    assert "hostPID" in collector.describe()


def test_a_file_that_the_kernel_does_not_have_costs_its_value_only(machine):
    path = machine.slurm(7, 88)
    for name in ("memory.peak", "io.pressure", "memory.swap.current", "memory.events", "cpu.max"):
        (machine.groups / path.strip("/") / name).unlink()
    points, facts = read(machine.collector())
    assert points == {("job.cpu.time", "7", "h100"): 2.5, ("job.memory.max", "7", "h100"): 1_000_000}
    (use,) = facts.uses
    assert (use.io_some, use.swapped, use.oom_kills, use.cores) == (None, None, None, None)


def test_a_system_without_proc_has_no_jobs(tmp_path):
    with pytest.raises(Unavailable, match="Linux only"):
        JobsCollector(JobsCollector.Config(proc=tmp_path)).open(Given())


def test_closing_leaves_no_file_open(machine, newly_open):
    for job in range(1, 11):
        machine.slurm(job, 1000 + job)
    collector = machine.collector()
    read(collector)
    assert len(newly_open()) > 10
    collector.close()
    collector.close()
    assert not newly_open()


@pytest.mark.skipif(sys.platform != "linux", reason="needs cgroups")
def test_a_real_job_is_charged_and_is_gone_when_its_cgroup_is(tmp_path):
    """A child in a cgroup with the names of Slurm's, made where this user may make one: v2, else v1 with memory."""
    number = str(uuid.uuid4().int % 10**9)
    mounts = [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    points = [fields[4] for fields in mounts if "cgroup2" in fields or ("cgroup" in fields and "memory" in fields[-1])]
    tasks = []
    for point in map(Path, points):
        name = (
            f"slurm{number}/uid_0"
            if not (point / "cgroup.controllers").exists()
            else "system.slice/test_slurmstepd.scope"
        )
        task = point / name / f"job_{number}/step_0" / ("task_0" if "uid" in name else "user/task_0")
        with suppress(OSError):
            task.mkdir(parents=True)
            tasks.append((point, task))
    if not tasks:
        pytest.skip("no cgroup can be made here: needs root or a delegated cgroup")
    program = "import sys; sys.stdin.readline(); data = bytearray(1 << 24); print(flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"SLURM_STEP_GPUS": "1", "SLURM_JOB_PARTITION": "test"},
    )  # fmt: skip
    collector = JobsCollector(JobsCollector.Config(root=tmp_path))
    try:
        for _, task in tasks:
            (task / "cgroup.procs").write_text(str(child.pid))
        child.stdin.write(b"\n")  # what it took before is the memory of another cgroup
        child.stdin.flush()
        child.stdout.readline()
        collector.open(Given())
        points, facts = read(collector, child.pid)
        owner = facts.owners[child.pid]
        assert (owner.kind, owner.job, owner.step, owner.partition) == ("slurm", number, "0", "test")
        assert ("1", number) in [(one.device, one.owner.job) for one in facts.allocations]
        assert any(use.owner.job == number for use in facts.uses)
        if any((point / "memory.stat").exists() for point, _ in tasks):
            assert points["job.memory.max", number, "test"] > 1 << 20
    finally:
        child.kill()
        child.communicate()
        deadline = time.monotonic() + 30
        for point, task in tasks:
            folder = task
            while folder != point:
                try:
                    folder.rmdir()
                except OSError:
                    if folder.name == "system.slice" or time.monotonic() > deadline:
                        break
                    time.sleep(0.01)
                    continue
                folder = folder.parent
    _, facts = read(collector, child.pid)
    assert (facts.owners, [use for use in facts.uses if use.owner.job == number]) == ({}, [])
    collector.close()


@pytest.mark.parametrize(
    ("level", "without", "with_slurm"), [(Level.BASIC, math.inf, math.inf), (Level.ALL, 60.0, 0.0)]
)
def test_without_a_device_it_rests_while_there_is_no_slurm_and_below_the_level_of_its_points(
    machine, level, without, with_slurm
):
    for expected in (without, with_slurm):
        collector = machine.collector()
        collector.open(Given(level=level))
        read(collector)
        assert (collector.rests(), level <= JobsCollector.needs.devices) == (expected, True)
        collector.close()
        machine.slurm(41337, 88)
