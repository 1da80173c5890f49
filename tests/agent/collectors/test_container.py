import shutil
from pathlib import Path

import pytest

from chipwatch.collectors.container import (
    CPU_THROTTLED,
    CPU_UTILIZATION,
    MEMORY_LIMIT,
    MEMORY_USED,
    MEMORY_UTILIZATION,
    OOM_KILLS,
    REFRESH,
    ContainerCollector,
)
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given

FIXTURES = Path(__file__).parents[2] / "fixtures/cgroup"
ID = "0ac949292b659a21e0037c91c7149f6fea12235ae4c5840d8448714081973154"
SECOND = 1_000_000_000
GIB = 1 << 30


class Box:
    """A folder with a process in a cgroup, on a machine of 4 CPUs and 16 GiB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 10 * SECOND
        self.write("proc/stat", "cpu  1\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\nbtime 1000\n")
        self.write("proc/meminfo", "MemTotal:       16777216 kB\n")
        self.write("proc/1/cgroup", f"0::/docker/{ID}\n")
        self.write("proc/1/stat", f"1 (init) S 0 1 1 {'0 ' * 15}500 0 0 0\n")
        self.mount("/")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def mount(self, root: str) -> None:
        self.write("proc/self/mountinfo", f"30 23 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")

    def inside(self, path: str, directory: str | None = None) -> Path:
        """Move the process to the cgroup `path`, a copy of a captured one."""
        self.write("proc/self/cgroup", f"0::{path}\n")
        folder = self.folder / "sys/fs/cgroup" / (path if directory is None else directory).strip("/")
        shutil.copytree(FIXTURES / "v2", folder, dirs_exist_ok=True)
        return folder

    def collector(self, when="auto", environ=None) -> ContainerCollector:
        config = ContainerCollector.Config(self.folder / "proc", self.folder / "sys", self.folder, when)
        collector = ContainerCollector(config, environ or {})
        collector._clock = lambda: self.now
        return collector

    def opened(self, level=Level.ALL, **more) -> ContainerCollector:
        collector = self.collector(**more)
        collector.open(Given(level=level))
        return collector


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


def values(points):
    return {point.metric: point.value for point in points}


def test_a_captured_cgroup_of_v2_gives_all_metrics(box):
    box.inside(f"/docker/{ID}")
    collector = box.opened()
    points = list(collector.collect(7))
    used = 13071106048 - 2935459840
    assert values(points) == {
        MEMORY_USED: used,
        MEMORY_UTILIZATION: 100 * used / (16 * GIB),
        MEMORY_LIMIT: 16 * GIB,  # the file allows 96 GiB, the machine has less
        CPU_THROTTLED: 19175.137007,
        OOM_KILLS: 0,
    }
    assert {point.at for point in points} == {7}
    assert {point.start_time for point in points if point.metric in (CPU_THROTTLED, OOM_KILLS)} == {1005 * SECOND}
    assert collector.describe() == f"{box.folder}/sys/fs/cgroup/docker/{ID}, 4 CPUs, 16.0 GiB"
    collector.close()
    collector.close()


def test_level_basic_leaves_out_detailed_metrics(box):
    box.inside(f"/docker/{ID}")
    assert set(values(box.opened(level=Level.BASIC).collect(0))) == {MEMORY_USED, MEMORY_UTILIZATION, MEMORY_LIMIT}


def test_cpu_utilization_is_the_share_of_the_quota(box):
    folder = box.inside(f"/docker/{ID}")
    (folder / "cpu.max").write_text("200000 100000\n")
    (folder / "cpu.stat").write_text("usage_usec 1000000\n")
    collector = box.opened()
    assert CPU_UTILIZATION not in values(collector.collect(0))
    box.now += 5 * SECOND
    (folder / "cpu.stat").write_text("usage_usec 3500000\n")
    assert values(collector.collect(0))[CPU_UTILIZATION] == 25.0
    box.now += 5 * SECOND
    (folder / "cpu.stat").write_text("usage_usec 14500000\n")  # a burst: 110 % of the quota
    assert values(collector.collect(0))[CPU_UTILIZATION] == 100.0


def test_a_counter_that_fell_gives_no_value_once(box):
    folder = box.inside(f"/docker/{ID}")
    collector = box.opened()
    for usage, expected in (50_000_000, None), (1_000_000, None), (3_000_000, 50.0):
        (folder / "cpu.stat").write_text(f"usage_usec {usage}\n")
        points = values(collector.collect(0))
        assert points.get(CPU_UTILIZATION) == expected
        assert CPU_THROTTLED not in points
        box.now += SECOND


def test_limits_are_read_again_after_a_minute(box):
    folder = box.inside(f"/docker/{ID}")
    collector = box.opened()
    (folder / "memory.max").write_text(f"{8 * GIB}\n")
    assert values(collector.collect(0))[MEMORY_LIMIT] == 8 * GIB
    (folder / "memory.max").write_text(f"{4 * GIB}\n")
    assert values(collector.collect(0))[MEMORY_LIMIT] == 8 * GIB
    box.now += REFRESH
    assert values(collector.collect(0))[MEMORY_LIMIT] == 4 * GIB


def test_moving_to_another_cgroup_gives_no_share_once(box):
    folder = box.inside(f"/docker/{ID}")
    (folder / "cpu.stat").write_text("usage_usec 0\n")
    collector = box.opened()
    list(collector.collect(0))
    other = box.inside(f"/docker/{ID[::-1]}")
    (other / "cpu.stat").write_text("usage_usec 9000000\n")
    (other / "memory.current").write_text(f"{GIB}\n")
    (other / "memory.stat").write_text("inactive_file 0\n")
    box.now += REFRESH
    points = values(collector.collect(0))
    assert CPU_UTILIZATION not in points
    assert points[MEMORY_USED] == GIB
    box.now += SECOND
    (other / "cpu.stat").write_text("usage_usec 11000000\n")
    assert values(collector.collect(0))[CPU_UTILIZATION] == 50.0


def test_the_working_set_is_never_below_zero(box):
    (box.inside(f"/docker/{ID}") / "memory.stat").write_text(f"inactive_file {99 * GIB}\n")
    assert values(box.opened().collect(0))[MEMORY_USED] == 0


def test_a_removed_cgroup_is_reported_and_searched_again(box, monkeypatch):
    box.inside(f"/docker/{ID}")
    collector = box.opened()
    list(collector.collect(0))

    def gone():
        raise OSError(19, "No such device")

    monkeypatch.setattr(collector._usage, "read", gone)
    with pytest.raises(PartlyCollected, match="is gone: No such device"):
        list(collector.collect(0))
    monkeypatch.undo()
    points = values(collector.collect(0))
    assert MEMORY_USED in points
    assert CPU_UTILIZATION not in points


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"/docker/{ID}", f"/docker/{ID}"),
        (f"/system.slice/docker-{ID}.scope", f"/system.slice/docker-{ID}.scope"),
        (f"/kubepods/burstable/poda2ebe2cd/{ID}", f"/kubepods/burstable/poda2ebe2cd/{ID}"),
        (f"/kubepods/pod1bf924dd-3f6f/{ID}/init.scope", f"/kubepods/pod1bf924dd-3f6f/{ID}"),
        (f"/kubepods.slice/kubepods-podx.slice/cri-containerd-{ID}.scope",) * 2,
        (f"/kubepods.slice/kubepods-podx.slice/crio-{ID}.scope",) * 2,
        (f"/system.slice/containerd.service/kubepods-podx.slice:cri-containerd:{ID}",) * 2,
        (f"/machine.slice/libpod-{ID}.scope/container", f"/machine.slice/libpod-{ID}.scope"),
        (f"/ecs/1f2e/{ID}", f"/ecs/1f2e/{ID}"),
        ("/garden/5d1c", "/garden/5d1c"),
        ("/lxc/web/user.slice", "/lxc/web"),
        ("/lxc.payload.web/init.scope", "/lxc.payload.web"),
        ("/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", "/system.slice/slurmstepd.scope/job_123"),
        ("/slurm/uid_1000/job_7/step_batch", "/slurm/uid_1000/job_7"),
        (f"/docker/{ID}/kubelet/kubepods/pod1/aa", f"/docker/{ID}/kubelet/kubepods/pod1/aa"),
    ],
)
def test_the_innermost_container_is_detected_by_its_path(box, path, container):
    box.inside(path)
    expected = box.inside(path, container)
    (expected / "memory.current").write_text(f"{3 * GIB}\n")
    (expected / "memory.stat").write_text("inactive_file 0\n")
    collector = box.opened()
    assert values(collector.collect(0))[MEMORY_USED] == 3 * GIB


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/init.scope",
        "/system.slice/chipwatch.service",
        "/user.slice/user-1000.slice/session-2.scope",
        "/system.slice/docker.service",
        "/system.slice/containerd.service",
        "/machine.slice/libpod-conmon-ab.scope",
        "/lxc.monitor.web",
    ],
)
def test_a_service_or_a_session_is_not_a_container(box, path):
    if path == "/":
        (box.folder / "sys/fs/cgroup").mkdir(parents=True)
        box.write("proc/self/cgroup", "0::/\n")
    else:
        box.inside(path)
    with pytest.raises(Unavailable) as caught:
        box.opened()
    assert f"the cgroup is {path}," in str(caught.value)
    assert 'collectors.container.when = "always"' in str(caught.value)
    assert values(box.opened(when="always").collect(0)) is not None


@pytest.mark.parametrize("path", ["/", "/init.scope"])
def test_the_root_of_a_cgroup_namespace_is_a_container(box, path):
    box.inside(path)
    root = box.inside(path, "/")
    (root / "memory.current").write_text(f"{5 * GIB}\n")
    (root / "memory.stat").write_text("inactive_file 0\n")
    assert values(box.opened().collect(0))[MEMORY_USED] == 5 * GIB


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv", ""])
def test_a_marker_file_of_the_runtime_or_the_variable_means_a_container(box, mark):
    box.inside("/app.service")
    if mark:
        box.write(mark, "")
    environ = {} if mark else {"container": "systemd-nspawn"}
    assert MEMORY_USED in values(box.opened(environ=environ).collect(0))


def test_when_never_the_collector_is_unavailable(box):
    box.inside(f"/docker/{ID}")
    with pytest.raises(Unavailable, match="never"):
        box.opened(when="never")


def test_without_a_cgroup_the_message_says_where_it_looked(box):
    with pytest.raises(Unavailable, match=r"proc/self/cgroup"):
        box.opened(when="always")


def test_on_v1_only_the_jobs_controllers_are_reported(box):
    box.write(
        "proc/self/mountinfo",
        "40 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "41 30 0:31 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n",
    )
    box.write("proc/self/cgroup", "5:memory:/slurm/uid_0/job_12/step_0/task_0\n4:cpuacct:/\n")
    memory = "sys/fs/cgroup/memory/slurm/uid_0/job_12"
    box.write(f"{memory}/step_0/task_0/memory.usage_in_bytes", "1\n")
    box.write(f"{memory}/memory.usage_in_bytes", f"{2 * GIB}\n")
    box.write(f"{memory}/memory.stat", f"total_inactive_file {GIB}\n")
    box.write(f"{memory}/memory.limit_in_bytes", f"{4 * GIB}\n")
    box.write("sys/fs/cgroup/cpuacct/cpuacct.usage", "1000\n")
    assert values(box.opened().collect(0)) == {MEMORY_USED: GIB, MEMORY_UTILIZATION: 25.0, MEMORY_LIMIT: 4 * GIB}


def test_the_agents_affinity_is_used_only_without_a_cpu_set(box):
    folder = box.inside(f"/docker/{ID}")
    box.write("proc/self/status", "Cpus_allowed_list:\t2\n")
    collector = box.opened()
    list(collector.collect(0))
    assert collector._limits.cpus == 4
    (folder / "cpuset.cpus.effective").unlink()
    box.now += REFRESH
    list(collector.collect(0))
    assert collector._limits.cpus == 1


def starts(points):
    return {point.start_time for point in points if point.metric in (CPU_THROTTLED, OOM_KILLS)}


def test_the_counters_of_a_service_start_at_their_first_reading_since_process_1_is_older(box):
    """Or in a container that has the machine's PIDs: a restart makes a new cgroup, whose counters begin at 0."""
    box.write("proc/1/cgroup", "0::/init.scope\n")
    folder = box.inside(f"/docker/{ID}")
    for at in (7, 70):
        box.now += REFRESH
        collector = box.opened()
        assert starts(collector.collect(at)) == {at}
        assert starts(collector.collect(at + 1)) == {at}
        (folder / "cpu.stat").write_text("usage_usec 0\nthrottled_usec 0\n")


def test_counters_of_another_cgroup_have_another_start(box):
    box.inside(f"/docker/{ID}")
    collector = box.opened()
    assert starts(collector.collect(7)) == {1005 * SECOND}
    box.inside(f"/docker/{ID[::-1]}")
    box.now += REFRESH
    assert starts(collector.collect(1010 * SECOND)) == {1010 * SECOND}
