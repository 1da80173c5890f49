import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.doubles.sysfs import write

from chipwatch.collectors import storage as nfs
from chipwatch.collectors.storage import StorageCollector
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.host.mounts import parsed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files of Linux")
MOUNTSTATS = Path(__file__).parents[2] / "fixtures/host/mountstats"
ROOT = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"
NFS = "40 21 0:50 / /A rw,relatime shared:9 - nfs 1.2.3.4:/storage/NFS rw,vers=3"
IMPORT = """import:
    name: lustre-OST0000-osc-ffff880123456780
    target: lustre-OST0000_UUID
    state: {state}
    connect_count: 5
"""


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def storage(tmp_path, clock):
    """Make a collector of a host with the mounts `lines`, opened."""

    def made(*lines, **config):
        mounts(tmp_path, *lines)
        paths = {"proc": tmp_path / "proc", "sys": tmp_path / "sys"}
        collector = StorageCollector(StorageCollector.Config(**paths, **config), lambda: clock[0])
        collector.open(Given())
        return collector

    return made


def mounts(root, *lines):
    write(root / "proc/1/mountinfo", "\n".join(lines))


def read(collector, at=7):
    return {
        " ".join([point.metric.name, *(word for _, word in sorted(point.dims.items()))]): point.value
        for point in collector.collect(at)
    }


@pytest.mark.parametrize(
    ("line", "is_read_only"),
    [
        (ROOT, 0),
        ("21 1 8:1 / / rw,relatime - ext4 /dev/sda1 ro", 1),
        ("21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,emergency_ro", 1),
        ("21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,shutdown", 1),
        ("21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro", 0),
        ("21 1 0:22 / / rw - xfs /dev/md0 rw,attr2", 0),
    ],
)
def test_a_file_system_that_turned_read_only_is_seen(storage, line, is_read_only):
    assert read(storage(line)) == {"disk.read_only /": is_read_only}


@pytest.mark.parametrize(
    "line",
    [
        "22 21 8:2 / /boot ro,relatime - ext4 /dev/sda2 ro",  # somebody wants it so
        "23 21 7:0 / /snap rw - squashfs /dev/loop0 ro",
        "24 21 0:5 / /dev rw - devtmpfs dev rw",
    ],
)
def test_what_is_read_only_on_purpose_or_on_no_disk_is_left_out(storage, line):
    assert read(storage(ROOT, line)) == {"disk.read_only /": 0}


def test_a_file_system_with_many_mounts_is_one_series(storage):
    bind = "30 21 8:1 /data /var/lib/kubelet/pods/x rw - ext4 /dev/sda1 rw"
    above = "31 21 8:9 / /mnt rw - xfs /dev/sdb rw", "32 31 8:10 / /mnt rw - xfs /dev/sdc ro"
    assert read(storage(ROOT, bind, *above)) == {"disk.read_only /": 0, "disk.read_only /mnt": 1}


@pytest.mark.deploy
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mkfs.ext4"), reason="mounts a file system: needs root")
def test_a_real_ext4_with_an_error_turns_read_only_and_one_remounted_by_hand_does_not(tmp_path):
    image, point = tmp_path / "image", tmp_path / "mount"
    point.mkdir()
    image.write_bytes(b"\0" * (16 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-e", "remount-ro", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, point], check=True)
    try:
        name, key = _loop(point), f"disk.read_only {point}"
        collector = StorageCollector(StorageCollector.Config())
        collector.open(Given())
        before = read(collector)
        subprocess.run(["mount", "-o", "remount,ro", point], check=True)
        assert key not in read(collector)
        subprocess.run(["mount", "-o", "remount,rw", point], check=True)
        Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("test")
        after = read(collector)
    finally:
        subprocess.run(["umount", point], check=True)
    assert (before[key], after[key]) == (0, 1)
    assert after[f"disk.filesystem.errors {name}"] == before[f"disk.filesystem.errors {name}"] + 1


def _loop(point):
    lines = parsed(Path("/proc/self/mountinfo").read_bytes())
    return next(line.mount.source for line in lines if line.mount.point == str(point)).rpartition("/")[2]


def test_nvme_drives_have_a_state_and_a_temperature(storage, tmp_path):
    nvme = tmp_path / "sys/class/nvme"
    write(nvme / "nvme0/state", "live")
    write(nvme / "nvme0/hwmon1/temp1_input", "43850")
    write(nvme / "nvme1/state", "resetting")
    write(nvme / "nvme1/device/hwmon/hwmon2/temp1_input", "51000")
    write(nvme / "nvme2/hwmon3/temp1_input", "odd")
    collector = storage()
    assert read(collector) == {
        "disk.nvme.state nvme0": 1, "disk.nvme.temperature nvme0": 43.85,
        "disk.nvme.state nvme1": 0, "disk.nvme.temperature nvme1": 51.0,
    }  # fmt: skip
    assert collector.describe() == "3 NVMe drives"


def test_errors_of_ext4_are_counted(storage, tmp_path):
    write(tmp_path / "sys/fs/ext4/sda1/errors_count", "2")
    (tmp_path / "sys/fs/ext4/features").mkdir()
    points = [point for point in storage(ROOT).collect(7) if point.metric.name == "disk.filesystem.errors"]
    assert [(dict(point.dims), point.value, point.start_time) for point in points] == [({"device": "sda1"}, 2, 7)]


def test_targets_of_lustre_are_connected_or_not(storage, tmp_path):
    for number, (folder, state) in enumerate(
        [("proc/fs/lustre/osc", "FULL"), ("proc/fs/lustre/mdc", "DISCONN"), ("sys/kernel/debug/lustre/osc", "IDLE")]
    ):
        path = tmp_path / folder / f"lustre-OST{number}-osc-ffff880123456780/import"
        write(path, IMPORT.format(state=state).replace("OST0000_UUID", f"OST000{number}_UUID"))
    assert read(storage()) == {
        "lustre.disconnected": 1, "lustre.connected lustre-OST0000": 1, "lustre.connected lustre-OST0001": 0,
        "lustre.connected lustre-OST0002": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "file", "waits"),
    [
        ([ROOT], None, False), ([ROOT, NFS], "proc/1/mountstats", True),
        ([ROOT], "sys/class/nvme/nvme0/state", True), ([ROOT], "proc/fs/lustre/osc/a/import", True),
    ],
)  # fmt: skip
def test_the_clocks_thread_reads_it_unless_a_drive_or_a_server_may_hang(storage, tmp_path, lines, file, waits):
    if file:
        write(tmp_path / file, "")
    assert storage(*lines).waits() is waits


def test_mounts_of_nfs_have_retransmissions_time_outs_and_operations(storage, tmp_path):
    collector = storage(ROOT, NFS)
    shutil.copy(MOUNTSTATS, tmp_path / "proc/1/mountstats")
    found = {name: value for name, value in read(collector).items() if name.startswith("nfs.")}
    source = "1.2.3.4:/storage/NFS"
    first = nfs.mount_counts(MOUNTSTATS.read_bytes())[source]
    assert {name for name in found if name.endswith(source) and name.count(" ") == 1} == {
        f"nfs.{name} {source}" for name in ("retransmits", "timeouts", "unanswered", "read", "written")
    }
    assert found[f"nfs.retransmits {source}"] == first.retransmits == 21  # each of 21 operations has one
    assert (first.sent, first.received) == (96172963, 96172963)
    assert found[f"nfs.read {source}"] == 1134399088816
    assert found[f"nfs.operations read {source}"] == 600
    assert found[f"nfs.operation.time read {source}"] == pytest.approx(0.607)
    assert found["nfs.operations write 2.2.2.2:/nfsdata/"] == 0
    assert found["nfs.unanswered 2.2.2.2:/nfsdata/"] == 0


def answers(sent, received):
    return f"""device server:/x mounted on /x with fstype nfs4 statvers=1.1
\tbytes:\t1 2 3 4 5 6 7 8
\txprt:\ttcp 737 0 1 0 0 {sent} {received} 0 0 0 2 0 0
\tper-op statistics
\t        READ: 5 5 0 1 2 3 4 500
"""


def test_a_server_that_does_not_answer_is_seen_from_its_silence(storage, tmp_path, clock):
    collector = storage(NFS)

    def silence(sent, received):
        clock[0] += 15
        write(tmp_path / "proc/1/mountstats", answers(sent, received))
        return read(collector)["nfs.unanswered server:/x"]

    assert [silence(10, 10), silence(12, 12), silence(12, 12)] == [0, 0, 0]  # nobody asks
    assert [silence(13, 12), silence(14, 12)] == [30, 45]
    assert silence(14, 13) == 0
    assert silence(14, 13) == 0


def test_another_mount_of_a_source_starts_its_counts_again(storage, tmp_path):
    collector, counted = storage(NFS), []
    for mount, number in ("/x", 5), ("/y", 9000):
        write(
            tmp_path / "proc/1/mountstats",
            answers(1, 1).replace("on /x", f"on {mount}").replace("5 5 0", f"{number} {number} 0"),
        )
        counted += [
            (point.value, point.start_time)
            for point in collector.collect(at=number)
            if point.metric is nfs.OPERATIONS and point.dims["operation"] == "read"
        ]
    assert counted == [(5, 5), (9000, 9000)]


def test_mountstats_that_do_not_return_cost_nfs_only_and_once(tmp_path):
    os.mkfifo(tmp_path / "mountstats")
    mounts(tmp_path, ROOT, NFS)
    (tmp_path / "proc/1/mountstats").symlink_to(tmp_path / "mountstats")
    paths = {"proc": tmp_path / "proc", "sys": tmp_path / "sys"}
    collector = StorageCollector(StorageCollector.Config(**paths))
    collector.open(Given())
    points = []
    with pytest.raises(PartlyCollected, match="NFS: mountstats: no answer"):
        points.extend(collector.collect(7))
    with pytest.raises(PartlyCollected, match="an earlier call has not returned"):
        points.extend(collector.collect(8))
    collector.close()
    threading.Thread(target=(tmp_path / "mountstats").write_text, args=("",)).start()  # lets the thread end


def test_the_contract_is_kept_on_this_machine():
    collector = StorageCollector(StorageCollector.Config())
    try:
        points = check_collector(collector)
    except Unavailable as reason:
        assert "no disk" in str(reason)  # noqa: PT017  # a container without a disk
    else:
        assert {"disk.read_only", "disk.nvme.state", "nfs.unanswered"} & {point.metric.name for point in points}


def test_a_host_without_storage_is_unavailable(tmp_path):
    with pytest.raises(Unavailable, match="no disk, NVMe drive, NFS or Lustre"):
        StorageCollector(StorageCollector.Config(proc=tmp_path, sys=tmp_path)).open(Given())
