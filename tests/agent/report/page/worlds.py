"""Recordings in memory for the tests of the page."""

from __future__ import annotations

import json
import math
import random
import re
import zlib
from array import array
from base64 import b64decode
from pathlib import Path

from chipwatch.contract.datapoint import Dimensions, Kind, Metric
from chipwatch.recording.columns import Recorded, RecordedSeries

START = 1_795_430_533 * 10**9
SECOND = 10**9


def series(name, values, *, kind=Kind.GAUGE, unit="%", start=START, step=1.0, since=0, **dims):
    """One series with a reading every `step` seconds; None is left out. `since`: the start of a counter."""
    points = [(start + round(n * step * SECOND), value) for n, value in enumerate(values) if value is not None]
    times, numbers = array("q", [at for at, _ in points]), array("d", [value for _, value in points])
    starts = [(0, since)] if kind is Kind.COUNTER else []
    return RecordedSeries(Metric(name, kind, unit, ""), Dimensions(dims), times, numbers, starts)


def counter(name, values, unit="s", **more):
    return series(name, values, kind=Kind.COUNTER, unit=unit, **more)


def recorded(*columns, host="node-7", path="run.chipwatch", **more):
    started = min(column.times[0] for column in columns)
    ended = max(column.times[-1] for column in columns)
    dims = {"hostname": host} if host else {}
    return Recorded(
        Path(path), started, ended, 1.0, dims, sorted(columns, key=lambda column: column.metric.name), **more
    )


def sums(rates):
    """Return a counter with these rises, from 0 on."""
    total, values = 0.0, [0.0]
    for rate in rates:
        total += rate
        values.append(total)
    return values


def node(gpus=2, seconds=120, host="node-7", seed=1, start=START):
    """A machine whose first GPU is busy 90 % of the time and waits for data, and whose others have no process."""
    dice, columns = random.Random(seed), []
    for n in range(gpus):
        gpu = {"gpu": str(n), "model": "H100", "start": start}
        busy = [90 + 5 * math.sin(at / 9) + dice.random() if n == 0 else 0.0 for at in range(seconds + 1)]
        columns += [
            series("gpu.utilization", busy, **gpu),
            series("gpu.memory.used", [61 * 2**30] * (seconds + 1), unit="By", **gpu),
            series("gpu.power", [95 + 6 * value for value in busy], unit="W", **gpu),
            series("gpu.temperature", [40 + value / 3 for value in busy], unit="Cel", **gpu),
            _named("gpu.busy.time", [0.9 if n == 0 else 0.0] * seconds, "kind", "compute", gpu),
            _named(
                "gpu.idle.time", [0.1 if n == 0 else 1.0] * seconds, "cause", "data" if n == 0 else "no_process", gpu
            ),
        ]
    columns.append(series("cpu.utilization", [40.0 + dice.random() for _ in range(seconds + 1)], start=start))
    return recorded(*columns, host=host, path=f"{host}.chipwatch")


def _named(name, rises, key, value, gpu):
    dims = {each: text for each, text in gpu.items() if each != "start"}
    column = counter(name, sums(rises), start=gpu["start"], **dims)
    return RecordedSeries(column.metric, Dimensions({**dims, key: value}), column.times, column.values, column.starts)


def data_of(html):
    """Return what the page's script reads."""
    (packed,) = re.findall(r'<script type="text/plain" id="data">([\w+/=]*)</script>', html)
    return json.loads(zlib.decompress(b64decode(packed)))


def decoded(one, chart, count):
    """Return the means of a series in each bucket, as the page's script computes them; None where nothing was read."""
    values, at, number = [None] * count, 0, 0
    for first, length in zip(one["runs"][::2], one["runs"][1::2], strict=True):
        for place in range(first, first + length):
            number += one["mean"][at]
            values[place] = number * chart["quantum"]
            at += 1
    return values
