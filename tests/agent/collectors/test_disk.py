import errno
import os
import shutil
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from tests.told import reading

from chipwatch.collectors.disk import (
    AVAILABLE,
    BUSY,
    DEVICE_READ,
    DEVICE_WRITTEN,
    INODES,
    OPERATIONS,
    READ,
    USED,
    UTILIZATION,
    WRITTEN,
    DiskCollector,
    whole_disks,
)
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given

HOST = Path(__file__).parents[2] / "fixtures/host"
PROC = HOST / "node_exporter/proc"
BOOT = 1418183276 * 10**9
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
SPACE = SimpleNamespace(f_blocks=1000, f_bfree=400, f_bavail=200, f_frsize=4096, f_files=200, f_ffree=150)
LONG = 60.0


def statvfs(path: str) -> SimpleNamespace:
    return SPACE


@pytest.fixture
def host(tmp_path):
    """A /proc whose files can be rewritten."""
    (tmp_path / "self").mkdir()
    for name in ("stat", "diskstats", "self/mountinfo"):
        shutil.copyfile(PROC / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def opened(begun):
    """Open a collector."""

    def make(proc: Path, statvfs=statvfs, level: Level = Level.BASIC, **config) -> DiskCollector:
        config.setdefault("sys", proc / "no-sys")
        return begun(DiskCollector(DiskCollector.Config(proc=proc, **config), statvfs), level)

    return make


def write(proc: Path, **disks: tuple[int, int]) -> None:
    """Write a diskstats with the sectors read and written by each disk."""
    lines = [f"   8       0 {name} 1 0 {read} 1 1 0 {written} 1 0 1 1\n" for name, (read, written) in disks.items()]
    (proc / "diskstats").write_text("".join(lines))


def sums(collector: DiskCollector) -> tuple[float, float] | None:
    found = {p.metric: p.value for p in collector.collect(at=7)}
    return (found[READ], found[WRITTEN]) if READ in found else None


def partly(collector: DiskCollector):
    """Return the points and the problems of a reading that fails partly."""
    points, problems = reading(collector)
    assert problems
    return points, problems


def test_utilization_is_the_share_of_the_space_for_users(host, opened):
    root = Dimensions(path="/")
    assert INODES not in {p.metric for p in opened(host).collect(at=7)}, "of level detailed"
    assert list(opened(host, level=Level.DETAILED).collect(at=7))[:4] == [
        UTILIZATION.point(7, 75.0, root),
        USED.point(7, 600 * 4096, root),
        AVAILABLE.point(7, 200 * 4096, root),
        INODES.point(7, 25.0, root),
    ]


@pytest.mark.parametrize(
    ("odd", "left"),
    [
        ({"f_files": 0, "f_ffree": 0}, {UTILIZATION, USED, AVAILABLE}),  # as btrfs, whose inodes are not fixed
        (dict.fromkeys(("f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree"), 0), set()),  # as /proc
        ({"f_bfree": 1001, "f_bavail": 1001, "f_ffree": 201}, set()),  # more is free than there is
    ],
)
def test_what_a_file_system_does_not_have_is_absent(host, opened, odd, left):
    space = SimpleNamespace(**vars(SPACE) | odd)
    points = opened(host, lambda _: space, Level.DETAILED).collect(at=7)
    assert {p.metric for p in points} == left | {READ, WRITTEN}


def test_a_path_is_read_under_the_root_and_has_the_hosts_name(host, opened):
    asked = []

    def statvfs(path):
        asked.append(path)
        return SPACE

    points = list(opened(host, statvfs, paths=("/", "/data/"), root=Path("/host")).collect(at=7))
    assert asked == ["/host", "/host/data"]
    assert [p.dims["path"] for p in points if p.metric is USED] == ["/", "/data/"]


def test_only_a_local_mount_point_is_read_on_the_collectors_thread(host, opened):
    threads = {}

    def statvfs(path):
        threads[path] = threading.current_thread()
        return SPACE

    list(opened(host, statvfs, paths=("/", "/home", "/mnt/nfs/test")).collect(at=7))
    assert threads["/"] is threading.current_thread()
    assert threads["/home"] is not threading.current_thread()
    assert threads["/mnt/nfs/test"] is not threading.current_thread()


@pytest.mark.parametrize(("paths", "waits"), [(("/",), False), (("/", "/mnt/nfs/test"), True), (("/home", "/"), True)])
def test_the_clocks_thread_reads_it_unless_a_file_system_may_hang(host, opened, paths, waits):
    assert opened(host, lambda _: SPACE, paths=paths).waits() is waits


def test_a_file_system_that_hangs_loses_only_its_own_points_and_is_called_once(host, opened):
    released, calls = threading.Event(), []

    def statvfs(path):
        if path == "/mnt/nfs/test":
            calls.append(threading.current_thread())
            released.wait(LONG)
        return SPACE

    collector = opened(host, statvfs, paths=("/mnt/nfs/test", "/"))
    for at in (7, 8, 10 * 10**9):
        points, problems = reading(collector, at)
        assert [p.dims["path"] for p in points if p.metric is USED] == ["/"]
        assert {READ, WRITTEN} <= {p.metric for p in points}
        assert problems == ["statvfs of /mnt/nfs/test does not return (nfs4 192.168.1.1:/srv/test)"]
    assert len(calls) == 1
    released.set()
    collector._paths[0].blocking_call.close()
    calls[0].join(LONG)
    points, _ = reading(collector, 20 * 10**9)
    assert [p.dims["path"] for p in points if p.metric is USED] == ["/mnt/nfs/test", "/"]


def test_a_missing_path_is_named(host, opened):
    def statvfs(path):
        if path == "/gone":
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return SPACE

    points, problems = partly(opened(host, statvfs, paths=("/gone", "/")))
    assert problems == ["statvfs of /gone: No such file or directory"]
    assert [p.dims["path"] for p in points if p.metric is USED] == ["/"]


def test_only_whole_physical_disks_are_summed(host, opened):
    points = [p for p in opened(host, level=Level.ALL).collect(at=7) if p.metric in (READ, WRITTEN, DEVICE_READ)]
    assert points[:2] == [READ.point(7, 0, start_time=7), WRITTEN.point(7, 0, start_time=7)]
    sectors = [1003346126, 1560, 32670882, 4643973, 9657779, 1657779]
    assert sorted(p.value for p in points[2:]) == sorted(count * 512 for count in sectors)


def test_level_all_adds_the_counters_of_each_disk(host, opened):
    points = [p for p in opened(host, level=Level.ALL).collect(at=7) if p.dims.get("device") == "nvme0n1"]
    one = Dimensions(device="nvme0n1")
    assert points == [
        DEVICE_READ.point(7, 4643973 * 512, one, start_time=BOOT),
        DEVICE_WRITTEN.point(7, 39451633 * 512, one, start_time=BOOT),
        OPERATIONS.point(7, 47114, one | {"direction": "read"}, start_time=BOOT),
        OPERATIONS.point(7, 1078320, one | {"direction": "write"}, start_time=BOOT),
        BUSY.point(7, 222.766, one, start_time=BOOT),
    ]


def test_the_disks_of_a_captured_machine_are_found(host, opened):
    assert opened(host).describe() == "1 path, 6 disks (sda, mmcblk0, vda, nvme0n1, sdb, sdc)"
    assert opened(HOST / "vm/proc").describe() == "1 path, 1 disk (vda)"


@pytest.mark.parametrize(
    ("names", "disks"),
    [
        ("sda sda1 sdb sdaa sdaa15", "sda sdb sdaa"),
        ("vda vda1 xvda xvdb1 hda", "vda xvda hda"),
        ("nvme0n1 nvme0n1p1 nvme10n2", "nvme0n1 nvme10n2"),
        ("mmcblk0 mmcblk0p1 dasda dasda1 pmem0", "mmcblk0 dasda pmem0"),
        ("loop0 ram0 zram0 dm-0 md0 md127 sr0 fd0 nbd0", ""),
        ("nvme0c0n1 nvme0c1n1 nvme0n1 nvme3c33n1 nvme3n1 nvme4n1", "nvme0c0n1 nvme0c1n1 nvme3c33n1 nvme4n1"),
    ],
)
def test_without_sys_a_disk_is_detected_by_its_name(tmp_path, names, disks):
    assert whole_disks(names.split(), tmp_path / "block") == set(disks.split())


def test_only_hardware_counts_as_a_disk(tmp_path):
    for name in ("sda", "rbd0", "sr0", "cciss!c0d0", "nvme0c0n1", "nvme0n1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "device").symlink_to("../nowhere")
    for name in ("dm-0", "md0", "loop0", "zram0"):
        (tmp_path / name).mkdir()
    names = {"sda", "sda1", "rbd0", "sr0", "cciss/c0d0", "nvme0c0n1", "nvme0n1", "dm-0", "md0", "loop0", "zram0"}
    assert whole_disks(names, tmp_path) == {"sda", "rbd0", "cciss/c0d0", "nvme0c0n1"}


def test_the_counters_of_a_multipath_disk_come_from_its_paths(host, opened):
    write(host, nvme0c0n1=(4815165730, 6989322264), nvme0n1=(0, 0))
    points = opened(host, level=Level.ALL).collect(at=7)
    assert [p.value for p in points if p.metric in (DEVICE_READ, DEVICE_WRITTEN)] == [
        4815165730 * 512, 6989322264 * 512
    ]  # fmt: skip


def test_the_sums_neither_jump_nor_fall_when_disks_come_go_or_restart(host, opened):
    write(host, sda=(1000, 100), sdb=(5000, 500))
    collector = opened(host)
    assert sums(collector) == (0, 0)
    write(host, sda=(1001, 101))
    assert sums(collector) == (1 * 512, 1 * 512)
    write(host, sda=(1002, 30), sdb=(7, 7), sdc=(10**9, 10**9))
    assert sums(collector) == (2 * 512, 31 * 512)  # sda started again and has written 30 sectors since
    write(host, sda=(1002, 30), sdb=(8, 7), sdc=(10**9, 10**9 + 2))
    assert sums(collector) == (3 * 512, 33 * 512)


def test_a_disk_that_starts_again_in_place_has_a_new_start(host, opened):
    write(host, sda=(1000, 100))
    collector = opened(host, level=Level.ALL)
    list(collector.collect(at=7))
    write(host, sda=(30, 101))
    found = {p.metric: (p.value, p.start_time) for p in collector.collect(at=8)}
    assert (found[DEVICE_READ], found[DEVICE_WRITTEN]) == ((30 * 512, 7), (101 * 512, BOOT))


def test_without_a_physical_disk_the_sums_are_absent(host, opened):
    write(host, loop0=(0, 0))
    collector = opened(host)
    assert {p.metric for p in collector.collect(at=7)} == {UTILIZATION, USED, AVAILABLE}
    assert collector.describe() == "1 path, 0 disks"


def test_without_diskstats_the_paths_are_still_read(host, opened):
    (host / "diskstats").unlink()
    assert {p.metric for p in opened(host).collect(at=7)} == {UTILIZATION, USED, AVAILABLE}


def test_without_disk_and_path_the_message_says_where_it_looked(tmp_path):
    collector = DiskCollector(DiskCollector.Config(proc=tmp_path, paths=("/a",), root=tmp_path))
    with pytest.raises(Unavailable, match=f"{tmp_path}/diskstats.*/a"):
        collector.open(Given())
    collector.close()
    collector.close()


@LINUX
def test_df_and_psutil_agree_on_this_machines_root(opened):
    collector = opened(Path("/proc"), os.statvfs, Level.DETAILED, sys=Path("/sys"))
    found = {p.metric: p.value for p in collector.collect(at=7)}
    expected = psutil.disk_usage("/")
    assert found[UTILIZATION] == pytest.approx(expected.percent, abs=0.5)
    assert found[USED] == pytest.approx(expected.used, abs=2**28)
    assert found[AVAILABLE] == pytest.approx(expected.free, abs=2**28)


@LINUX
def test_the_counters_of_this_machine_agree_with_psutil(opened):
    collector = opened(Path("/proc"), os.statvfs, Level.ALL, sys=Path("/sys"))
    before = psutil.disk_io_counters(perdisk=True, nowrap=False)
    points = [p for p in collector.collect(at=7) if p.metric in {DEVICE_READ, DEVICE_WRITTEN, OPERATIONS, BUSY}]
    after = psutil.disk_io_counters(perdisk=True, nowrap=False)
    fields = {
        (DEVICE_READ, None): "read_bytes",
        (DEVICE_WRITTEN, None): "write_bytes",
        (OPERATIONS, "read"): "read_count",
        (OPERATIONS, "write"): "write_count",
        (BUSY, None): "busy_time",
    }
    for point in points:
        name, field = point.dims["device"], fields[point.metric, point.dims.get("direction")]
        factor = 1000 if point.metric is BUSY else 1
        assert getattr(before[name], field) <= point.value * factor + 1e-6
        assert point.value * factor <= getattr(after[name], field) + 1e-6


def test_psutil_yields_the_same(opened, monkeypatch):
    expected, disks = psutil.disk_usage("/"), psutil.disk_io_counters(perdisk=True, nowrap=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    collector = opened(Path("/proc"), level=Level.ALL)
    points = list(collector.collect(at=7))
    found = {p.metric: p.value for p in points}
    assert found[UTILIZATION] == pytest.approx(expected.percent, abs=0.5)
    assert found[READ] == 0
    assert sum(p.value for p in points if p.metric is DEVICE_READ) >= sum(d.read_bytes for d in disks.values())
    busy = {p.dims["device"]: p.value for p in points if p.metric is BUSY}
    assert busy == {name: pytest.approx(disk.busy_time / 1000, rel=0.1, abs=1) for name, disk in disks.items()}
    assert collector.describe().startswith(f"1 path, {len(disks)} disk")


def test_a_platform_that_does_not_count_busy_time_leaves_it_absent(opened, monkeypatch):
    counted = SimpleNamespace(read_count=1, write_count=2, read_bytes=3, write_bytes=4)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda perdisk, nowrap: {"disk0": counted})
    monkeypatch.setattr(sys, "platform", "darwin")
    points = list(opened(Path("/proc"), level=Level.ALL).collect(at=7))
    assert [(p.metric, p.value) for p in points[3:]] == [
        (READ, 0),
        (WRITTEN, 0),
        (DEVICE_READ, 3),
        (DEVICE_WRITTEN, 4),
        (OPERATIONS, 1),
        (OPERATIONS, 2),
    ]
