"""
One life of an agent that sends to a Cloud Monitoring which may be away: the real frame and sink, a clock that runs faster.

`python google_child.py TARGET FOLDER LIFE BEGUN`. A minute lasts MINUTE seconds, from BEGUN (ns) on, over all lives.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Pauses, Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch_sinks.google import GoogleSink

MINUTE = 0.05
SAMPLES = 4
GAUGES = 10
AGO = 12 * 3600 * 10**9
LEVEL = gauge("test.level", "%", "A level.", dims=("n",))
TOTAL = counter("test.total", "By", "A total.")
COMMON = Dimensions({"@instance_id": "4520031799277581759", "@gcp_zone": "us-central1-a"}, host="test")


class FastClock:
    """Half a day ago when all began, and faster since: it does not reach the present before the test has ended."""

    def __init__(self, begun):
        self._begun = begun

    def __call__(self):
        return self._begun - AGO + int((time.time_ns() - self._begun) * 60 / MINUTE)


def total(at, boot):
    """Return what the counter reads at a moment: a byte a millisecond since the boot."""
    return float((at - boot) // 10**6)


class Numbers(Collector):
    """Gauges, and a counter that goes on whether an agent runs or not; each life takes the boot for a bit later."""

    metrics = (LEVEL, TOTAL)

    def __init__(self, boot, life):
        self._boot, self._start_time = boot, boot + life * 10**9
        self._dims = [Dimensions(n=str(n)) for n in range(GAUGES)]

    def collect(self, at):
        for n, dims in enumerate(self._dims):
            yield LEVEL.point(at, float(at // 10**9 % 7 + n), dims)
        yield TOTAL.point(at, total(at, self._boot), start_time=self._start_time)


def main():
    """Run until SIGTERM."""
    target, folder, life, begun = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    clock = FastClock(begun)
    sink = GoogleSink(GoogleSink.Config(project="some-project", endpoint=target, insecure=True, timeout=2.0), clock)
    limits = sink.limits
    spool = Spool("google", folder / "google.db", max_age=limits.max_age, clock=clock)
    quick = {"pauses": Pauses(0.01, 0.05, 0.01, 0.05)}
    worker = Worker("google", sink, spool, common=lambda: COMMON, **quick)
    window = Window(limits.window, born=clock(), spacing=limits.spacing, ended=spool.file.newest())
    route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda: COMMON)
    sampler = Sampler("numbers", Numbers(begun - 2 * AGO, life), Level.ALL)
    pipeline = Pipeline([sampler], [route], interval=MINUTE / SAMPLES, clock=clock)
    signal.signal(signal.SIGTERM, lambda *_: pipeline.stop())
    pipeline.start()
    pipeline.run()
    pipeline.close(deadline=10.0)


if __name__ == "__main__":
    main()
