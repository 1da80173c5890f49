"""Recordings that somebody else made: a clear error, or what is sound of it, in bounded time and memory."""

import gzip
import json
import random
import subprocess
import sys

import pytest
from tests.agent.history.test_ring import damaged, header, tick

from chipwatch.history.columns import NotARecording, load
from chipwatch.history.record_file import RecordFile

AT = 1_795_168_805_000_000_000
HEADER = {"chipwatch": 1}
GOOD = [HEADER, {"series": [{"name": "a"}]}, {"at": AT, "row": [1.0]}]


def written(path, *rows):
    with gzip.open(path, "wb", 1) as file:
        file.writelines((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"series": [{"name": 1}]},
        {"series": "x"},
        {"series": [{"name": "a", "dims": {"a": {}}}]},
        {"series": [{"name": "a", "start": 2**70}], "at": AT, "row": [1]},
        {"at": AT, "row": [1e999]},
        {"at": 2**70, "row": [1]},
        {"at": AT, "row": [1, 2, 3]},
        {"at": -1, "row": []},
        {"event": {"at": "now", "cause": 3}},
        {"chipwatch": "one"},
        b"[" * 100_000,
        b'{"at": 1, "row": [1',
        b'{"event": {"at": 1, "cause": "\xff"}}',
        b"\xff\xfe",
        b"null",
    ],
    ids=str,
)
def test_a_line_that_is_wrong_leaves_the_others(tmp_path, row):
    recorded = load(written(tmp_path / "a", HEADER, row, *GOOD))
    assert [column.metric.name for column in recorded.columns][:1] == ["a"]
    assert len(recorded.columns[0].times) == 1


def test_a_million_series_are_refused(tmp_path):
    rows = [{"series": [{"name": f"{n}{k}"} for k in range(1000)]} for n in range(150)]
    with pytest.raises(NotARecording, match=r"more than 7,.* points"):
        load(written(tmp_path / "a", HEADER, *rows))


def test_a_script_in_a_dimension_is_text(tmp_path):
    script = "</script><script>alert(1)</script>\x1b[2J"
    series = {"series": [{"name": "a", "dims": {"job": script}}]}
    assert load(written(tmp_path / "a", HEADER, series, {"at": AT, "row": [1]})).columns[0].dims["job"] == script


BOUNDED = r"""
import re, sys, time
from pathlib import Path
from chipwatch.history.columns import NotARecording, load
from chipwatch.contract.errors import CommandError
for path in sorted(Path(sys.argv[1]).iterdir()):
    begun = time.process_time()
    try:
        recorded = load(path)
        print(len(recorded.columns), "series,", recorded.broken, "broken,", len(recorded.events), "events")
    except CommandError as problem:
        print(problem)
    recorded = None
    assert int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) <= 200 << 10, path
    assert time.process_time() - begun < float(sys.argv[2]), path
"""
SECONDS = 15
"""Of CPU time for each file: three times what an idle machine takes at most."""


def bounded(folder):
    """Load all files of a folder in a process that takes at most 200 MB; return a line for each."""
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, folder, str(SECONDS)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


ONE = b'{"series":[%b]}'
MANY_PAIRS = b"".join(b'"%d":"",' % n for n in range(150_000)) + b'"z":""'


BOMBS = [
    ("zeros", b"\0" * (1 << 20), 200, "16 broken"),
    ("endless line", b"0" * (32 << 20), 4, "4 broken"),
    ("endless series", b'{"series":[' + b'{"name":""},' * 500_000 + b'{"name":""}]}', 3, "1 series"),
    ("empty series", b'{"series":[' + b"{}," * 5_500_000 + b"{}]}", 1, "more than 256 MB"),
    ("empty series again", b'{"series":[' + b"{}," * 40_000 + b"{}]}", 2000, "more than"),
    ("pieces", ONE % (b'{"start":1},' * 9999 + b"{}"), 2000, "more than"),
    ("the same event", (b'{"event":{"at":1,"cause":"' + b"x" * 1000 + b'"}}\n') * 1000, 20, "1 events"),
    ("long events", b'{"event":{"at":%d,"cause":"' + b"x" * 4_000_000 + b'"}}', 100, "more than"),
    ("events of many dimensions", b'{"event":{"at":%d,"cause":"x","dims":{' + MANY_PAIRS + b"}}}", 20, "more than"),
    ("many dimensions", ONE.replace(b"%b", b'{"name":"%d","dims":{' + MANY_PAIRS + b"}}"), 20, "more than"),
    ("long names", ONE.replace(b"%b", b'{"name":"%d' + b"x" * 4_000_000 + b'"}'), 20, "more than"),
    ("endless row", b'{"at":1,"row":[' + b"1," * 4_000_000 + b"1]}", 9, "1 broken"),
    ("nothing", b"{}\n" * 100_000, 20, "more than 256 MB"),
    ("unknown", b'{"x":"' + b"x" * 4_000_000 + b'"}', 200, "more than 256 MB"),
]


def test_a_bomb_takes_bounded_time_and_memory(tmp_path):
    for name, row, times, _ in BOMBS:
        member = gzip.compress(row + b"\n", 1)
        with written(tmp_path / name, *GOOD).open("ab") as file:
            for n in range(times):
                file.write(gzip.compress(row % n + b"\n", 1) if b"%d" in row else member)
    for (_, _, _, says), line in zip(sorted(BOMBS), bounded(tmp_path), strict=True):
        assert says in line


def changed(value, rng):
    """Return JSON with a part of it left out, repeated, or replaced by something odd."""
    if isinstance(value, dict) and value:
        key = rng.choice([*value])
        return {**value, key: changed(value[key], rng), **({f"k{rng.random()}": 1} if rng.random() < 0.1 else {})}
    if isinstance(value, list) and value:
        place = rng.randrange(len(value))
        times = rng.choice([0, 1, 2, 1000, 100_000]) if rng.random() < 0.4 else 1
        middle = [changed(value[place], rng)] if times == 1 else [value[place]] * times
        return value[:place] + middle + value[place + 1 :]
    return rng.choice([value, None, 0, -1, 1e300, 2**64, "", "x" * 10**6, [0] * 1000, [{}] * 10_000, {}, {"a": "b"}])


def test_a_recording_that_is_changed_at_random_takes_bounded_time_and_memory(tmp_path):
    rng, folder = random.Random(1), tmp_path / "changed"
    folder.mkdir()
    file = RecordFile(tmp_path / "run.chipwatch", header)
    for n in range(100):
        file.add(*tick(n, gpus=8))
    file.close()
    whole = file.path.read_bytes()
    lines = [json.loads(line) for line in gzip.decompress(whole).splitlines()]
    for line in lines:
        del line["crc"]
    for n in range(40):
        if n % 3:
            written(folder / f"{n:03}", *(changed(line, rng) if rng.random() < 0.5 else line for line in lines))
        else:
            (folder / f"{n:03}").write_bytes(damaged(damaged(whole, rng), rng))
    assert len(bounded(folder)) == 40


def test_lines_of_another_kind_are_not_read_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("chipwatch.history.columns.WASTE", 1000)
    line = b'{"time": "2026-11-20T10:00:05Z", "name": "a", "value": 1}\n'
    (tmp_path / "a").write_bytes(line + b"x\n" * 100_000)
    assert load(tmp_path / "a").broken < 1000
    (tmp_path / "b").write_bytes(b"x\n" * 100_000 + line)
    with pytest.raises(NotARecording):
        load(tmp_path / "b")
