"""A recording tells what each job has."""

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.jobs.metrics import GPU_TIME, GPUS
from chipwatch.show.top.replay import jobs
from chipwatch_sinks.stdout.jsonl import lines

AT, S = 1_795_168_805_000_000_000, 10**9
NAMES = {"job": "41337", "user": "ada", "partition": "h100"}


def tick(at, busy, stalled, count=8.0):
    dims = Dimensions(NAMES)
    times = (Datapoint(GPU_TIME, 100 + value, dims | {"state": state}, at, AT, at - S, None, value)
             for state, value in (("busy", busy), ("stalled", stalled)))  # fmt: skip
    return [GPUS.point(at, count, dims | {"source": "mapping"}), *times]


def test_a_line_for_each_job_tells_its_accelerators_and_what_they_did_since_the_tick_before():
    small = GPUS.point(AT, 3 / 7, Dimensions(job="train-0", namespace="a", source="kubelet"))
    assert jobs([small, *tick(AT, 30.0, 10.0)]) == [
        "job 41337 (ada, h100): 8 accelerators, busy 75 %, stalled 25 %",
        "job train-0 (a): 0.43 accelerators",
    ]


def test_points_of_one_job_by_two_sources_are_one_line_and_other_points_are_none():
    both = [GPUS.point(AT, 1.0, Dimensions(job="7", source=source)) for source in ("process", "mapping")]
    assert jobs([*both, GPUS.point(AT, 1.0, Dimensions(source="process"))]) == ["job 7: 2 accelerators"]
    assert jobs([]) == []


def test_many_jobs_leave_room_for_the_devices():
    found = jobs([GPUS.point(AT, float(n), Dimensions(job=str(n))) for n in range(1, 65)])
    assert (len(found), found[0], found[-1]) == (6, "job 64: 64 accelerators", "59 more jobs")


def test_a_name_from_outside_cannot_break_the_screen():
    (line,) = jobs([GPUS.point(AT, 1.0, Dimensions(job="a\x1b[2J\n" + "b" * 500))])
    assert line.isprintable()
    assert len(line) < 80


def test_a_recording_that_is_played_shows_its_jobs(sit, tmp_path):
    path = tmp_path / "run.jsonl"
    totals = [(0.0, 0.0), (30.0, 10.0), (62.0, 18.0)]
    path.write_text(lines([point for n, total in enumerate(totals) for point in tick(AT + n * S, *total)], []))
    seat = sit("--replay", path)
    seat.shows("job 41337 (ada, h100): 8 accelerators, busy 75 %, stalled 25 %")
    seat.shows("busy 80 %, stalled 20 %")
    seat.press("q")
    assert seat.end() == 0
