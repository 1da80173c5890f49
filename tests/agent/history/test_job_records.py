"""The file with the records of jobs: bounded, and whole after a kill or a full disk."""

import os
import stat

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chipwatch.history import job_records
from chipwatch.history.job_records import append, earlier, read, records_of


def row(job, until=1000.0, **more):
    told = {"job": str(job), "kind": "slurm", "since": 1.0, "until": until}
    return told | {"seconds": {"busy": 1.00049, "held": 0}} | more


@pytest.fixture
def path(tmp_path):
    return records_of(tmp_path)


def test_the_last_record_of_each_job_counts(path):
    append(path, [row(1), row(2)])
    append(path, [row(1, 2000.0)])
    assert {(record.job, record.until) for record in read(path, 0)} == {("1", 2000.0), ("2", 1000.0)}
    assert [record.job for record in read(path, 1500)] == ["1"]
    assert read(path, 0)[0].seconds == {"busy": 1.0}
    assert path.read_bytes().count(b"\n") == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_byte_that_is_wrong_spoils_no_other_line(path):
    append(path, [row(1), row(2)])
    path.write_bytes(path.read_bytes().replace(b'"slurm"', b'"sl\xffrm"', 1))
    assert [record.job for record in read(path, 0)] == ["2"]


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_line_that_was_cut_off_spoils_no_other(path, cut):
    append(path, [row(1), row(2)])
    os.truncate(path, path.stat().st_size - cut)
    append(path, [row(3)])
    assert [record.job for record in read(path, 0)] == (["1", "2", "3"] if cut == 1 else ["1", "3"])


def test_a_full_file_becomes_the_earlier_one_and_no_more_than_two_are_kept(path, monkeypatch):
    monkeypatch.setattr(job_records, "MOST_BYTES", 1000)
    for n in range(100):
        append(path, [row(n, float(n))])
        assert sum(file.stat().st_size for file in (path, earlier(path)) if file.exists()) < 2 * 1000 + 200
    kept = [int(record.job) for record in read(path, 0)]
    assert kept == [*range(100 - len(kept), 100)]
    assert len(kept) > 10


def test_a_link_in_place_of_the_file_is_not_followed(path, tmp_path):
    (tmp_path / "other").write_text("")
    path.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"):
        append(path, [row(1)])
    assert (tmp_path / "other").read_text() == ""


def test_a_month_of_a_busy_node_fits_the_files(path):
    full = {
        "user": "somebody", "partition": "h100-long", "memory_max": 8.5e10, "energy": 123456789.123, "cost": 1234.567,
        "cpu": 123456.789, "cpus": 24.0, "host_memory_max": 234567890123, "since": 1800000000.123,
        "seconds": dict.fromkeys(("busy", "stalled", "held", "throttled", "unseen"), 12345.678),
        "idle": dict.fromkeys(("startup", "held", "data", "other"), 12345.678),
    }  # fmt: skip
    append(path, [row(41337, 1800000000.123, **full)])
    assert 30 * 600 * path.stat().st_size < job_records.MOST_BYTES, "600 jobs a day"


@given(st.binary(max_size=200))
def test_whatever_is_in_the_file_the_records_are_read(tmp_path_factory, data):
    path = records_of(tmp_path_factory.mktemp("state"))
    path.write_bytes(data)
    append(path, [row(7)])
    assert "7" in {record.job for record in read(path, 0)}
