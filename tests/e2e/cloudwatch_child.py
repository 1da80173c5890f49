"""
One life of an agent that sends to a CloudWatch which may be away: the real frame and sink, a clock that runs faster.

`python cloudwatch_child.py URL FOLDER LIFE BEGUN`. A minute lasts MINUTE seconds, from BEGUN (ns) on, over all lives. It
keeps a journal, `appended.LIFE`: a line for each point that the spool took, as CloudWatch is to show it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Kind, Level, Summary, counter, gauge
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Pauses, Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch_sinks.cloudwatch import CloudwatchSink

MINUTE = 0.05
SAMPLES = 4
GAUGES = 10
LEVEL = gauge("test.level", "%", "A level.", dims=("n",))
TOTAL = counter("test.total", "By", "A total.")


class FastClock:
    """A week ago when all began, and faster since: it does not reach the present before the test has ended."""

    def __init__(self, begun):
        self._begun = begun

    def __call__(self):
        return self._begun - 7 * 86_400 * 10**9 + int((time.time_ns() - self._begun) * 60 / MINUTE)


class Numbers(Collector):
    """Gauges that change with each reading, and a counter."""

    metrics = (LEVEL, TOTAL)

    def __init__(self, clock):
        self._readings, self._start_time = 0, clock()
        self._dims = [Dimensions(n=str(n)) for n in range(GAUGES)]

    def collect(self, at):
        self._readings += 1
        for n, dims in enumerate(self._dims):
            yield LEVEL.point(at, (self._readings * 7 + n) % 100 / 4, dims)
        yield TOTAL.point(at, float(self._readings**2), start_time=self._start_time)


class JournalledSpool(Spool):
    """Notes what it took, each call by one write, so that a kill cannot cut it."""

    def __init__(self, journal, *args, **more):
        super().__init__(*args, **more)
        self._noted = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, points, common=None):
        super().append(points, common)
        lines = "".join([f"{json.dumps(shown(point, common))}\n" for point in points]).encode()
        assert os.write(self._noted, lines) == len(lines)


def shown(point, common):
    """Return what CloudWatch is to show of a point: name, dimensions, second, numbers and counts."""
    value = point.increase if point.metric.kind is Kind.COUNTER else point.value
    total = point.summary or Summary(1, value, value, value, (value,), (1,))
    return point.metric.name, (common | point.dims).items_sorted, point.at // 10**9, total.values, total.counts


def main():
    """Run until SIGTERM."""
    url, folder, life, begun = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    clock = FastClock(begun)
    common = Dimensions(life=life)
    sink = CloudwatchSink(CloudwatchSink.Config(region="eu-west-1", endpoint_url=url, timeout=2.0))
    sink.limits = dataclasses.replace(sink.limits, max_points=8)  # many requests, of which some fail
    spool = JournalledSpool(folder / f"appended.{life}", "cloudwatch", folder / "cloudwatch.db")
    quick = {"pauses": Pauses(0.01, 0.05, 0.01, 0.05)}
    worker = Worker("cloudwatch", sink, spool, common=lambda: common, **quick)
    window = Window(sink.limits.window, born=clock(), increases=sink.limits.increases)
    route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda: common)
    sampler = Sampler("numbers", Numbers(clock), Level.ALL)
    pipeline = Pipeline([sampler], [route], interval=MINUTE / SAMPLES, clock=clock)
    signal.signal(signal.SIGTERM, lambda *_: pipeline.stop())
    pipeline.start()
    pipeline.run()
    pipeline.close(deadline=10.0)


if __name__ == "__main__":
    main()
