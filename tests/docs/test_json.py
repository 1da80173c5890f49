"""The lines that docs/json.md shows are those that the sink writes."""

import re
from datetime import datetime
from pathlib import Path

from chipwatch.contract.datapoint import Datapoint, Dimensions, Summary, counter, gauge
from chipwatch_sinks.stdout.jsonl import lines

PAGE = (Path(__file__).parents[2] / "docs/json.md").read_text()


def ns(text):
    return int(datetime.fromisoformat(text).timestamp()) * 10**9


def test_the_page_shows_the_lines_that_the_sink_prints():
    at, begun, born = map(ns, ("2026-11-20T10:01:00Z", "2026-11-20T10:00:00Z", "2026-11-20T08:12:41Z"))
    host, gpu = Dimensions(hostname="trn-7"), Dimensions(hostname="trn-7", gpu="0")
    summary = Summary(3, 2060.0, 680.0, 690.0, (680.0, 690.0), (1, 2), 690.0)
    rejected: list = []
    written = lines(
        [
            Datapoint(gauge("cpu.utilization", "%", "x"), 12.5, host, at, None, None, None),
            Datapoint(counter("network.sent", "By", "x"), 2597339, host, at, born, begun, None, 5120),
            Datapoint(gauge("gpu.power", "W", "x"), 2060.0 / 3, gpu, at, None, begun, summary),
        ],
        rejected,
    )
    assert written.splitlines() == [line for line in PAGE.splitlines() if line.startswith('{"time"')]
    assert rejected == []


def test_pandas_needs_three_lines_and_reads_keys_that_are_explained():
    (block,) = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE)
    imported, *rest = filter(None, block.splitlines())
    assert imported == "import pandas as pd"
    assert len(rest) == 3
    assert {"time", "name", "value", "dims"} <= set(re.findall(r'"(\w+)"', block))


def test_every_key_of_the_lines_is_explained():
    shown = set(re.findall(r'"(\w+)": ', "".join(line for line in PAGE.splitlines() if line.startswith("{"))))
    told = set(re.findall(r"`(\w+)`", PAGE))
    assert shown - {"hostname", "gpu"} <= told
