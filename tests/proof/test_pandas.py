"""The three lines of docs/json.md make a table of GPUs of a file that the sink writes; pandas comes with MLflow."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.proof.parts import python

from chipwatch.contract.datapoint import Datapoint, Dimensions, gauge
from chipwatch_sinks.stdout.jsonl import lines

pytestmark = pytest.mark.proof
PAGE = (Path(__file__).parents[2] / "docs/json.md").read_text()
AT = 1_800_000_000_000_000_000


def test_pandas_reads_the_lines_as_the_page_says(tmp_path):
    utilization, memory = gauge("gpu.utilization", "%", "x"), gauge("memory.used", "By", "x")
    points = [
        Datapoint(utilization, 10.0 * gpu + tick, Dimensions(gpu=str(gpu)), AT + tick * 1_500_000_000)
        for tick in range(3) for gpu in range(2)
    ]  # fmt: skip
    (tmp_path / "run.jsonl").write_text(lines([*points, Datapoint(memory, 7, Dimensions(hostname="a"), AT)], []))
    (block,) = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE)
    done = subprocess.run(
        [python("mlflow"), "-W", "error", "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == ["gpu", "0", "1"]
    assert ["mean", "1.0", "11.0"] in rows
    assert ["max", "2.0", "12.0"] in rows
