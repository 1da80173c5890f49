import logging
import re
import threading
import time

import pytest
from tests.doubles.frame import MemorySink

from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import Admission, MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch.history.columns import load
from chipwatch.history.ring import RINGS, Ring, recordings_in
from chipwatch.host.failures import read
from chipwatch.jobs.verdict.events import EventHistory
from chipwatch.service.recorder import MOST_WAITING, TOGETHER, Recorder, open_file

S = 10**9
POWER = gauge("gpu.power", "W", "P.", dims=("gpu",))
HEAT = gauge("gpu.temperature", "Cel", "T.", dims=("gpu",))
XID = counter("gpu.xid", "{error}", "X.", dims=("gpu", "xid", "action"))


@pytest.fixture
def pipeline():
    return Pipeline([], (), interval=1.0)


def recorder(pipeline, folder, **more):
    history = EventHistory([], time.time_ns(), past=folder / "failures.json")
    common = Dimensions({"instance_id": "i-1", "@x": "1"})
    return Recorder(Config(interval=1.0, **more), pipeline, lambda: common, folder, history=history)


@pytest.fixture
def made(pipeline, tmp_path):
    return recorder(pipeline, tmp_path)


def finish(made):
    """End the recorder, and wait until all is written, however slow this machine is."""
    made.end()
    made._errands.wait(60)


def run(made, seconds, *, xid_at=None, begun=None):
    begun = time.time_ns() if begun is None else begun
    for n in range(seconds):
        at = begun + n * S
        points = [POWER.point(at, 100.0 + n, Dimensions(gpu="0"))]
        if xid_at is not None and n >= xid_at:
            dims = Dimensions(gpu="0", xid="79", action="restart_machine")
            points.append(XID.point(at, 1.0, dims, start_time=begun))
        made._history.take(points, at)
        made.take(points, at)
        while len(made._errands) > MOST_WAITING // 2:
            time.sleep(0.001)
    return begun


def test_why_a_job_is_slow_is_an_event_and_stands_in_the_incident_that_ends_later(made, tmp_path, pipeline, here):
    begun = run(made, 30)
    made.note_job("7", "nothing to see", True)
    made.note_job("8", "its GPUs wait for files", True)
    made.note_job("7", "nothing slows it", False)
    run(made, 300, xid_at=100, begun=begun + 30 * S)
    finish(made)
    (path,) = recordings_in(tmp_path / "incidents")
    assert [(event.cause, event.text) for event in load(path).events] == [
        ("xid", "gpu 0 had Xid 79"), ("why", "job 7: nothing to see"), ("why", "job 8: its GPUs wait for files"),
        ("why", "job 7: nothing slows it"),
    ]  # fmt: skip
    assert [incident.cause for incident in pipeline.incidents] == ["xid"], "a slow job is no incident"
    (failure,) = read(tmp_path / "failures.json")
    assert failure[1:] == ("xid", "gpu 0 had Xid 79", ""), "the slow job is no failure of the machine"
    line = here("record", "list", "--spool", tmp_path).stdout
    assert "gpu 0 had Xid 79; job 8: its GPUs wait for files" in line


def test_series_beyond_the_bound_have_one_message(tmp_path, pipeline, caplog, monkeypatch):
    monkeypatch.setattr("chipwatch.history.journal.MOST_SERIES", 2)
    made = recorder(pipeline, tmp_path)
    for n in range(6):
        at = time.time_ns() + n * S
        made.take([POWER.point(at, 1.0, Dimensions(gpu=str(gpu))) for gpu in range(3)], at)
    finish(made)
    assert len(re.findall("the others are left out", caplog.text)) == 1
    assert made.trouble.startswith("more than 20,000 series")


def gpus(at, many):
    return [POWER.point(at, 1.0, Dimensions(gpu=str(gpu))) for gpu in range(many)]


def test_many_series_are_recorded_more_slowly_with_one_message_and_each_event_has_its_tick(
    tmp_path, pipeline, caplog, monkeypatch
):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("chipwatch.service.recorder.MANY", 10)
    made, begun, marked = recorder(pipeline, tmp_path), time.time_ns(), []
    for n in range(90):
        at = begun + n * S
        points = gpus(at, 30) if n % 3 else gpus(at, 31)  # the last one is read by a collector in each third tick
        if n == 60:
            marked.append(XID.point(at, 1.0, Dimensions(gpu="0", xid="79"), start_time=begun))
        made._history.take(points + marked, at)
        made.take(points + marked, at)
        while len(made._errands) or (made._ring.crowd == 0 and n > 10):
            time.sleep(0.001)
    finish(made)
    (path,) = recordings_in(tmp_path / "incidents")
    recorded = load(path)
    columns = {(column.metric.name, column.dims.get("gpu")): column for column in recorded.columns}
    assert 35 <= len(columns["gpu.power", "0"].times) <= 45, "the first ten are one part, then one in three"
    assert 10 <= len(columns["gpu.power", "30"].times) <= 16
    assert begun + 60 * S in columns["gpu.power", "0"].times
    assert recorded.interval == pytest.approx(3.2)
    assert [line for line in caplog.messages if "one reading in" in line] == [
        "recorder: 31 series: one reading in 3.1 is kept"
    ]


def test_what_max_series_leaves_out_is_not_recorded_but_what_no_sink_wants_is(tmp_path, pipeline):
    chosen, window, spool = MetricFilter(Level.ALL, ["gpu.power"]), Window(0, born=0), Spool("cloudwatch", None)
    worker = Worker("cloudwatch", MemorySink(), spool)
    route = Route(chosen, window, spool, worker, Dimensions, admission=Admission("cloudwatch", 3))
    pipeline.routes = [route]
    made, begun = recorder(pipeline, tmp_path), time.time_ns()
    for n in range(30):
        at = begun + n * S
        points = [*gpus(at, 5), HEAT.point(at, 50.0)]
        route.take(points, at)
        made.take(points, at)
    made.happened("asked", "somebody asked for it")
    finish(made)
    (path,) = recordings_in(tmp_path / "incidents")
    assert [(column.metric.name, column.dims.get("gpu")) for column in load(path).columns] == [
        ("gpu.power", "0"), ("gpu.power", "1"), ("gpu.power", "2"), ("gpu.temperature", None),
    ]  # fmt: skip


def test_an_agent_for_which_a_state_folder_has_no_recorder_left_says_so(tmp_path, pipeline, caplog):
    rings = [Ring(tmp_path, 60.0, dict) for _ in range(RINGS)]
    made = recorder(pipeline, tmp_path)
    finish(made)
    for ring in rings:
        ring.close()
    (record,) = (record for record in caplog.records if "recorder" in record.getMessage())
    assert record.levelno == logging.WARNING
    assert f"4 agents keep their last minutes in {tmp_path}; set another --spool for this one" in record.getMessage()
    assert made.seal() == {"sealed": False}


def test_an_xid_seals_an_incident_with_two_minutes_after_it(made, tmp_path, pipeline, caplog):
    begun = run(made, 300, xid_at=100)
    finish(made)
    (path,) = recordings_in(tmp_path / "incidents")
    recorded = load(path)
    assert [event.cause for event in recorded.events] == ["xid"]
    assert (recorded.ended - begun) // S == 220
    assert recorded.host["instance_id"] == "i-1"
    assert "@x" not in recorded.host
    assert [(incident.cause, incident.file) for incident in pipeline.incidents] == [("xid", path.name)]
    assert f"gpu 0 had Xid 79; the minutes around it are in {path}" in caplog.text


def test_a_clock_that_is_set_back_ends_an_open_incident_which_has_the_minutes_before(made, tmp_path):
    begun = run(made, 30, xid_at=20)
    run(made, 30, begun=begun - 7200 * S)
    finish(made)
    (path,) = recordings_in(tmp_path / "incidents")
    recorded = load(path)
    assert ((recorded.started - begun) // S, (recorded.ended - begun) // S) == (0, 29)


def test_a_recording_whose_newest_ticks_are_gone_ends_with_one_warning(tmp_path, pipeline, caplog):
    config = Config(interval=1.0)
    file = open_file(config, Dimensions, tmp_path / "run.chipwatch")
    made = Recorder(config, pipeline, Dimensions, tmp_path / "state", file, history=EventHistory([], 0))
    begun = run(made, 10)
    wait = time.monotonic() + 10
    while not (tail := tmp_path / "run.chipwatch.tail").exists() and time.monotonic() < wait:
        time.sleep(0.001)
    tail.unlink()
    run(made, 600, begun=begun + 10 * S)
    made.happened("asked", "somebody asked for it")
    finish(made)
    assert [record.getMessage() for record in caplog.records if "it ends" in record.getMessage()] == [
        f"recorder: {tail}: No such file or directory; it ends, the agent goes on"
    ]
    assert re.fullmatch(rf"nothing after [\d:]{{8}}: {re.escape(str(tail))}: No such file or directory", made.trouble)
    assert recordings_in(tmp_path / "state/incidents")


def test_an_incident_that_is_open_at_the_end_is_sealed_then_and_its_file_is_sent(tmp_path, pipeline, monkeypatch):
    sent = []
    monkeypatch.setattr(pipeline, "send", lambda points, _: sent.extend(points))
    made = recorder(pipeline, tmp_path)
    run(made, 30)
    made.end("train.py ended with 1", 1)
    (path,) = recordings_in(tmp_path / "incidents")
    assert [(event.cause, event.text) for event in load(path).events] == [("command", "train.py ended with 1")]
    assert [*made.files()] == [path]
    assert [(point.metric.name, dict(point.dims)) for point in sent] == [
        ("incident.recorded", {"cause": "command", "file": path.name})
    ]


def test_a_run_without_an_incident_leaves_nothing(made, tmp_path):
    run(made, 30)
    finish(made)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lock"]
    assert [*made.files()] == []


@pytest.mark.parametrize(
    ("code", "text"), [("3:0", "ended with 3"), ("0:9", "was ended by signal 9"), ("7", "ended with 7")]
)
def test_a_job_that_failed_begins_an_incident_that_names_it(made, tmp_path, code, text):
    run(made, 30)
    assert made.seal("41337", code)["sealed"]
    finish(made)
    (path,) = recordings_in(tmp_path / "incidents")
    (event,) = load(path).events
    assert (event.cause, event.text, event.dims) == ("job", f"job 41337 {text}", {"job": "41337"})
    assert path.stem.endswith("-job")


def test_the_same_cause_has_no_second_incident_within_the_time_that_is_kept(made, tmp_path):
    begun = run(made, 300, xid_at=100)
    for n in range(300, 600):
        dims = Dimensions(gpu="0", xid="79", action="restart_machine")
        points = [XID.point(begun + n * S, float(n), dims, start_time=begun)]
        made._history.take(points, begun + n * S)
        made.take(points, begun + n * S)
        time.sleep(0.001)
    finish(made)
    assert len(recordings_in(tmp_path / "incidents")) == 1


def test_the_same_cause_has_no_second_incident_after_a_restart_but_one_for_each_that_is_asked_for(tmp_path, pipeline):
    for n in range(3):
        made = recorder(pipeline, tmp_path)
        run(made, 130, xid_at=2, begun=time.time_ns() + n * 150 * S)
        finish(made)
    assert [path.stem.partition("-")[2] for path in recordings_in(tmp_path / "incidents")] == ["xid"]
    for _ in range(2):
        made = recorder(pipeline, tmp_path)
        made.happened("asked", "somebody asked for it")
        finish(made)
        time.sleep(1.0)  # names have seconds
    assert sorted(path.stem.partition("-")[2] for path in recordings_in(tmp_path / "incidents")) == ["asked"] * 2 + [
        "xid"
    ]


@pytest.mark.parametrize(("option", "expected"), [(False, []), ({"keep": 60}, ["recorder"])])
def test_the_recorder_is_off_where_it_is_false(tmp_path, pipeline, option, expected):
    made = recorder(pipeline, tmp_path, recorder=option)
    run(made, 3)
    assert [path.name for path in tmp_path.iterdir()] == expected
    assert made.seal()["sealed"] is bool(expected)
    finish(made)


def test_a_full_disk_ends_the_recorder_with_one_warning_and_not_the_agent(made, caplog, monkeypatch):
    made._level = logging.WARNING
    monkeypatch.setattr("chipwatch.history.journal.write_whole", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    run(made, 5)
    finish(made)
    assert caplog.text.count("recorder: the disk is full") == 1
    assert made.seal() == {"sealed": False}


def test_a_run_that_ends_well_after_its_disk_was_full_was_not_killed(made, tmp_path, pipeline, monkeypatch):
    begun = run(made, 10)
    ring = made._ring
    end = time.monotonic() + 60
    while ring._journal is None and time.monotonic() < end:
        time.sleep(0.001)
    monkeypatch.setattr(ring, "add", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full")))
    run(made, 10, begun=begun + 10 * S)
    finish(made)
    finish(made)
    assert made._kept_ring is None
    after = recorder(pipeline, tmp_path)
    finish(after)
    assert recordings_in(tmp_path / "incidents") == []
    assert [path.name for path in (tmp_path / "recorder").iterdir()] == ["lock"]


def test_the_incident_that_a_killed_run_left_belongs_to_that_run(tmp_path, pipeline, caplog):
    killed = Ring(tmp_path, 900, dict)
    killed.add([POWER.point(S, 100.0, Dimensions(gpu="0"))], S)
    killed._lock.close()
    made = recorder(pipeline, tmp_path)
    finish(made)
    assert caplog.text.count("incident: the last run was killed") == 1
    assert len(recordings_in(tmp_path / "incidents")) == 1
    assert [*made.files()] == []


def test_a_disk_that_hangs_does_not_hold_up_the_clock(tmp_path, pipeline, caplog, monkeypatch):
    made = Recorder(Config(interval=TOGETHER), pipeline, lambda: None, tmp_path, history=EventHistory([], 0))
    begun, disk = threading.Event(), threading.Event()
    made._errands.add(lambda: (begun.set(), disk.wait(60)))
    assert begun.wait(60)
    for n in range(3 * MOST_WAITING):
        made.take([], n)
    assert len(made._errands) == MOST_WAITING
    assert caplog.text.count("the disk is too slow") == 1
    assert made.trouble == "the disk was too slow for some readings"
    disk.set()
    finish(made)
