"""Real files, written as cron scripts and NCCL Inspector write them."""

import os
import sys
import threading
import time

import pytest
from tests.told import reading

from chipwatch.collectors.textfile import TextfileCollector
from chipwatch.config.load import ConfigError, convert
from chipwatch.contract.datapoint import Kind
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

AT = 1_800_000_000_000_000_000
S = 10**9
BACKUP = """# HELP backup_seconds_total Time of backups.
# TYPE backup_seconds_total counter
backup_seconds_total{disk="a"} 12.5
# TYPE backup_ok gauge
backup_ok 1
"""
NCCL = """# HELP nccl_bus_bandwidth_gbs NCCL bus bandwidth in GB/s.
# TYPE nccl_bus_bandwidth_gbs gauge
nccl_bus_bandwidth_gbs{comm_id="0x7a31",pid="4711",coll_sn="99",collective="AllReduce",rank="0",n_ranks="16"} 341.5
nccl_bus_bandwidth_gbs{comm_id="0x7a31",pid="4711",coll_sn="99",collective="AllGather",rank="0",n_ranks="16"} 298
"""


@pytest.fixture
def write(tmp_path):
    def make(name, text, at=AT):
        draft = tmp_path / f"{name}.draft"
        draft.write_text(text)
        os.utime(draft, ns=(at, at))
        draft.rename(tmp_path / name)
        return tmp_path / name

    return make


@pytest.fixture
def collector(tmp_path):
    def make(**options):
        made = TextfileCollector(TextfileCollector.Config(files=(f"{tmp_path}/*.prom",), **options))
        made.open(Given())
        return made

    return make


def read(collector, at=AT):
    """Return name and dimensions -> value, and the problems."""
    points, problems = reading(collector, at)
    assert {point.at for point in points} <= {at}
    return {(point.metric.name, *point.dims.values()): point.value for point in points}, problems


def test_the_metrics_of_a_file_are_read_with_their_kind_and_stamped_with_the_tick(write, collector):
    write("backup.prom", BACKUP)
    made = collector()
    points = {point.metric.name: point for point in made.collect(AT + 30 * S)}
    assert (points["backup_seconds_total"].metric.kind, points["backup_seconds_total"].value) == (Kind.COUNTER, 12.5)
    assert points["backup_seconds_total"].start_time is not None
    assert (points["textfile.age"].value, *points["textfile.age"].dims.values()) == (30, "backup.prom")
    assert made.describe() == "1 file, 2 series"
    assert read(made, AT + 60 * S) == (
        {("backup_seconds_total", "a"): 12.5, ("backup_ok",): 1, ("textfile.age", "backup.prom"): 60}, [])  # fmt: skip


def test_it_keeps_the_contract(write, collector):
    write("backup.prom", BACKUP)
    assert len(check_collector(collector())) == 9


def test_an_unchanged_file_is_not_parsed_again_and_a_changed_one_is(write, collector):
    made = collector()
    file = write("backup.prom", BACKUP)
    read(made)
    before = file.stat()
    file.write_text(BACKUP.replace("12.5", "99.5"))  # the same size, and the same time and inode
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(made)[0]["backup_seconds_total", "a"] == 12.5
    write("backup.prom", BACKUP.replace("12.5", "13"), AT + S)
    assert read(made)[0]["backup_seconds_total", "a"] == 13


def test_labels_of_processes_and_calls_of_nccl_are_left_out(write, collector):
    write("nccl_inspector-host7-pid4711.prom", NCCL)
    found = read(collector())[0]
    assert found == {
        ("nccl_bus_bandwidth_gbs", "AllReduce", "16", "0"): 341.5,
        ("nccl_bus_bandwidth_gbs", "AllGather", "16", "0"): 298,
        ("textfile.age", "nccl_inspector-host#-pid#.prom"): 0,
    }
    assert ("nccl_bus_bandwidth_gbs", "99", "AllReduce", "0x7a31", "16", "4711", "0") in read(
        collector(drop_labels=())
    )[0]


def test_a_series_in_two_files_is_reported_and_the_first_is_used(write, collector):
    write("a.prom", "x 1\n")
    write("b.prom", "x 2\ny 3\n")
    found, (problem,) = read(collector())
    assert (found["x",], found["y",]) == (1, 3)
    assert "b.prom: x is in another file" in problem


def test_the_metrics_of_a_file_that_is_not_written_any_more_end_and_its_age_goes_on(write, collector):
    write("backup.prom", BACKUP)
    made = collector(max_age=60)
    assert len(read(made, AT + 60 * S)[0]) == 3
    assert read(made, AT + 61 * S) == ({("textfile.age", "backup.prom"): 61}, [])


def test_a_file_that_vanishes_ends_and_one_that_comes_is_read(write, collector):
    made = collector()
    assert read(made) == ({}, [])
    file = write("backup.prom", BACKUP)
    assert len(read(made)[0]) == 3
    file.unlink()
    assert read(made) == ({}, [])


def test_a_line_that_is_not_whole_yet_is_not_read(write, collector):
    write("a.prom", "x 1\ny 12")
    assert read(collector())[0] == {("x",): 1, ("textfile.age", "a.prom"): 0}


def test_a_file_that_is_renamed_all_the_time_is_always_whole(write, collector):
    pages = ["".join(f"m{n} {value}\n" for n in range(500)) for value in (1, 2)]
    write("a.prom", pages[0])
    made, stop = collector(), threading.Event()

    def rename():
        turn = 0
        while not stop.is_set():
            turn += 1
            write("a.prom", pages[turn % 2], AT + turn)

    writer = threading.Thread(target=rename)
    writer.start()
    try:
        for _ in range(200):
            found, problems = read(made, AT + S)
            values = [value for (name, *_), value in found.items() if name != "textfile.age"]
            assert (len(values), len({*values}), problems) == (500, 1, [])
    finally:
        stop.set()
        writer.join()


def test_files_that_cannot_be_read_are_reported_and_the_others_are_read(write, collector, tmp_path):
    write("good.prom", "x 1\n")
    write("large.prom", "y 1\n" * 100)
    write("odd.prom", "{{{\nz 1\n")
    os.mkfifo(tmp_path / "pipe.prom")
    (tmp_path / "folder.prom").mkdir()
    found, problems = read(collector(max_bytes=100))
    assert {("x",), ("z",)} <= found.keys()
    assert ("y",) not in found
    told = "\n".join(problems)
    for text in (
        "large.prom: it has more than 100 bytes",
        "pipe.prom: not a regular",
        "folder.prom: not a regular",
        "odd.prom: malformed",
    ):
        assert text in told


def test_files_and_series_have_limits(write, collector):
    for n in range(4):
        write(f"{n}.prom", "".join(f'm{n}{{i="{i}"}} 1\n' for i in range(10)))
    found, problems = read(collector(max_files=2, max_series=15))
    assert sum(name.startswith("m") for name, *_ in found) == 15
    assert "4 files match, more than 2 (max_files)" in problems[0]
    assert "more than 15 series (max_series)" in problems[1]


def test_files_after_the_limit_of_series_are_not_read_and_not_kept(write, collector):
    for letter in "abcd":
        write(f"{letter}.prom", "".join(f"{letter}{n} 1\n" for n in range(10)))
    made = collector(max_series=20)
    found, problems = read(made)
    assert [len([name for name, *_ in found if name[0] == letter]) for letter in "abcd"] == [10, 10, 0, 0]
    assert [problem.rsplit("/", 1)[1] for problem in problems] == [
        "c.prom: the files before it have 20 series (max_series); the rest is left out"
    ]
    assert made.describe() == "2 files, 20 series"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_file_whose_name_is_not_utf_8_has_an_age_that_every_sink_can_write(tmp_path, collector):
    (tmp_path / os.fsdecode(b"\xff.prom")).write_text("x 1\n")
    assert ("textfile.age", "\ufffd.prom") in read(collector(), time.time_ns())[0]


def test_without_files_it_says_what_to_set():
    with pytest.raises(Unavailable, match=r"set files = "):
        TextfileCollector(TextfileCollector.Config()).open(Given())


@pytest.mark.parametrize("option", [{"max_files": 0}, {"max_age": 0}, {"max_series": -1}])
def test_limits_below_one_are_refused(option):
    with pytest.raises(ConfigError, match="expected more than 0"):
        convert(TextfileCollector.Config, option, "collectors.textfile")
