"""The table of `make scale`, and its machine of files."""

from tests.peers.measure import Usage
from tests.scale.__main__ import series, table
from tests.scale.machine import CPUS, DISKS, INTERFACES, move


def used(cpu: float) -> list[Usage]:
    return [Usage(cpu, 45.0, 30.0, 4.0, 9.0, 0.0, 0.0)]


def test_the_table_has_what_is_asked_and_what_twice_the_series_cost():
    names = "CloudWatch, no page", "CloudWatch, 10,000 series", "CloudWatch, 20,000 series"
    lines = table(dict(zip(names, map(used, (1.0, 3.0, 6.0)), strict=True))).splitlines()
    assert lines[3] == "| CloudWatch, 10,000 series | 3.00 | 2.5 | 45.0 | 50 | 4 | 9.0 |"
    assert lines[-1] == "CloudWatch: 20,000 series cost 2.50 times what 10,000 cost; at most 2 is asked."
    assert sum(not line.startswith("#") for line in series(1000, 7).splitlines()) == 1000


def test_the_counters_of_the_large_machine_move_in_place(tmp_path):
    move(tmp_path, 0)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    move(tmp_path, 1)
    assert {path.name for path in files} == {"stat", "diskstats", "dev", "snmp"}
    assert all(len(path.read_bytes()) == len(text) and path.read_bytes() != text for path, text in files.items())
    assert (tmp_path / "proc/stat").read_bytes().count(b"\ncpu") == CPUS
    assert (tmp_path / "proc/net/dev").read_text().count(" eth") == INTERFACES
    assert (tmp_path / "proc/diskstats").read_text().count(" nvme") == DISKS
