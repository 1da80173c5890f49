"""One life of an agent that a campaign may kill: the real frame and a real sink over numbers."""

import dataclasses
import json
import os
import signal
import time
from pathlib import Path

from tests.doubles.cloudwatch import environment

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Kind, Level, Summary, counter, gauge
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Pauses, Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch.service.log_formats import to_stderr
from chipwatch_sinks.cloudwatch import CloudwatchSink, client
from chipwatch_sinks.google import GoogleSink
from chipwatch_sinks.google import client as google_client

PRELOADED = (client, google_client)
"""Imported once, in the process that lives are forked from."""
WINDOW = 0.05
"""Seconds that a window lasts here."""
GOOGLE_WINDOW = 20.0
"""Seconds that it lasts by the clock there: a minute would reach the present before a slow machine is done."""
SAMPLES = 4
GOOGLE_AGO = 20 * 3600 * 10**9
MACHINE = Dimensions({"@instance_id": "4520031799277581759", "@gcp_zone": "us-central1-a"}, host="test")
GAUGES = 10
LEVEL = gauge("test.level", "%", "A level.", dims=("n",))
TOTAL = counter("test.total", "By", "A total.")
QUICK = {"pauses": Pauses(0.01, 0.05, 0.01, 0.05)}


class FastClock:
    """Some time ago when all began, and faster since: it does not reach the present before the test has ended."""

    def __init__(self, begun: int, ago: int, window: float) -> None:
        self._begun, self._ago, self._pace = begun, ago, window / WINDOW

    def __call__(self) -> int:
        return self._begun - self._ago + int((time.time_ns() - self._begun) * self._pace)


class Numbers(Collector):
    """Gauges, and a counter that goes on whether an agent runs or not; each life takes the boot for a bit later."""

    metrics = (LEVEL, TOTAL)

    def __init__(self, boot: int, life: int = 0) -> None:
        self._boot, self._start_time = boot, boot + life * 10**9
        self._dims = [Dimensions(n=str(n)) for n in range(GAUGES)]

    def collect(self, at):
        for n, dims in enumerate(self._dims):
            yield LEVEL.point(at, float(at // 10**9 % 7 + n), dims)
        yield TOTAL.point(at, float((at - self._boot) // 10**6), start_time=self._start_time)


class JournalledSpool(Spool):
    """Notes what it took, each call by one write, so that a kill cannot cut it."""

    def __init__(self, journal: Path, shown, *args, **more) -> None:
        super().__init__(*args, **more)
        self._shown, self._noted = shown, os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, points, common=None) -> None:
        super().append(points, common)
        lines = "".join([f"{json.dumps(self._shown(point, common))}\n" for point in points]).encode()
        assert os.write(self._noted, lines) == len(lines)


def of_cloudwatch(point, common):
    """Return what CloudWatch is to show of a point: name, dimensions, second, numbers and counts."""
    value = point.increase if point.metric.kind is Kind.COUNTER else point.value
    total = point.summary or Summary(1, value, value, value, (value,), (1,))
    return point.metric.name, (common | point.dims).items_sorted, point.at // 10**9, total.values, total.counts


def of_datum(datum):
    """Return the same of a datum that the double has stored."""
    numbers = (datum.values, datum.counts) if datum.value is None else ((datum.value,), (1,))
    return (datum.name, datum.dims, datum.timestamp, *numbers)


def of_google(point, _common):
    """Return what Cloud Monitoring is to show of a point: the end of its type, its dimension, its time, its value."""
    gauge = point.metric.kind is Kind.GAUGE
    value = point.summary.sum / point.summary.count if gauge and point.summary else point.value
    return point.metric.name.replace(".", "/"), point.dims.get("n", ""), point.at, value


def _begin(folder: Path, life: int) -> None:
    """Give this process its log and the environment of a client of the doubles; a SIGTERM waits until it can stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    os.dup2(os.open(folder / f"log.{life}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    to_stderr("warning")  # as the agent logs: one line a record, and bounded
    client.HEADERS["User-Agent"] = f"chipwatch app/life{life}"  # the double tells lives apart by it
    wanted = environment()
    os.environ.clear()
    os.environ.update(wanted)


def _run(pipeline: Pipeline) -> None:
    signal.signal(signal.SIGTERM, lambda *_: pipeline.stop())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    pipeline.start()
    pipeline.run()
    pipeline.close(deadline=20.0)


def cloudwatch(url: str, folder: Path, life: int, begun: int) -> None:
    """Send to CloudWatch until SIGTERM."""
    _begin(folder, life)
    ago = 7 * 86_400 * 10**9
    clock, common = FastClock(begun, ago, 60.0), Dimensions(life=str(life))
    sink = CloudwatchSink(CloudwatchSink.Config(region="eu-west-1", endpoint_url=url, timeout=2.0), clock)
    sink.limits = dataclasses.replace(sink.limits, max_points=8)  # many requests, of which some fail
    spool = JournalledSpool(
        folder / f"appended.{life}", of_cloudwatch, "cloudwatch", folder / "cloudwatch.db", clock=clock
    )
    worker = Worker("cloudwatch", sink, spool, common=lambda: common, **QUICK)
    window = Window(sink.limits.window, born=clock(), increases=sink.limits.increases)
    route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda: common)
    sampler = Sampler("numbers", Numbers(begun - 2 * ago, life), Level.ALL)
    _run(Pipeline([sampler], [route], interval=WINDOW / SAMPLES, clock=clock))


def google(target: str, folder: Path, life: int, begun: int) -> None:
    """Send to Cloud Monitoring until SIGTERM."""
    _begin(folder, life)
    clock, common = FastClock(begun, GOOGLE_AGO, GOOGLE_WINDOW), MACHINE
    sink = GoogleSink(GoogleSink.Config(project="some-project", endpoint=target, insecure=True, timeout=0.5), clock)
    limits = sink.limits
    spool = JournalledSpool(
        folder / f"appended.{life}", of_google, "google", folder / "google.db", max_age=limits.max_age, clock=clock
    )
    worker = Worker("google", sink, spool, common=lambda: common, **QUICK)
    window = Window(GOOGLE_WINDOW, born=clock(), spacing=limits.spacing, ended=spool.file.newest())
    route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda: common)
    sampler = Sampler("numbers", Numbers(begun - 2 * GOOGLE_AGO, life), Level.ALL)
    _run(Pipeline([sampler], [route], interval=WINDOW / SAMPLES, clock=clock))


def soak(url: str, folder: Path, interval: float) -> None:
    """Send every tick to CloudWatch until SIGTERM; the file `ticks` tells how many there were."""
    _begin(folder, 0)
    common = Dimensions(host="soak")
    sink = CloudwatchSink(CloudwatchSink.Config(region="eu-west-1", endpoint_url=url, timeout=0.5))
    spool = Spool("cloudwatch", folder / "cloudwatch.db")
    worker = Worker("cloudwatch", sink, spool, common=lambda: common, **QUICK)
    route = Route(MetricFilter(Level.ALL), Window(0, born=time.time_ns()), spool, worker, lambda: common)
    sampler = Sampler("numbers", Numbers(time.time_ns()), Level.ALL)
    pipeline = Pipeline([sampler], [route], interval=interval)
    told = os.open(folder / "ticks", os.O_WRONLY | os.O_CREAT, 0o600)

    pipeline.after_tick.append(lambda: os.pwrite(told, b"%8d" % pipeline.ticks, 0))
    _run(pipeline)
