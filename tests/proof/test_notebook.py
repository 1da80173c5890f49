"""The cells of docs/notebook.md run in a real notebook, in the order of the page."""

import json
import os
import re
import subprocess
import sysconfig

import pytest
from tests.proof.parts import ROOT, python

pytestmark = pytest.mark.proof
TRAIN = """
import time

def train(seconds=3):
    block, end = bytearray(50_000_000), time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    return "trained"
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """Run cells in a new notebook; return the outputs of each, and the views that were renewed."""
    folder = tmp_path_factory.mktemp("notebook")
    paths = (ROOT / "agent", ROOT / "sinks", sysconfig.get_path("purelib"))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "TMPDIR": str(folder)}

    def run(*cells):
        done = subprocess.run(
            [python("notebook"), ROOT / "tests/proof/notebook_run.py"],
            input=json.dumps(cells), capture_output=True, text=True, timeout=300, check=False, env=env, cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert [*folder.glob("chipwatch-*")] == []
        answer = json.loads(done.stdout)
        return answer["outputs"], answer["updates"]

    return run


def text(outputs):
    return "".join(out["text"] if out["output_type"] == "stream" else out["data"]["text/plain"] for out in outputs)


def test_the_cells_of_the_page_run_as_they_stand(notebook):
    page = (ROOT / "docs/notebook.md").read_text()
    cells = re.findall(r"(?ms)^```python\n(.*?)^```$", page)
    outputs, updates = notebook(TRAIN, *cells)
    assert [out for cell in outputs for out in cell if out["output_type"] == "error"] == []
    _, block, extension, magic, frame = outputs
    assert re.match(r"chipwatch: watched process \d+ for [3-9]\.\d s\n", text(block))
    assert re.search(r"\n  CPU       mean .*\n  memory    peak [\d.]+ MiB in 1 process\n", text(block))
    assert extension == []
    view, value = magic
    assert "<svg" in view["data"]["text/html"]
    assert "process.memory.rss" not in view["data"]["text/html"]
    assert value["data"]["text/plain"] == "'trained'"
    assert [cell for cell, _ in updates if cell != 3] == []
    assert len(updates) >= 2, "once while it ran, and at the end"
    assert "chipwatch: watched process" in updates[0][1]["text/html"]
    readings, most = re.fullmatch(r"(\d+) readings, at most (\d+) MiB\n", text(frame)).groups()
    assert int(readings) >= 5
    assert int(most) > 90


def test_the_exception_of_a_cell_is_shown_and_the_readings_are_kept(notebook):
    failing, outputs, errors = (
        [
            "%chipwatch 1 / 0",
            "%%chipwatch live=False\nlist({'a': '$x {x}'}.values())",
            "%%chipwatch sinks='nonsense'\n1",
        ],
        [],
        [],
    )
    outputs, updates = notebook("%load_ext chipwatch", failing[0], "chipwatch_run.frame('polars').columns[:4]", failing[1], failing[2],
                                "chipwatch_run.frame().dtypes.to_dict()")  # fmt: skip
    for cell in (outputs[1], outputs[4]):
        errors += [out["ename"] for out in cell if out["output_type"] == "error"]
    assert errors == ["ZeroDivisionError", "RuntimeError"]
    assert text(outputs[2]) == "['time', 'name', 'unit', 'value']"
    assert outputs[3][-1]["data"]["text/plain"] == "['$x {x}']"
    assert [cell for cell, _ in updates] == [1, 3]
    assert "datetime64[ns, UTC]" in text(outputs[5])
