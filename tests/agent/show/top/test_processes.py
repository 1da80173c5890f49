import os
import sys

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def processes():
    from chipwatch.show.top import processes

    return processes


def test_the_details_of_a_process_that_has_ended_say_so(processes):
    row = processes.ProcessTable()._row(os.getpid(), 1.0)
    details = processes.details(row)
    assert details["process"].startswith(f"{os.getpid()}, ")
    mib = psutil.Process().memory_info().rss / 2**20
    assert int(details["memory"].partition(" MiB")[0].replace(",", "")) == pytest.approx(mib, rel=0.1)
    assert "has ended" in processes.details(row._replace(began=row.began + 1))["process"]


def test_cpu_and_memory_are_shares_and_the_first_reading_has_no_cpu(processes):
    table = processes.ProcessTable()
    first = next(row for row in table.of_host() if row.pid == os.getpid())
    assert (first.cpu, first.device) == (None, ())
    assert 0 < first.resident < 100
    assert first.age > 0
    assert table.of_host() is table._all  # not read again before its time
    table._due = 0
    second = next(row for row in table.of_host() if row.pid == os.getpid())
    assert second.cpu >= 0


@pytest.mark.parametrize(
    ("command", "short"),
    [
        ("/opt/conda/bin/python3 /home/ada/train.py --data /mnt/x", "python3 train.py --data /mnt/x"),
        ("/usr/bin/cat /etc/hosts", "cat /etc/hosts"),
        ("[kworker/0:1-events]", "[kworker/0:1-events]"),
        ("-bash", "-bash"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_command_comes_before_its_path(processes, command, short):
    assert processes.shortened(command) == short


def test_a_line_of_proc_that_is_cut_is_left_out(processes, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_bytes(b"7 (a) b) (c) S 1")
    assert processes.stat_of(f"{tmp_path}", 7) is None
    (tmp_path / "7/stat").write_bytes(b"7 (a) b) (c) S 1" + b" 0" * 40)
    assert processes.stat_of(f"{tmp_path}", 7)[0] == "a) b) (c"
    (row,) = processes.ProcessTable(f"{tmp_path}").of_host()
    assert (row.pid, row.command) == (7, "[a) b) (c]")


def test_users_have_the_names_that_the_nodes_passwd_gives_them(processes, tmp_path):
    file = tmp_path / "etc/passwd"
    file.parent.mkdir()
    file.write_text(f"root:x:0:0::/:/bin/sh\nada-of-the-node:x:{os.getuid()}:1::/home/ada:/bin/sh\n")
    assert processes.ProcessTable(root=tmp_path)._row(os.getpid(), 1.0).user == "ada-of-the-node"
    file.unlink()
    assert processes.ProcessTable(root=tmp_path)._row(os.getpid(), 1.0).user == str(os.getuid())
