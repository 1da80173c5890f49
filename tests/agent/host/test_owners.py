import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.host import owners
from chipwatch.host.owners import Owners, parse
from chipwatch.host.procfs import read

CASES = json.loads((Path(__file__).parents[2] / "fixtures/owners.json").read_text())
POD = "4415fd05-2c0f-4533-909b-f2180dca8d7c"
CONTAINER = "713a77a26fe2a38ebebd5709604a048c3d380db1eb16aa43aca0b2499e54733c"
KUBE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice"
STAT = "{pid} (python) {state} 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 {began} 1000 25 0\n"
SLURM_JOB = "/system.slice/slurmstepd.scope/job_7/step_batch/user/task_special"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["from"])
def test_a_cgroup_path_names_its_job(case):
    found = parse(case["cgroup"].split(":", 2)[2])
    if case["kind"] is None:
        assert found is None
        return
    expected = {key: case.get(key, "") for key in ("kind", "job", "step", "user", "container")}
    assert {key: getattr(found, key) for key in expected} == expected
    assert found.cgroup == case["at"]


@given(st.text(max_size=300))
def test_any_path_is_parsed(path):
    found = parse(path)
    assert found is None or (found.kind in owners.KINDS and found.job and path.startswith(found.cgroup))


class Host:
    """The files of a machine in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.proc = folder, folder / "proc"
        self.write("proc/stat", "btime 1700000000\n")
        self.write("proc/2/stat", "2 (kthreadd) S 0 0\n")
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(self, pid: int, cgroup: str, *, uid: int = 1000, began: int = 500, state: str = "S", **environ: str):
        self.write(f"proc/{pid}/stat", STAT.format(pid=pid, began=began, state=state))
        self.write(f"proc/{pid}/status", f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        self.write(f"proc/{pid}/cgroup", f"0::{cgroup}\n")
        self.write(f"proc/{pid}/environ", "".join(f"{name}={value}\0" for name, value in environ.items()))

    def owners(self) -> Owners:
        return Owners(self.proc, self.folder, self.folder / "var/log")


def owner_of(found: Owners, pid: int):
    process = found.of_drivers([pid]).get(pid)
    return process and process.owner


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_process_of_slurm_has_its_users_name_its_partition_and_its_start(host):
    host.process(41, SLURM_JOB, began=1000, SLURM_JOB_PARTITION="h100", SLURM_JOB_GPUS="2,3", SECRET="x")
    found = host.owners()
    owner = owner_of(found, 41)
    assert (owner.kind, owner.job, owner.step, owner.user, owner.partition) == ("slurm", "7", "batch", "ada", "h100")
    assert owner.since == 1_700_000_000 * 10**9 + 1000 * 10**9 // os.sysconf("SC_CLK_TCK")
    assert found.process(41).devices == {"2", "3"}
    assert found.missing == {}
    assert "x" not in repr(found.process(41))[50:] or "SECRET" not in repr(found.process(41))


def test_a_step_does_not_have_the_gpus_that_it_inherits_from_the_jobs_first_node(host):
    inherited = SLURM_JOB.replace("batch", "0")
    host.process(41, inherited, SLURM_JOB_GPUS="0,1")
    host.process(42, inherited, SLURM_JOB_GPUS="0,1", SLURM_STEP_GPUS="4")
    assert [host.owners().process(pid).devices for pid in (41, 42)] == [frozenset(), {"4"}]


def test_a_user_who_is_not_in_the_password_file_is_a_number_until_it_changes(host):
    host.process(41, SLURM_JOB, uid=1001)
    found = host.owners()
    assert owner_of(found, 41).user == "1001"
    host.write("etc/passwd", "grace:x:1001:1001::/home/grace:/bin/sh\n")
    host.process(42, SLURM_JOB, uid=1001)
    assert owner_of(found, 42).user == "grace"


@pytest.mark.parametrize(
    ("cgroup", "uid", "expected"),
    [
        ("/user.slice/user-1000.slice/session-3.scope", 1000, ("user", "ada", "ada")),
        ("/", 0, ("user", "root", "root")),
        ("/system.slice/jupyterhub.service", 0, ("unit", "jupyterhub.service", "root")),
        ("/system.slice/jupyterhub.service (deleted)", 0, ("unit", "jupyterhub.service", "root")),  # it cannot end
        (f"/docker/{CONTAINER}", 1000, ("docker", CONTAINER[:12], "ada")),
        (f"/docker/{CONTAINER}", 0, ("docker", CONTAINER[:12], "")),
        (f"{KUBE}/cri-containerd-{CONTAINER}.scope", 1000, ("kubernetes", POD, "")),
    ],
)
def test_who_owns_a_process_without_slurm(host, cgroup, uid, expected):
    host.process(41, cgroup, uid=uid)
    owner = owner_of(host.owners(), 41)
    assert (owner.kind, owner.job, owner.user) == expected


def test_a_pod_is_named_by_the_hosts_log_folder(host):
    host.process(41, f"{KUBE}/cri-containerd-{CONTAINER}.scope", NVIDIA_VISIBLE_DEVICES="GPU-5a, all ,void")
    found = host.owners()
    assert owner_of(found, 41).job == POD
    assert "mount the host's /var/log" in found.missing["pods"]
    host.write(f"var/log/pods/team-a_train-0_{POD}/main/0.log", "")
    host.write(f"var/log/containers/train-0_team-a_main-{CONTAINER}.log", "")
    found = host.owners()
    owner = owner_of(found, 41)
    assert (owner.namespace, owner.pod, owner.container, owner.job) == ("team-a", "train-0", "main", "train-0")
    assert dict(owner.dims()) == {"job": "train-0", "namespace": "team-a"}
    assert found.process(41).devices == {"GPU-5a"}
    assert found.missing == {}


def test_a_pod_that_comes_later_is_looked_up_once(host):
    host.write(f"var/log/pods/team-a_train-0_{POD}/main/0.log", "")
    host.process(41, f"{KUBE}/cri-containerd-{CONTAINER}.scope")
    found = host.owners()
    assert owner_of(found, 41).pod == "train-0"
    later = POD.replace("4415", "5526")
    host.write(f"var/log/pods/team-b_serve_{later}/main/0.log", "")
    host.process(42, f"{KUBE}/cri-containerd-{CONTAINER}.scope".replace("4415", "5526").replace("713a", "813a"))
    assert dict(owner_of(found, 42).dims()) == {"job": "serve", "namespace": "team-b"}


def test_a_pid_that_is_used_again_has_another_owner(host):
    host.process(41, SLURM_JOB)
    found = host.owners()
    assert owner_of(found, 41).job == "7"
    (host.proc / "41").rename(host.proc / "gone")
    assert owner_of(found, 41) is None
    host.process(41, SLURM_JOB.replace("job_7", "job_8"), began=501)
    assert owner_of(found, 41).job == "8"
    (host.proc / "41").rename(host.proc / "gone2")  # and without a tick in between
    host.process(41, SLURM_JOB.replace("job_7", "job_9"), began=502)
    assert owner_of(found, 41).job == "9"


def test_a_process_that_is_moved_into_the_cgroup_of_a_job_belongs_to_it_from_then_on(host):
    host.process(41, "/user.slice/user-1000.slice/session-3.scope", SLURM_JOB_PARTITION="h100")
    found = host.owners()
    assert owner_of(found, 41)[:2] == ("user", "ada")
    for number in ("7", "8"):
        host.write("proc/41/cgroup", f"0::{SLURM_JOB.replace('job_7', f'job_{number}')}\n")
        owner = owner_of(found, 41)
        assert (owner.job, owner.partition, owner.cgroup[-5:]) == (number, "h100", f"job_{number}")


def test_a_process_that_moves_late_belongs_to_its_new_job_after_eight_readings_at_most(host, monkeypatch):
    host.process(41, SLURM_JOB)
    reads = []
    monkeypatch.setattr(owners, "read", lambda file, *size, to=owners.read: reads.append(str(file)) or to(file, *size))
    found = host.owners()
    for _ in range(10 * owners.SETTLED):
        assert owner_of(found, 41).job == "7"
    looks = sum(file.endswith("/41/cgroup") for file in reads)
    assert looks <= 2 * owners.SETTLED + 2, "of a process that stays, only every eighth reading looks"
    host.write("proc/41/cgroup", f"0::{SLURM_JOB.replace('job_7', 'job_8')}\n")
    assert owner_of(found, 41)
    assert "8" in [owner_of(found, 41).job for _ in range(owners.SETTLED - 1)]
    assert found.process(41).owner.job == "8"


@pytest.mark.parametrize(
    "later", ["4:memory:/\n0::/\n", "4:memory:/\n0::/system.slice/slurmd.service\n", "", f"0::{SLURM_JOB} (deleted)\n"]
)
def test_a_process_that_ends_stays_with_its_job(host, later):
    host.process(41, SLURM_JOB)
    found = host.owners()
    first = owner_of(found, 41)
    host.write("proc/41/cgroup", later)
    for _ in range(2):
        assert owner_of(found, 41) is first


def test_the_most_important_kind_of_several_hierarchies_counts(host):
    host.process(41, "/")
    lines = f"4:memory:/docker/{CONTAINER}\n3:cpu:/slurm/uid_1000/job_9/step_0/task_0\n0::/system.slice/a.service\n"
    host.write("proc/41/cgroup", lines)
    assert owner_of(host.owners(), 41).job == "9"


def test_pids_of_drivers_have_no_owner_where_proc_is_not_the_machines(host):
    host.process(41, SLURM_JOB)
    host.write("proc/2/stat", "2 (sh) S 1 1\n")
    found = host.owners()
    assert owner_of(found, 41) is None
    assert "hostPID" in found.missing["pids"]
    assert found.process(41).owner.job == "7", "a process of this /proc itself is known"


def test_a_proc_that_hides_the_processes_of_others_is_reported(host):
    host.process(41, SLURM_JOB)
    found = host.owners()
    assert set(found.of_drivers([41, 42])) == {41}
    assert "hidepid" in found.missing["processes"]
    host.process(1, "/init.scope", uid=0)
    ended = host.owners()
    ended.of_drivers([41, 42])
    assert ended.missing == {}


def test_no_more_processes_are_kept_than_the_limit(host, monkeypatch):
    monkeypatch.setattr(owners, "MAX_PROCESSES", 3)
    found = host.owners()
    for pid in range(41, 51):
        host.process(pid, SLURM_JOB)
        assert owner_of(found, pid)
    assert len(found._known) == 3


def test_without_the_right_to_read_an_environment_the_partition_is_unknown_and_said_so(host, monkeypatch):
    host.process(41, SLURM_JOB, SLURM_JOB_PARTITION="h100")
    opens = Path.open

    def refuse(path, *mode, **more):
        if path.name == "environ":
            raise PermissionError(13, "Permission denied")
        return opens(path, *mode, **more)

    monkeypatch.setattr(Path, "open", refuse)
    found = host.owners()
    owner = owner_of(found, 41)
    assert (owner.kind, owner.job, owner.step, owner.partition) == ("slurm", "7", "batch", "")
    assert "CAP_SYS_PTRACE" in found.missing["environment"]


USERS_OWN = "/user.slice/user-1000.slice/user@1000.service"


@pytest.mark.parametrize(
    "made",
    [
        "/slurmstepd.scope/job_9/step_0",
        "/app.slice/slurm/uid_0/job_9/step_0",
        f"{KUBE}/cri-containerd-{CONTAINER}.scope",
        f"/cri-containerd-{CONTAINER}.scope",
        f"/ecs/{POD}/{CONTAINER}",
        f"/docker-{CONTAINER}.scope",
        f"/user.slice/libpod-{CONTAINER}.scope/container",
        "/lxc.payload.trainer",
        "/system.slice/jupyterhub.service",
    ],
)
def test_a_cgroup_that_a_user_may_make_names_nobody_else(host, made):
    host.process(41, f"{USERS_OWN}{made}")
    assert owner_of(host.owners(), 41)[:2] == ("user", "ada")
    host.process(42, f"{SLURM_JOB}{USERS_OWN}{made}")
    assert owner_of(host.owners(), 42).job == "7", "a job of Slurm cannot leave it so"
    host.process(43, f"/system.slice/docker-{CONTAINER}.scope{USERS_OWN}{made}")
    assert owner_of(host.owners(), 43).job == CONTAINER[:12]


def test_names_that_are_not_text_are_shown_with_escapes(host):
    raw = b"0::/system.slice/\xff.service\n"
    host.process(41, "/")
    (host.proc / "41/cgroup").write_bytes(raw)
    (host.folder / "etc/passwd").write_bytes(b"\xfcda:x:1000:1000::/:/bin/sh\n")
    owner = owner_of(host.owners(), 41)
    assert (owner.job, owner.unit, owner.user) == ("\\udcff.service", "\\udcff.service", "\\udcfcda")
    json.dumps(owner[:-2], ensure_ascii=False).encode()
    assert os.fsencode(owner.cgroup) == b"/system.slice/\xff.service", "the path itself stays as it is"


@pytest.mark.parametrize("partition", [b"a\nb", b"\xff", b"p" * 65, b"x=1,y", b"../..", b""])
def test_a_variable_of_a_process_is_a_partition_only_if_it_looks_like_one(host, partition):
    host.process(41, SLURM_JOB)
    (host.proc / "41/environ").write_bytes(b"SLURM_JOB_PARTITION=" + partition + b"\0")
    assert owner_of(host.owners(), 41).partition == ""


@pytest.mark.parametrize("gone", ["status", "cgroup"])
def test_a_process_that_ends_while_it_is_read_has_no_owner(host, gone):
    host.process(41, SLURM_JOB)
    (host.proc / "41" / gone).unlink()
    assert owner_of(host.owners(), 41) is None


def test_a_user_at_the_end_of_what_is_read_of_the_password_file_is_not_another_one(host, monkeypatch):
    host.write("etc/passwd", "ada:x:1000:1000::/home/ada:/bin/sh\n")
    monkeypatch.setattr(owners, "MAX_BYTES", len("ada:x:100"))
    host.process(41, "/", uid=100)
    assert owner_of(host.owners(), 41).job == "100"


@pytest.mark.parametrize(
    ("listed", "devices"),
    [("0-3", "0123"), ("0-1,5", "015"), ("7", "7"), ("0-9999", range(256)), ("3-0", ""), ("-1", ""), ("0-", ""), ("NoDevFiles", "")],
)  # fmt: skip
def test_the_gpus_of_a_step_may_be_ranges(host, listed, devices):
    host.process(41, SLURM_JOB, SLURM_STEP_GPUS=listed)
    assert host.owners().process(41).devices == {*map(str, devices)}


SLUID = "s8FXKTA79XAR00"
SLUID_JOB = f"/system.slice/slurmstepd.scope/{SLUID}"
OF_SLUID = {"SLURM_JOB_SLUID": SLUID, "SLURM_JOB_ID": "3385"}


def sluid_host(host, *, title="slurmstepd: [3385.batch]\0", **environ) -> Owners:
    """Write a job of Slurm 26.05 with a slurmstepd, and return the owners of this machine."""
    host.write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    host.write(f"sys/fs/cgroup{SLUID_JOB}/step_batch/slurm/cgroup.procs", "40\n")
    host.write("proc/40/cmdline", title)
    host.process(41, f"{SLUID_JOB}/step_batch/user/task_special", SLURM_JOB_PARTITION="h100", **environ)
    return Owners(host.proc, host.folder, host.folder / "var/log", host.folder / "sys")


@pytest.mark.parametrize("title", ["[3385.batch]", "[3385.0]", "[3385.extern stepmgr]", "[3385.0+1]"])
def test_slurmstepd_names_the_number_of_a_job_whose_cgroup_has_a_sluid(host, title):
    found = sluid_host(host, title=f"slurmstepd: {title}\0\0\0", SLURM_JOB_ID="9", SLURM_JOB_SLUID=SLUID)
    owner = owner_of(found, 41)
    assert (owner.kind, owner.job, owner.step, owner.user, owner.partition) == ("slurm", "3385", "batch", "ada", "h100")
    assert owner.cgroup == SLUID_JOB
    assert [*found.numbers.sources] == ["slurmstepd"], "a user can write the environment, not this"
    assert found.missing == {}


@pytest.mark.parametrize(
    "title", ["", "python train.py\0", "slurmstepd: [s8FXKTA79XAR00.batch]\0", "/usr/sbin/slurmstepd\0infinity\0"]
)
def test_the_prolog_names_it_where_slurmstepd_cannot_be_read_then_the_environment(host, title):
    found = sluid_host(host, title=title, **OF_SLUID)
    assert owner_of(found, 41).job == "3385"
    assert [*found.numbers.sources] == ["their environment"]
    host.write(f"run/slurm/dcgm-job-mapping/{SLUID}", "3386\n")
    found = sluid_host(host, title=title, **OF_SLUID)
    assert owner_of(found, 41).job == "3386"
    assert [*found.numbers.sources] == ["the prolog"]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "3385"},
        {**OF_SLUID, "SLURM_JOB_SLUID": SLUID.replace("8", "9")},
        {**OF_SLUID, "SLURM_JOB_ID": "0"},
        {**OF_SLUID, "SLURM_JOB_ID": "7 8"},
    ],
)
def test_a_job_that_nothing_names_is_shown_by_its_sluid_and_said_so(host, environ):
    found = sluid_host(host, title="", **environ)
    assert owner_of(found, 41).job == SLUID
    assert "CgroupJobIdPaths=yes" in found.missing["sluid"]


def test_a_job_keeps_its_number_when_slurmstepd_is_gone(host):
    found = sluid_host(host)
    assert owner_of(found, 41).job == "3385"
    (host.proc / "40/cmdline").unlink()
    host.process(42, f"{SLUID_JOB}/step_0/user/task_0")
    assert owner_of(found, 42).job == "3385"


def test_jobs_of_several_slurmd_have_their_own_numbers(host):
    found = sluid_host(host)
    other = SLUID_JOB.replace("slurmstepd", "node2_slurmstepd").replace("8F", "9F")
    host.write(f"sys/fs/cgroup{other}/step_0/slurm/cgroup.procs", "50\n51\n")
    host.write("proc/51/cmdline", "slurmstepd: [77.0]")
    host.process(52, f"{other}/step_0/user/task_0")
    assert [owner_of(found, pid).job for pid in (41, 52)] == ["3385", "77"]


@pytest.mark.parametrize(
    "part",
    [
        "/kubepods",
        "kubepods/pod",
        "/kubepods-pod4415fd05",
        "/docker-",
        "/ecs/",
        "/slurm/uid_1",
        "/slurmstepd.scope/s5K1KKYAYG5D00",
        "/lxc/",
        "/lxc.payload.",
        "/..",
        "/../pod",
        "/a.service",
    ],
)
def test_a_path_made_to_cost_time_costs_little(part):
    began = time.process_time()
    for _ in range(10):
        parse(part * (16_000 // len(part)))
    assert time.process_time() - began < 2, "it took 1.5 s for each"


def test_a_file_is_read_from_its_start_and_is_not_left_open(tmp_path, newly_open):
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read(tmp_path / "file", 4) == b"0123"
    assert read(tmp_path) == b""
    assert not newly_open()
