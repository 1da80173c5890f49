import csv
import gzip
import io
import json
import os
import sys

import pytest
from tests.agent.history.test_round_trip import header, ticks

from chipwatch.history.columns import load
from chipwatch.history.event import Event
from chipwatch.history.record_file import RecordFile
from chipwatch.history.ring import Ring


@pytest.fixture
def said(here):
    """Run the command in this process; return exit code, output and errors."""

    def run(*words):
        done = here(*words)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def file(tmp_path):
    made = RecordFile(tmp_path / "run.chipwatch", header)
    for at, points in ticks(5):
        made.add(points, at)
    made.close()
    return made.path


def test_json_lines_are_read_as_the_same_recording(file, said, tmp_path):
    code, out, _ = said("record", "export", str(file))
    assert code == 0
    assert json.loads(out.splitlines()[0])["name"] == "gpu.energy"
    (tmp_path / "run.jsonl").write_text(out)
    both = [load(tmp_path / "run.jsonl"), load(file)]
    again, first = ([(c.metric.name, c.dims, c.values) for c in one.columns] for one in both)
    assert again == first


def test_csv_has_a_row_for_each_sample(file, said):
    rows = [*csv.DictReader(io.StringIO(said("record", "export", str(file), "--to", "csv")[1]))]
    assert len(rows) == sum(len(column.times) for column in load(file).columns)
    assert rows[0]["gpu"] == "0"
    assert rows[0]["time"] == "2026-11-20T10:00:05.123456789Z"


@pytest.mark.parametrize("at", [10**30, 9 * 10**21, -9 * 10**18])
def test_an_incident_with_an_impossible_time_is_listed_as_one_that_cannot_be_read(said, tmp_path, at):
    (tmp_path / "incidents").mkdir()
    line = b'{"event": {"at": %d, "cause": "xid"}}\n' % at
    (tmp_path / "incidents/a.chipwatch").write_bytes(gzip.compress(line))
    code, out, _ = said("record", "list", "--spool", str(tmp_path))
    assert (code, "it cannot be read" in out) == (0, True)


def test_no_text_of_a_recording_reaches_a_terminal_as_an_order(said, tmp_path):
    order = "\x1b]0;x\x07\x9b2J\x85\x7f\u202e"
    line = {"time": "2026-11-20T10:00:05Z", "name": f"a{order}", "unit": f"W{order}", "value": 1}
    (tmp_path / "run.jsonl").write_text(json.dumps({**line, "dims": {f"key{order}": f"value{order}"}}))
    for form in ("csv", "openmetrics"):
        code, out, _ = said("record", "export", str(tmp_path / "run.jsonl"), "--to", form)
        assert code == 0
        assert "value" in out
        assert all(line.isprintable() for line in out.split("\n")), form


def test_a_csv_has_no_formula_numbers_keep_their_sign_and_a_dimension_has_its_own_column(said, tmp_path):
    dims = {"kind": "oom_kill", "user": "=cmd()", "job": "+1+1", "note": "@x", "-host": "-a"}
    line = {"time": "2026-11-20T10:00:05Z", "name": "a.b", "value": -1.5, "dims": dims}
    (tmp_path / "run.jsonl").write_text(json.dumps(line))
    (row,) = csv.DictReader(io.StringIO(said("record", "export", str(tmp_path / "run.jsonl"), "--to", "csv")[1]))
    assert (row["user"], row["job"], row["note"], row["'-host"]) == ("'=cmd()", "'+1+1", "'@x", "'-a")
    assert (row["value"], row["kind"], row["dims.kind"]) == ("-1.5", "gauge", "oom_kill")


@pytest.mark.parametrize("named", ["run.chipwatch", "run-1.chipwatch", "*"])
def test_all_files_of_a_rotated_run_are_exported_together_in_the_order_of_time(said, tmp_path, named, monkeypatch):
    monkeypatch.setattr("chipwatch.history.record_file.MOST_POINTS", 1)
    made = RecordFile(tmp_path / "run.chipwatch", header)
    for number, (at, points) in enumerate(ticks(9)):
        made.add(points, at)
        if number % 3 == 2:
            made.close()
    made.close()
    (tmp_path / "run-1.chipwatch").rename(tmp_path / "run-9.chipwatch")  # the number says nothing about the time
    (tmp_path / "run-2.chipwatch").rename(tmp_path / "run-1.chipwatch")
    (tmp_path / "run-x.chipwatch").write_bytes(b"no recording")
    files = sorted(tmp_path.glob("run*[0-9n].chipwatch")) if named == "*" else [tmp_path / named]
    code, out, error = said("record", "export", *map(str, files))
    times = [json.loads(line)["time"] for line in out.splitlines()]
    assert (code, error, len({*times}), times) == (0, "", 9, sorted(times))


def test_files_of_two_runs_are_not_exported_as_one(file, said, tmp_path):
    other = RecordFile(tmp_path / "other.chipwatch", lambda: header() | {"started": 7})
    for at, points in ticks(2):
        other.add(points, at)
    other.close()
    code, _, error = said("record", "export", str(file), str(other.path))
    assert (code, "these are recordings of different runs; name one" in error) == (1, True)


def test_a_recording_of_a_run_that_was_killed_before_its_first_row_is_listed_as_such(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = RecordFile(tmp_path / "run.chipwatch", header)
    os.mkfifo(tmp_path / "a.chipwatch")
    (tmp_path / "\x1b[2J.chipwatch").write_bytes(gzip.compress(b'{"x": ' + b"[" * 200_000 + b"\n"))
    assert r"it cannot be read  \x1b[2J.chipwatch" in said("record", "list", "--spool", str(tmp_path))[1]
    assert "it holds no reading yet  run.chipwatch" in said("record", "list", "--spool", str(tmp_path))[1]
    made.add(*reversed(next(ticks(1))))
    assert "Z  recording  run.chipwatch" in said("record", "list", "--spool", str(tmp_path))[1]
    made.close()


def test_openmetrics_is_taken_by_a_parser_of_prometheus(file, said):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    _, text, _ = said("record", "export", str(file), "--to", "openmetrics")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert {name: family.type for name, family in families.items()} == {"gpu_energy": "counter", "gpu_power": "gauge"}
    assert len(families["gpu_energy"].samples) == 10


def test_parquet_without_its_library_is_a_clear_sentence(file, said, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, error = said("record", "export", str(file), "--to", "parquet")
    assert (code, error) == (1, "chipwatch: record export: --to parquet needs pyarrow: pip install pyarrow\n")


def test_an_incident_that_is_asked_for_takes_no_name_of_a_file(said):
    code, _, error = said("record", "--seal", "a.chipwatch")
    assert (code, "record --seal: a.chipwatch: it takes no FILE" in error) == (2, True)


def test_incidents_are_listed_with_time_cause_job_and_file(said, tmp_path):
    ring = Ring(tmp_path, 60.0, header)
    for at, points in ticks(3):
        ring.add(points, at)
    path = ring.seal(Event(at, "xid", "gpu 6 had Xid 79", {"job": "41337"}), at)
    ring.close()
    code, out, _ = said("record", "list", "--spool", str(tmp_path))
    assert (code, out) == (0, f"2026-11-20 10:00:07Z  xid       job 41337  gpu 6 had Xid 79  {path}\n")
    path.write_bytes(b"not gzip")
    assert "it cannot be read" in said("record", "list", "--spool", str(tmp_path))[1]
    (tmp_path / "new").mkdir()
    assert said("record", "list", "--spool", str(tmp_path / "new"))[1].endswith("new/incidents\n")
    assert "that folder is not there, so set --spool" in said("record", "list", "--spool", str(tmp_path / "none"))[1]


@pytest.mark.parametrize(
    "words",
    [
        ("--seal", "--job", "a b", "--code", "1"),
        ("--seal", "--job", "1", "--code", "x"),
        ("--seal", "--job", "x" * 41, "--code", "1"),
        ("--seal", "--code", "1"),
        ("run.chipwatch", "--job", "1", "--code", "1"),
    ],
)
def test_a_job_that_fits_into_no_question_is_refused(said, words):
    code, _, error = said("record", *words)
    assert (code, "expected --seal --job NAME --code CODE, such as 41337 and 0:9" in error) == (2, True)
