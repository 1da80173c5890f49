import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.agent.history.test_round_trip import header, ticks

from chipwatch.history.record_file import RecordFile

PAGE = Path(__file__).parents[2] / "docs/recording.md"


def test_the_reader_of_the_page_reads_a_file_and_its_tail(tmp_path, monkeypatch):
    monkeypatch.setattr("chipwatch.history.record_file.MINUTE", 40 * 10**9)
    written = [*ticks(50)]
    file = RecordFile(tmp_path / "run.chipwatch", header)
    for at, points in written:
        file.add(points, at)
    tail = tmp_path / "run.chipwatch.tail"
    script = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    assert len(script.splitlines()) <= 10
    read = {}
    for path in (file.path, tail):
        data = path.read_bytes() if path != tail else finished(path)
        path.write_bytes(data)
        done = subprocess.run(
            [sys.executable, "-c", script, path], capture_output=True, text=True, check=True, timeout=60
        )
        for line in done.stdout.splitlines():
            at, name, rest = line.split(" ", 2)
            dims, value = rest.rsplit(" ", 1)
            read[int(at), name, ast.literal_eval(dims)["gpu"]] = float(value)
    expected = {
        (point.at, point.metric.name, point.dims["gpu"]): point.value for _, points in written for point in points
    }
    assert read.keys() == expected.keys()
    assert all(abs(read[key] - value) <= 5e-6 * abs(value) for key, value in expected.items())
    assert all(read[key] == value for key, value in expected.items() if key[1] == "gpu.energy")


def finished(path):
    """Return the tail as a whole gzip file, since the reader of the page knows no other."""
    import gzip

    from chipwatch.history.ring import lines_of

    return gzip.compress(b"".join(lines_of(path)))
