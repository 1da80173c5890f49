"""Cost of sending to CloudWatch: CPU a datum, memory, requests, and the effect of a dead endpoint on the clock."""

import dataclasses
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.child import ask, receiving
from tests.bench.command import WARM_UP, resident, signed
from tests.bench.figure import MEMORY, Effort, Figure
from tests.bench.series import METRICS, metrics
from tests.doubles import cloudwatch as service
from tests.doubles.cloudwatch import CloudwatchDouble
from tests.doubles.datums import datum

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Summary, gauge
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Schedule, Worker
from chipwatch.engine.route import Admission, MetricFilter, Route
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch_sinks.cloudwatch import CloudwatchSink

DATUMS = 1000
SAMPLES = 12
"""Samples of a window at defaults: 60 s of one each 5 s."""
MINUTE = 1.2
"""Seconds that stand for a minute where requests are counted."""
MINUTES = 6
LEVEL = gauge("bench.level.utilization", "%", "A level.", dims=("n",))
MACHINE = {"instance_id": "i-0abc1234567890def", "instance_type": "p5.48xlarge"}


def cloudwatch(effort: Effort) -> list[Figure]:
    """Measure all of it."""
    with environ(service.environment()):
        return [*cost(effort), *memory(effort), pace(), *dead(effort)]


@contextmanager
def environ(wanted: dict[str, str]) -> Iterator[None]:
    """Run the block, and the processes that it starts, in this environment."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(wanted)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def point(at: int, n: int, samples: int, dice: random.Random) -> Datapoint:
    """Return one series' point of a window of so many samples, each of another value."""
    values = tuple(sorted(dice.uniform(0, 100) for _ in range(samples)))
    total = Summary(samples, sum(values), values[0], values[-1], values, (1,) * samples)
    return Datapoint(LEVEL, total.sum / samples, Dimensions(MACHINE, n=str(n)), at, None, at - 55 * 10**9, total)


# -- CPU ----------------------------------------------------------------------------------------------------------


def cost(effort: Effort) -> list[Figure]:
    """Measure in a separate process, which sends to another one that accepts everything and reads nothing."""
    with receiving("http") as url:
        told = json.loads(ask("cloudwatch", url, str(effort.rounds)))
    share = [ours / min(told["plain 1"]) for ours in told["sink 1"]]
    shape = f"{DATUMS} datums of 3 dimensions in one request, HTTP on loopback to a server that discards"
    full = f"the same, {SAMPLES} samples in each datum, all of other values: a window at defaults"
    return [
        Figure(
            "CloudWatch, CPU of 1000 datums", "ms", 4.0, told["sink 1"],
            f"CPU of `size` of each point and of `write`; {shape}",
        ),
        Figure(
            "CloudWatch, the same as a share of plain boto3", "", 0.2, share,
            f"boto3's put_metric_data with its defaults takes {min(told['plain 1']):.1f} ms, in the same process",
        ),
        Figure("CloudWatch, CPU of 1000 datums of a window", "ms", None, told[f"sink {SAMPLES}"], full),
        Figure("CloudWatch, CPU of those by plain boto3", "ms", None, told[f"plain {SAMPLES}"], full),
        Figure(
            "CloudWatch, CPU from sample to body", "ms", None, told["path"],
            f"{SAMPLES} ticks of {DATUMS} series (half counters), a window, a spool on disk, dimensions, sizes, body",
        ),
    ]  # fmt: skip


def child(url: str, rounds: str) -> None:
    """Send the same datums by the sink and by boto3, in this process; print the CPU times."""
    try:
        import boto3
    except ImportError:
        import botocore.session as boto3
    sink = CloudwatchSink(CloudwatchSink.Config(region="eu-west-1", endpoint_url=url))
    sink.open()
    plain = boto3.session.Session().client if hasattr(boto3, "client") else boto3.Session().create_client
    client = plain("cloudwatch", "eu-west-1", endpoint_url=url)
    dice, told = random.Random(1), {}
    for samples in (1, SAMPLES):
        batch = [point(time.time_ns(), n, samples, dice) for n in range(DATUMS)]
        datums = [datum(sink._encoder, each) for each in batch]

        def send(batch: list[Datapoint] = batch) -> None:
            assert sum(map(sink.size, batch)) <= sink.limits.max_bytes
            assert not sink.write(batch)

        def plainly(datums: list[dict[str, Any]] = datums) -> None:
            client.put_metric_data(Namespace="Chipwatch", MetricData=datums)

        told[f"sink {samples}"] = [cpu(send) for _ in range(3 * int(rounds) + 1)][1:]
        told[f"plain {samples}"] = [cpu(plainly) for _ in range(int(rounds) + 1)][1:]
    sink.close()
    client.close()
    json.dump(told | {"path": path(int(rounds))}, sys.stdout)


class Kept:
    """Stands for the connection: takes a body and sends it nowhere."""

    def put(self, *_: Any) -> dict[int, str]:
        return {}

    def close(self) -> None: ...


def path(rounds: int) -> list[float]:
    """Return the CPU time (ms) of a window of samples on its way to the bodies of requests."""
    sink, common, took = CloudwatchSink(CloudwatchSink.Config()), Dimensions(MACHINE), []
    sink._client = Kept()
    dims = [Dimensions(device=f"device-{n // 8}", port=str(n % 8)) for n in range(DATUMS // METRICS)]
    of, at, dice = metrics(), time.time_ns() // 60_000_000_000 * 60_000_000_000, random.Random(1)
    with tempfile.TemporaryDirectory() as folder, closing(Spool("cloudwatch", Path(folder) / "c.db")) as spool:
        worker = Worker("cloudwatch", sink, spool, common=lambda: common)
        admission = Admission("cloudwatch", 2 * DATUMS)
        window = Window(60, born=0, increases=True)
        route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda: common, admission=admission)

        def deliver() -> None:
            while worker._deliver_some():
                pass

        for _ in range(3 * rounds + 2):
            total = 0.0
            for _ in range(SAMPLES):
                at += 60_000_000_000 // SAMPLES
                points = [
                    metric.point(at, at / 1e9 if metric.kind is Kind.COUNTER else dice.uniform(0, 100), each,
                                 start_time=1 if metric.kind is Kind.COUNTER else None)
                    for metric in of
                    for each in dims
                ]  # fmt: skip
                total += cpu(partial(route.take, points, at))
            took.append(total + cpu(deliver))
        assert spool.ledger.sent >= DATUMS * (len(took) - 1), spool.ledger
    return took[2:]


def cpu(call: Any) -> float:
    """Return the CPU time (ms) of a call."""
    before = time.process_time_ns()
    call()
    return (time.process_time_ns() - before) / 1e6


# -- memory -------------------------------------------------------------------------------------------------------


def memory(effort: Effort) -> list[Figure]:
    """Watch the real command while it sends once a second, over TLS, which takes memory."""
    with CloudwatchDouble() as double, tempfile.TemporaryDirectory() as folder:
        certificate, key, bundle = signed(Path(folder))
        words = ["--sink", "cloudwatch", "--region", "eu-west-1", "--endpoint-url", double.encrypt(certificate, key)]
        words += ["--interval", "1", "--window", "1", "--flush", "1", "--spool", folder]
        with environ({**os.environ, "AWS_CA_BUNDLE": str(bundle)}):
            values, peak = resident(words, effort, WARM_UP)
        if not double.datums:
            raise RuntimeError("nothing arrived; try it by hand")
    how = "chipwatch --sink cloudwatch, all default collectors, an https request a second; MB are 10^6 bytes"
    return [
        Figure("CloudWatch, RSS of the agent", "MB", MEMORY["cloudwatch"], values, how),
        Figure("CloudWatch, peak RSS of the agent", "MB", None, [peak], "VmHWM of the same process"),
    ]


# -- requests -----------------------------------------------------------------------------------------------------


class Readings(Collector):
    """So many series, all of values that change; notes when it was asked."""

    metrics = (LEVEL,)

    def __init__(self, series: int) -> None:
        self._dims = [Dimensions(n=str(n)) for n in range(series)]
        self._dice = random.Random(1)
        self.asked: list[float] = []

    def collect(self, at: int) -> Iterator[Datapoint]:
        self.asked.append(time.monotonic())
        for dims in self._dims:
            yield LEVEL.point(at, self._dice.uniform(0, 100), dims)


@contextmanager
def frame(collector: Collector, url: str, *, interval: float, **scaled: Any) -> Iterator[tuple[Pipeline, Spool]]:
    """Put the real frame and sink around a collector; `scaled` are limits other than the sink's own."""
    common = Dimensions(MACHINE)
    sink = CloudwatchSink(CloudwatchSink.Config(region="eu-west-1", endpoint_url=url))
    limits = dataclasses.replace(sink.limits, **scaled)
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool("cloudwatch", Path(folder) / "cloudwatch.db", max_age=limits.max_age)
        with closing(spool):
            worker = Worker("cloudwatch", sink, spool, common=lambda: common, schedule=Schedule(limits.flush))
            window = Window(limits.window, born=time.time_ns(), increases=limits.increases)
            route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda: common)
            sampler = Sampler("bench", collector, Level.ALL)
            yield Pipeline([sampler], [route], interval=interval), spool


def pace(minutes: int = MINUTES) -> Figure:
    """Count the requests of a few minutes at defaults, with all times divided by the same number."""
    scale = MINUTE / 60
    limits = CloudwatchSink.limits
    collector = Readings(DATUMS)
    with (
        CloudwatchDouble() as double,
        frame(collector, double.url, interval=5 * scale, window=limits.window * scale, flush=limits.flush * scale) as (
            pipeline,
            spool,
        ),
    ):
        pipeline.start()
        pipeline.run(minutes * MINUTE)
        requests, windows = len(double.requests), len({datum.timestamp for datum in double.datums})
        sent = spool.ledger.sent
        pipeline.close(5.0)
    if not requests or sent < DATUMS * (minutes - 2):
        raise RuntimeError(f"{requests} requests, {sent} points, {windows} windows: too few to count")
    values = [requests / (sent / DATUMS)]
    how = f"requests / windows of {DATUMS} series, {requests} in all: window, flush and interval at defaults, times {scale}"
    return Figure("CloudWatch, requests a minute for 1000 series", "", 1.0, values, how)


# -- a dead endpoint ----------------------------------------------------------------------------------------------


def dead(effort: Effort) -> list[Figure]:
    """Tick ten times a second while the far side takes requests and never answers, and while nobody listens."""
    late: dict[str, list[float]] = {}
    missed = 0.0
    for what in ("fine", "hangs", "refuses"):
        collector = Readings(100)
        with CloudwatchDouble(listen=what != "refuses") as double:
            if what == "hangs":
                double.weather = lambda: service.HANG
            with frame(collector, double.url, interval=0.1, window=0.1, flush=0.0) as (pipeline, _):
                pipeline.start()
                pipeline.run(effort.tick_seconds / 6)
                missed += pipeline.missed if what != "fine" else 0
                pipeline.close(0.0)
        begun, late[what] = collector.asked[0], []
        for tick, asked in enumerate(collector.asked[:-1]):
            late[what].append(max(0.0, 1e3 * (asked - begun - 0.1 * tick)))
    worst = [max(late["hangs"]), max(late["refuses"])]
    how = f"of {len(late['hangs'])} + {len(late['refuses'])} ticks of 0.1 s, 100 series"
    return [
        Figure("CloudWatch, ticks missed with a dead endpoint", "", 0.0, [missed], f"{how}: it hangs, or it refuses"),
        Figure(
            "CloudWatch, worst delay of a tick with a dead endpoint", "ms", None, worst,
            f"{how}; with a live one the worst is {max(late['fine']):.1f} ms",
        ),
    ]  # fmt: skip
