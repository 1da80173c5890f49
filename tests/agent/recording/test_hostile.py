"""Recordings that somebody else made: a clear error, or what is sound of it, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from chipwatch.recording.columns import NotARecording, load

AT = 1_795_168_805_000_000_000
HEADER = {"chipwatch": 1}
GOOD = {"times": [AT], "series": [{"name": "a", "values": [1.0], "picks": "0"}]}


def written(path, *rows):
    with gzip.open(path, "wb", 1) as file:
        file.writelines((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"times": [AT], "series": [{"name": 1, "values": [1]}]},
        {"times": "x", "series": []},
        {"times": [AT], "series": [{"name": "a", "values": [1], "dims": {"a": {}}}]},
        {"times": [AT], "series": [{"name": "a", "values": [1e999]}]},
        {"times": [AT], "series": [{"name": "a", "deltas": [1], "scale": -5}]},
        {"times": [2**70], "series": [{"name": "a", "values": [1]}]},
        {"times": [AT, 0], "series": [{"name": "a", "values": [1, 2]}]},
        {"times": [AT], "series": [{"name": "a", "values": [], "picks": "\ud800"}]},
        {"at": AT, "row": [1, 2, 3]},
        {"at": -1, "row": []},
        {"event": {"at": "now", "cause": 3}},
        {"chipwatch": "one"},
        b"[" * 100_000,
        b'{"times": [1',
        b'{"event": {"at": 1, "cause": "\xff"}}',
        b"\xff\xfe",
        b"null",
    ],
    ids=str,
)
def test_a_line_that_is_wrong_leaves_the_others(tmp_path, row):
    recorded = load(written(tmp_path / "a", HEADER, row, GOOD))
    assert [column.metric.name for column in recorded.columns][:1] == ["a"]
    assert len(recorded.columns[0].times) == 1


def test_a_million_series_are_refused(tmp_path):
    rows = [
        {"times": [AT], "series": [{"name": f"{n}{k}", "values": [1], "picks": "0"} for k in range(1000)]}
        for n in range(60)
    ]
    with pytest.raises(NotARecording, match="more than 50,000 series"):
        load(written(tmp_path / "a", HEADER, *rows))


def test_a_script_in_a_dimension_is_text(tmp_path):
    script = "</script><script>alert(1)</script>\x1b[2J"
    block = {"times": [AT], "series": [{"name": "a", "values": [1], "picks": "0", "dims": {"job": script}}]}
    assert load(written(tmp_path / "a", HEADER, block)).columns[0].dims["job"] == script


BOUNDED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))
from pathlib import Path
from chipwatch.recording.columns import NotARecording, load
from chipwatch.contract.errors import CommandError
try:
    print(load(Path(sys.argv[1])).broken)
except CommandError as problem:
    print(problem)
"""


@pytest.mark.parametrize(
    ("row", "times", "says"),
    [
        (b"\0" * (1 << 20), 200, "64"),
        (b"0" * (32 << 20), 4, "4"),
        (b'{"times":[],"series":[' + b'{"name":""},' * 500_000 + b'{"name":""}]}', 3, ""),
        (b'{"event":{"at":1,"cause":"' + b"x" * 1000 + b'"}}', 100_000, "0"),
        (b'{"at":1,"row":[' + b"1," * 4_000_000 + b"1]}", 9, "more than 30,000,000 points"),
    ],
    ids=["zeros", "endless line", "endless series", "endless events", "endless row"],
)
def test_a_bomb_takes_bounded_memory(tmp_path, row, times, says):
    path = tmp_path / "bomb"
    with gzip.open(path, "wb", 1) as file:
        file.write(json.dumps(HEADER).encode() + b"\n" + json.dumps(GOOD).encode() + b"\n")
        for _ in range(times):
            file.write(row + b"\n")
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, path], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_lines_of_another_kind_are_not_read_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("chipwatch.recording.columns.WASTE", 1000)
    line = b'{"time": "2026-11-20T10:00:05Z", "name": "a", "value": 1}\n'
    (tmp_path / "a").write_bytes(line + b"x\n" * 100_000)
    assert load(tmp_path / "a").broken < 1000
    (tmp_path / "b").write_bytes(b"x\n" * 100_000 + line)
    with pytest.raises(NotARecording):
        load(tmp_path / "b")
