"""Recordings in memory for the tests of the page."""

import json
import math
import random
import re
import zlib
from array import array
from base64 import b64decode
from pathlib import Path

from chipwatch.contract.datapoint import Dimensions, Kind, Metric
from chipwatch.history.columns import Recorded, RecordedSeries
from chipwatch.history.record_file import RecordFile

START = 1_795_430_533 * 10**9
SECOND = 10**9


def series(name, values, *, kind=Kind.GAUGE, unit="%", start=START, step=1.0, since=0, dims=None, **more):
    """One series with a reading every `step` seconds; None is left out. `since`: the start of a counter."""
    points = [(start + round(n * step * SECOND), value) for n, value in enumerate(values) if value is not None]
    times, numbers = array("q", [at for at, _ in points]), array("d", [value for _, value in points])
    starts = [(0, since)] if kind is Kind.COUNTER else []
    return RecordedSeries(Metric(name, kind, unit, ""), Dimensions(dims or {}, **more), times, numbers, starts)


def counter(name, values, unit="s", **more):
    return series(name, values, kind=Kind.COUNTER, unit=unit, **more)


def recorded(*columns, host="node-7", path="run.chipwatch", **more):
    started = min(column.times[0] for column in columns)
    ended = max(column.times[-1] for column in columns)
    dims = {"hostname": host} if host else {}
    ordered = sorted(columns, key=lambda column: column.metric.name)
    return Recorded(Path(path), started, ended, 1.0, dims, ordered, **more)


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
            counter("gpu.busy.time", sums([0.9 if n == 0 else 0.0] * seconds), dims={"kind": "compute"}, **gpu),
            counter(
                "gpu.idle.time",
                sums([0.1 if n == 0 else 1.0] * seconds),
                cause="data" if n == 0 else "no_process",
                **gpu,
            ),
        ]
    columns.append(series("cpu.utilization", [40.0 + dice.random() for _ in range(seconds + 1)], start=start))
    return recorded(*columns, host=host, path=f"{host}.chipwatch")


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


GAUGES = {
    "gpu.utilization": ("%", 95), "gpu.memory.utilization": ("%", 76), "gpu.memory.used": ("By", 6.5e10), "gpu.power": ("W", 690),
    "gpu.power.utilization": ("%", 97), "gpu.temperature": ("Cel", 64), "gpu.memory.temperature": ("Cel", 70),
    "gpu.engine.active": ("%", 94), "gpu.sm.active": ("%", 88), "gpu.sm.occupancy": ("%", 40), "gpu.tensor.active": ("%", 61),
    "gpu.dram.active": ("%", 48), "gpu.fp16.active": ("%", 9), "gpu.fp32.active": ("%", 18), "gpu.memory.activity": ("%", 31),
    "gpu.clock.sm": ("MHz", 1900), "gpu.memory.available": ("By", 2e10),
}  # fmt: skip
CONSTANTS = {
    "gpu.memory.total": ("By", 8.6e10), "gpu.power.limit": ("W", 700), "gpu.clock.memory": ("MHz", 2619),
    "gpu.clock.graphics": ("MHz", 1980), "gpu.fp64.active": ("%", 0), "gpu.encoder.utilization": ("%", 0),
    "gpu.decoder.utilization": ("%", 0), "gpu.rows.failed": ("1", 0), "gpu.state": ("1", 1), "gpu.memory.reserved": ("By", 5e8),
}  # fmt: skip
COUNTERS = {
    "gpu.energy": ("J", 690), "gpu.pcie.sent": ("By", 3e9), "gpu.pcie.received": ("By", 2e9), "gpu.nvlink.sent": ("By", 9e10),
    "gpu.nvlink.received": ("By", 9e10),
}  # fmt: skip
HOST = {"network.sent": 3e9, "network.received": 3e9, "disk.read": 1e9, "disk.written": 2e8}


def hour(seconds=3600, gpus=8, host="node-7", seed=1):
    """An hour at 1 s, level detailed: eight noisy GPUs, one slowed by heat, one that waits for data, one that is lost."""
    dice, columns = random.Random(seed), []
    ticks = range(seconds + 1)
    for n in range(gpus):
        gpu = {"gpu": str(n), "model": "NVIDIA H100 80GB HBM3", "hostname": host}
        load = [0.07 if at % 600 > 570 else (at % 12 < 5) if n == 5 else n != 7 for at in ticks]
        for name, (unit, size) in GAUGES.items():
            noise = [size * (part * 0.9 + 0.05 + 0.05 * dice.random()) for part in load]
            columns.append(series(name, noise if unit != "%" else [*map(round, noise)], unit=unit, **gpu))
        columns += [series(name, [size] * (seconds + 1), unit=unit, **gpu) for name, (unit, size) in CONSTANTS.items()]
        for name, (unit, size) in COUNTERS.items():
            rises = [size * part * (0.9 + 0.1 * dice.random()) for part in load[1:]]
            columns.append(counter(name, sums(rises), unit=unit, **gpu))
        busy = [min(1.0, part * (0.95 + 0.05 * dice.random())) for part in load[1:]]
        columns.append(counter("gpu.busy.time", sums(busy), dims={"kind": "compute"}, **gpu))
        cause = {5: "data", 7: "no_process"}.get(n, "other")
        columns.append(counter("gpu.idle.time", sums([1 - part for part in busy]), **gpu, cause=cause))
        for reason in ("power", "thermal", "low_utilization"):
            slow = [0.4 if n == 2 and reason == "thermal" and 900 < at < 2400 else 0.0 for at in range(seconds)]
            columns.append(counter("gpu.throttled", sums(slow), **gpu, reason=reason))
        for name in ("gpu.ecc.corrected", "gpu.ecc.uncorrected", "gpu.pcie.replays"):
            columns.append(counter(name, [0] * (seconds + 1), unit="{error}", **gpu))
    late = {"start": START + seconds // 3 * SECOND, "unit": "{error}", "hostname": host}
    columns.append(counter("gpu.xid", [1] * (seconds // 2), gpu="7", xid="79", action="restart_machine", **late))
    columns += [
        counter(name, sums([size * (0.8 + 0.4 * dice.random()) for _ in range(seconds)]), unit="By", hostname=host)
        for name, size in HOST.items()
    ]
    for port in range(8):
        rdma = {"device": f"mlx5_{port}", "port": "1", "hostname": host}
        for name in ("rdma.sent", "rdma.received"):
            columns.append(
                counter(name, sums([4e10 * (0.9 + 0.1 * dice.random()) for _ in range(seconds)]), unit="By", **rdma)
            )
        columns.append(series("rdma.state", [1] * (seconds + 1), unit="1", **rdma))
    columns.append(series("cpu.utilization", [30 + 5 * dice.random() for _ in ticks], hostname=host))
    columns.append(series("memory.utilization", [25 + at / seconds for at in ticks], hostname=host))
    return recorded(*columns, host=host, path=f"{host}.chipwatch")


def write(recording, path):
    """Write a recording as the agent does."""
    header = {"chipwatch": 1, "host": recording.host, "interval": recording.interval, "started": recording.started}
    file = RecordFile(path, lambda: header)
    for at, points in recording.ticks():
        file.add(points, at)
    file.close()
