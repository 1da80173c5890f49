import os
import shutil
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.host import cgroup
from chipwatch.host.cgroup import ROWS, Cgroup, CgroupFolder, GroupFiles, cpu_list, effective, of_process

FIXTURES = Path(__file__).parents[2] / "fixtures/cgroup"
LINUX = pytest.mark.skipif(not Path("/proc/self/cgroup").exists(), reason="no cgroups here")
V2_MOUNT = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "4{n} 30 0:3{n} {root} /sys/fs/cgroup/{name} ro,nosuid master:12 - cgroup cgroup rw,{name}\n"
MIB = 1 << 20


class Machine:
    """A /proc and a /sys in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        self.write(
            self.proc / "stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\ncpu1 1 2 3 4\ncpu2 1 2 3 4\ncpu3 1 2 3 4\nbtime 1000\n"
        )
        self.write(self.proc / "meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(self, cgroup: str, mountinfo: str, pid: str = "self") -> None:
        self.write(self.proc / pid / "cgroup", cgroup)
        self.write(self.proc / "self/mountinfo", mountinfo)

    def group(self, path: str, **files: str) -> Path:
        folder = self.sys / "fs/cgroup" / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".", 1)).write_text(text)
        return folder

    def find(self, pid: int | None = None) -> Cgroup:
        return of_process(self.proc, self.sys, pid)

    def effective(self, pid: int | None = None, **more: bool) -> tuple[float | None, int | None]:
        return effective(self.proc, self.find(pid), pid, **more)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def v1_mounts(root: str = "/", *names: str) -> str:
    return "".join(V1_MOUNT.format(n=n, root=root, name=name) for n, name in enumerate(names))


def test_v2_leaf_with_its_ancestors_up_to_the_mount(machine):
    machine.process("0::/a.slice/b.service\n", V2_MOUNT.format(root="/"))
    own = machine.group("a.slice/b.service")
    assert machine.find().folders == {
        "": CgroupFolder(v2=True, path="/a.slice/b.service", chain=(own, own.parent, own.parents[1]))
    }


def test_v2_the_lowest_limit_of_all_ancestors_applies(machine):
    machine.process("0::/pod/box\n", V2_MOUNT.format(root="/"))
    machine.group("pod", cpu__max="150000 100000\n", memory__max=f"{512 * MIB}\n")
    machine.group("pod/box", cpu__max="400000 100000\n", memory__max="max\n")
    assert machine.effective() == (1.5, 512 * MIB)


def test_v2_root_of_a_cgroup_namespace_has_its_files_in_the_mount(machine):
    machine.process("0::/\n", V2_MOUNT.format(root="/"))
    folder = machine.group("", cpu__max="50000 100000\n", memory__max=f"{MIB}\n")
    assert machine.find().folders[""].chain == (folder,)
    assert machine.effective() == (0.5, MIB)


def test_v2_a_process_outside_the_namespace_is_found_under_the_mount_that_shows_it(machine, tmp_path):
    host = tmp_path / "host/sys/fs/cgroup"
    (host / "system.slice/x.service").mkdir(parents=True)
    machine.group("")
    outside = f"31 23 0:26 /../.. {host} ro - cgroup2 cgroup2 rw\n"
    machine.process("0::/../../system.slice/x.service\n", V2_MOUNT.format(root="/") + outside, pid="77")
    assert machine.find(77).folders[""].chain[0] == host / "system.slice/x.service"
    machine.process("0::/../elsewhere\n", V2_MOUNT.format(root="/"), pid="78")
    assert machine.find(78).folders == {}


def test_v1_the_root_of_the_mount_is_removed_from_the_path(machine):
    machine.process(
        "5:memory:/docker/0ac9/sub\n4:cpu,cpuacct:/docker/0ac9\n", v1_mounts("/docker/0ac9", "memory", "cpu,cpuacct")
    )
    memory, cpu = machine.group("memory/sub"), machine.group("cpu,cpuacct")
    assert machine.find().folders == {
        "memory": CgroupFolder(v2=False, path="/docker/0ac9/sub", chain=(memory, memory.parent)),
        "cpu": CgroupFolder(v2=False, path="/docker/0ac9", chain=(cpu,)),
        "cpuacct": CgroupFolder(v2=False, path="/docker/0ac9", chain=(cpu,)),
    }


def test_v1_limits_of_ancestors_apply_and_its_largest_number_is_not_a_limit(machine):
    machine.process("5:memory:/a/b\n4:cpu:/a/b\n", v1_mounts("/", "memory", "cpu"))
    machine.group("memory/a/b", memory__limit_in_bytes="9223372036854771712\n")
    machine.group("cpu/a/b", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert machine.find().memory_limit() is None
    assert machine.effective() == (4, 16 << 30)
    machine.group("memory/a", memory__limit_in_bytes=f"{MIB}\n")
    machine.group("cpu/a", cpu__cfs_quota_us="250000\n", cpu__cfs_period_us="100000\n")
    assert machine.effective() == (2.5, MIB)


def test_hybrid_a_controller_of_v1_is_not_searched_in_v2(machine):
    machine.process((FIXTURES / "hybrid.cgroup").read_text(), (FIXTURES / "hybrid.mountinfo").read_text())
    for name in "cpu", "cpuacct", "cpuset", "memory/box/1c9752be162f2eef78b327c1a8e04ab4":
        machine.group(name)
    machine.group("unified", memory__max="1\n", cpu__max="1000 100000\n")
    machine.group("memory/box", memory__limit_in_bytes=f"{64 * MIB}\n")
    machine.group("cpuset", cpuset__effective_cpus="0-1\n", cpuset__cpus="0-3\n")
    found = machine.find()
    assert sorted(found.folders) == ["", "cpu", "cpuacct", "cpuset", "memory"]
    assert (found.cpu_quota(), found.cpuset(), found.memory_limit()) == (None, 2, 64 * MIB)


def test_the_nearest_cpuset_counts_where_the_own_cgroup_has_none(machine):
    machine.process("0::/a/b\n", V2_MOUNT.format(root="/"))
    machine.group("a/b")
    (machine.group("a") / "cpuset.cpus.effective").write_text("0,2-3\n")
    assert machine.find().cpuset() == 3


def test_the_affinity_counts_online_cpus_only(machine):
    machine.write(
        machine.proc / "77/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t1-127\nMems_allowed:\t1\n"
    )
    assert machine.effective(77) == (3, 16 << 30)
    assert machine.effective(77, pinned=False) == (4, 16 << 30)


@pytest.mark.parametrize("garbage", ["", "0 100000", "0 0", "100000 0", "-5 100000", "max", "1", "x y", "1e5 1"])
def test_a_quota_that_makes_no_sense_limits_nothing(machine, garbage):
    machine.process("0::/box\n", V2_MOUNT.format(root="/"))
    machine.group("box", cpu__max=garbage, memory__max="0")
    assert machine.effective() == (4, 16 << 30)


def test_without_files_there_are_no_limits_and_no_usage(tmp_path):
    found = of_process(tmp_path, tmp_path)
    assert found.folders == {}
    assert effective(tmp_path, found) == (None, None)
    assert GroupFiles(found, *ROWS).read() == {}


def test_a_removed_cgroup_has_no_place(machine):
    machine.process("0::/gone (deleted)\n", V2_MOUNT.format(root="/"))
    machine.group("")
    assert machine.find().folders == {}


def test_odd_characters_in_paths(machine):
    machine.process("0::/a:b c\n", V2_MOUNT.format(root="/").replace("cgroup rw", "my\\040cgroup rw"))
    folder = machine.sys / "fs/my cgroup/a:b c"
    folder.mkdir(parents=True)
    assert machine.find().folders[""].chain[0] == folder


def test_v2_usage_of_a_captured_leaf(machine):
    machine.process("0::/box\n", V2_MOUNT.format(root="/"))
    shutil.copytree(FIXTURES / "v2", machine.sys / "fs/cgroup/box")
    usage = GroupFiles(machine.find(), "cpu", "throttled", "memory", "inactive", "oom_kills")
    assert [*usage.read().values()] == [98701325189_000, 19175137007_000, 13071106048, 2935459840, 0]
    assert (machine.find().cpu_quota(), machine.find().cpuset(), machine.find().memory_limit()) == (
        48,
        96,
        103079215104,
    )
    usage.close()
    usage.close()


def test_v1_usage(machine):
    machine.process("5:memory:/\n4:cpuacct:/\n3:cpu:/\n", v1_mounts("/", "memory", "cpuacct", "cpu"))
    machine.group("cpuacct", cpuacct__usage="34905000000\n")
    machine.group("cpu", cpu__stat="nr_periods 10\nnr_throttled 2\nthrottled_time 123456\nnr_bursts 0\n")
    machine.group(
        "memory",
        memory__usage_in_bytes="1000\n",
        memory__stat="cache 5\ninactive_file 7\ntotal_cache 5\ntotal_inactive_file 300\n",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    )
    assert GroupFiles(machine.find(), *ROWS).read() == {
        "cpu": 34905000000, "throttled": 123456, "periods": 10, "throttled_periods": 2, "memory": 1000, "inactive": 300,
        "swap": None, "oom_kills": 3,
    }  # fmt: skip


def test_the_kills_are_unknown_on_an_old_kernel_that_does_not_count_them(machine):
    machine.process("5:memory:/\n", v1_mounts("/", "memory"))
    machine.group("memory", memory__oom_control="oom_kill_disable 0\nunder_oom 0\n")
    assert GroupFiles(machine.find(), "oom_kills").read() == {"oom_kills": None}


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("5", {5}),
        ("", set()),
        ("\n", set()),
        ("a-b", set()),
        ("0-99999999999", set()),
        ("3-1", set()),
    ],
)
def test_lists_of_cpus(text, cpus):
    assert cpu_list(text) == cpus


@given(st.text())
def test_any_text_gives_cpus_within_the_bound(text):
    assert all(0 <= cpu <= cgroup.MAX_CPUS for cpu in cpu_list(text))


@LINUX
def test_limits_of_this_process_agree_with_the_system_calls():
    cpus, memory = effective(Path("/proc"), of_process(Path("/proc"), Path("/sys"), os.getpid()), os.getpid())
    assert cpus is not None
    assert 0 < cpus <= len(os.sched_getaffinity(0))
    assert memory is not None
    assert 0 < memory <= psutil.virtual_memory().total


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000, "-1", "1e3", "\u0663"])
def test_a_text_that_is_not_a_number_is_not_a_limit(tmp_path, text):
    for name, content in (("cpu.max", f"{text} 100000"), ("cpuset.cpus.effective", text), ("memory.max", text)):
        (tmp_path / name).write_text(content)
    own = Cgroup({"": CgroupFolder(v2=True, path="/", chain=(tmp_path,))})
    assert (own.cpu_quota(), own.cpuset(), own.memory_limit()) == (None, None, None)


def test_a_path_that_is_too_long_for_a_folder_has_no_place(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text(f"0::/{'a' * 5000}\n")
    (tmp_path / "self/mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n")
    assert of_process(tmp_path, tmp_path).folders == {}


def test_v2_a_sibling_of_a_namespace_deep_below_the_mount_is_found_by_its_name(machine, tmp_path):
    host = tmp_path / "host/sys/fs/cgroup"
    pods = host / "kubepods.slice/kubepods-burstable.slice"
    (pods / "kubepods-burstable-podb.slice/cri-containerd-2.scope").mkdir(parents=True)
    (pods / "kubepods-burstable-poda.slice/cri-containerd-1.scope").mkdir(parents=True)
    machine.group("")
    outside = f"31 23 0:26 /../../../.. {host} ro - cgroup2 cgroup2 rw\n"
    path = "/../../kubepods-burstable-podb.slice/cri-containerd-2.scope"
    machine.process(f"0::{path}\n", V2_MOUNT.format(root="/") + outside)
    expected = pods / "kubepods-burstable-podb.slice/cri-containerd-2.scope"
    assert machine.find().folders[""].chain[0] == expected
    assert cgroup.at(machine.proc, machine.sys, path).folders[""].chain[0] == expected
    assert cgroup.at(machine.proc, machine.sys, path.replace("podb", "pod[a-z]")).folders == {}
    assert cgroup.at(machine.proc, machine.sys, "/../..").folders == {}
