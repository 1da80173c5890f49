from pathlib import Path

import pytest

from chipwatch.host import mounts as module
from chipwatch.host.mounts import Mount, MountTable, may_hang, mount_of, mounts

PROC = Path(__file__).parents[2] / "fixtures/host/node_exporter/proc"
TABLE = mounts((PROC / "self/mountinfo").read_bytes())
NFS = Mount("/mnt/nfs/test", "nfs4", "192.168.1.1:/srv/test")
ROOT = Mount("/", "ext4", "/dev/sda1")


def test_a_mount_is_its_point_type_and_source():
    assert TABLE[:3] == [Mount("/sys", "sysfs", "sysfs"), Mount("/proc", "proc", "proc"), ROOT]
    assert len(TABLE) == 8
    assert "/vsphere-volume/mounts/[vsanDatastore] b" in TABLE[-1].point, "an escaped blank"


def test_a_malformed_line_is_skipped():
    table = b"odd\n1 2 - ext4\n1 2 8:1 / /data rw - xfs /dev/sdb rw\n1 2 8:1 / /cut rw - ext4\n"
    assert mounts(table) == [Mount("/data", "xfs", "/dev/sdb")]


@pytest.mark.parametrize(
    ("path", "mount"),
    [("/", ROOT), ("/mnt/nfs", ROOT), ("/mnt/nfs/test", NFS), ("/mnt/nfs/test/a/b", NFS), ("/mnt/nfs/tests", ROOT)],
)
def test_a_path_is_on_the_mount_with_the_longest_point(path, mount):
    assert mount_of(path, TABLE) == mount
    later = Mount(mount.point, "nfs4", "server:/x")
    assert mount_of(path, [*TABLE, later]) == later, "the last of several on one point counts"


def test_without_a_table_nothing_is_known(tmp_path):
    assert mount_of("/", []) is None
    assert MountTable(tmp_path).mount_of("/") is None


@pytest.mark.parametrize(
    ("path", "mount", "answer"),
    [
        ("/", ROOT, False),
        ("/mnt/nfs/test", NFS, True),
        ("/run/user/1000/gvfs", Mount("/run/user/1000/gvfs", "fuse.gvfsd-fuse", "gvfsd-fuse"), True),
        ("/new", Mount("/new", "a type of tomorrow", "x"), True),
        ("/home/me", ROOT, True),
        ("/", None, True),
    ],
)
def test_only_a_call_on_a_mount_point_of_a_local_file_system_cannot_hang(path, mount, answer):
    assert may_hang(path, mount) is answer


def test_the_table_is_read_again_after_a_minute(monkeypatch, tmp_path):
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    (tmp_path / "self").mkdir()
    file = tmp_path / "self/mountinfo"
    file.write_text("21 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n")
    table = MountTable(tmp_path)
    assert table.mount_of("/data") == ROOT
    file.write_text(file.read_text() + "22 21 0:42 / /data rw - nfs4 server:/x rw\n")
    now += 59
    assert table.mount_of("/data") == ROOT
    now += 1
    assert table.mount_of("/data") == Mount("/data", "nfs4", "server:/x")
    file.unlink()
    now += 60
    assert table.mount_of("/data") is None


def test_the_mount_of_a_path_is_looked_up_once_for_each_reading_of_the_table(tmp_path, monkeypatch):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_bytes((PROC / "self/mountinfo").read_bytes())
    asked = []
    monkeypatch.setattr(module, "mount_of", lambda path, table: asked.append(path) or mount_of(path, table))
    table = MountTable(tmp_path)
    assert [table.mount_of(path) for path in ("/", "/mnt/nfs/test", "/", "/mnt/nfs/test")] == [ROOT, NFS, ROOT, NFS]
    (tmp_path / "self/mountinfo").write_bytes(b"1 2 8:1 / / rw - xfs /dev/sdb rw\n")
    table._due = 0.0
    assert table.mount_of("/") == Mount("/", "xfs", "/dev/sdb")
    assert asked == ["/", "/mnt/nfs/test", "/"]
