import gzip
import json

import pytest

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch.history.columns import NotARecording, load
from chipwatch_sinks.stdout.jsonl import lines

AT, S = 1_795_168_805_000_000_000, 10**9
POWER = gauge("gpu.power", "W", "P.", dims=("gpu",))
HEADER = {"chipwatch": 1, "version": "0.9", "host": {"hostname": "node-7"}, "started": AT, "interval": 1.0}
SERIES = {
    "series": [
        {"name": "gpu.power", "kind": "gauge", "unit": "W", "dims": {"gpu": "0"}},
        {"name": "disk.read", "kind": "counter", "unit": "By", "start": AT},
        {"name": "gpu.temp", "unit": "Cel"},
    ]
}
ROWS = [{"at": AT + n * S, "row": row} for n, row in enumerate([[1.5, 7, 41.1], [None, None, 41.2], [-0.0, 9, 41.3]])]


def written(tmp_path, *rows, zipped=True):
    path = tmp_path / "run.chipwatch"
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if zipped else text)
    return path


def columns(recorded):
    return {column.metric.name: ([*column.times], [*column.values]) for column in recorded.columns}


@pytest.mark.parametrize("zipped", [False, True])
def test_rows_are_read_as_a_column_for_each_series(tmp_path, zipped):
    event = {"event": {"at": AT, "cause": "xid", "text": "gpu 6 had Xid 79"}}
    recorded = load(written(tmp_path, HEADER, SERIES, *ROWS, event, zipped=zipped))
    assert columns(recorded) == {
        "disk.read": ([AT, AT + 2 * S], [7.0, 9.0]),
        "gpu.power": ([AT, AT + 2 * S], [1.5, -0.0]),
        "gpu.temp": ([AT, AT + S, AT + 2 * S], [41.1, 41.2, 41.3]),
    }
    assert recorded.columns[0].starts == [(0, AT)]
    assert recorded.columns[1].dims == Dimensions(gpu="0")
    assert (recorded.started, recorded.ended, recorded.interval) == (AT, AT + 2 * S, 1.0)
    assert recorded.host == {"hostname": "node-7", "version": "0.9"}
    assert [(event.cause, event.text) for event in recorded.events] == [("xid", "gpu 6 had Xid 79")]
    assert recorded.broken == 0


def test_json_lines_are_read_as_columns_too(tmp_path):
    path = tmp_path / "run.jsonl"
    times = [AT + n * S + S // 4 for n in range(3)]
    path.write_text(lines([POWER.point(at, 1.0 * n, Dimensions(gpu="0")) for n, at in enumerate(times)], []))
    recorded = load(path)
    assert columns(recorded) == {"gpu.power": (times, [0.0, 1.0, 2.0])}
    assert recorded.interval == 1.0


def test_a_recording_with_too_much_is_refused_by_name(tmp_path):
    with pytest.raises(NotARecording, match="format 2 is of a newer chipwatch"):
        load(written(tmp_path, {**HEADER, "chipwatch": 2}))
    path = written(tmp_path, HEADER, SERIES, *ROWS)
    with pytest.raises(NotARecording, match=r"run\.chipwatch: more than 5 points"):
        load(path, most_points=5)


def test_a_row_that_does_not_fit_is_left_out_and_counted(tmp_path):
    more = {"at": AT, "row": [1, 2, 3, 4]}
    recorded = load(written(tmp_path, more, HEADER, SERIES, more, {"at": -9, "row": [1]}, *ROWS))
    assert recorded.broken == 3
    assert columns(recorded)["gpu.temp"] == ([AT, AT + S, AT + 2 * S], [41.1, 41.2, 41.3])
