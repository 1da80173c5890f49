import gzip
import json

import pytest

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, counter, gauge
from chipwatch.history.columns import LONGEST, NotARecording, load
from chipwatch.show.top.replay import frames as played
from chipwatch_sinks.stdout.jsonl import lines

AT, S = 1_795_168_805_000_000_000, 10**9
POWER = gauge("gpu.power", "W", "P.", dims=("gpu",))
READ = counter("disk.read", "By", "R.")


def text(ticks=3):
    points = []
    for n in range(ticks):
        at = AT + n * S
        points += [POWER.point(at, 100.0 + n, Dimensions(gpu="0"))]
        points += [Datapoint(READ, 1000.0 * n, Dimensions(), at, AT - S, at - S, None, 500.0)]
    return lines(points, [])


def frames(path, start=0):
    return [(frame.at, frame.points) for frame in played(load(path), start)]


@pytest.mark.parametrize("zipped", [False, True])
def test_what_the_agent_printed_is_read_back_tick_by_tick(tmp_path, zipped):
    path = tmp_path / "run"
    path.write_bytes(gzip.compress(text().encode()) if zipped else text().encode())
    found = frames(path)
    assert [at for at, _ in found] == [AT, AT + S, AT + 2 * S]
    power, read = found[1][1]
    said = power.metric.name, power.metric.kind, power.value, power.dims["gpu"]
    assert said == ("gpu.power", Kind.GAUGE, 101.0, "0")
    assert (read.increase, read.window_start, read.start_time, read.at) == (1000.0, AT, AT - S, AT + S)
    assert frames(path, 1)[1:] == found[2:]


def test_a_point_whose_time_its_series_has_passed_is_left_out_and_counted(tmp_path):
    path = tmp_path / "run"
    late = lines([POWER.point(AT + 5 * S, 1.0), POWER.point(AT, 2.0), POWER.point(AT + 6 * S, 3.0)], [])
    path.write_text(late)
    assert [(at, len(points)) for at, points in frames(path)] == [(AT + 5 * S, 1), (AT + 6 * S, 1)]
    assert load(path).broken == 1


def test_broken_lines_are_counted_and_left_out(tmp_path):
    path = tmp_path / "run"
    long = json.dumps({"time": "x" * LONGEST})
    path.write_text(f'not json\n\n[1]\n{{}}\n{long}\n{{"time": "yesterday", "name": "a"}}\n{text(1)}{text(1)[:40]}')
    assert len(frames(path)) == 1
    assert load(path).broken == 6


def test_a_gzip_file_that_was_cut_gives_what_is_whole(tmp_path):
    path = tmp_path / "run.gz"
    path.write_bytes(gzip.compress(text(2000).encode())[:-2000])
    assert 100 < len(frames(path)) < 2000


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no line is one of `chipwatch --format json`"),
        (b"hello\n", "no line is one of"),
        (b'{"format": 2, "time": "2026-11-20T10:00:00Z"}\n', "format 2 is of a newer chipwatch"),
        (b"\x1f\x8bnot gzip at all", "run"),
    ],
)
def test_a_file_that_is_not_a_recording_is_refused_by_name(tmp_path, content, reason):
    path = tmp_path / "run"
    path.write_bytes(content)
    with pytest.raises(NotARecording, match="run") as refused:
        frames(path)
    assert reason in str(refused.value)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(NotARecording, match="missing: No such"):
        load(tmp_path / "missing")
