"""The path of a point, from a tick of the clock to the body of a request at CloudWatch, is short."""

import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import chipwatch
import chipwatch_sinks
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import Admission, MetricFilter, Route
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch_sinks.cloudwatch import CloudwatchSink

MINUTE = 60 * 10**9
MOST_FILES, MOST_LOOKUPS = 15, 5
HEAT = gauge("gpu.temperature", "Cel", "Of the core.", dims=("gpu",))
EVENTS = counter("kernel.events", "{event}", "Events.", dims=("gpu",))
GPUS = [Dimensions(gpu=str(n)) for n in range(3)]
FOLDERS = tuple(str(Path(package.__path__[0])) for package in (chipwatch, chipwatch_sinks))


class Probe(Collector):
    """Yields a gauge and a counter for each GPU, as from the kernel's files; both change with each reading."""

    metrics = (HEAT, EVENTS)

    def __init__(self):
        self.readings = 0

    def waits(self):
        return False

    def collect(self, at):
        self.readings += 1
        for dims in GPUS:
            yield HEAT.point(at, 50.5 + self.readings, dims)
            yield EVENTS.point(at, 10.0 * self.readings, dims, start_time=1)


class Client:
    """Stands for the connection to CloudWatch."""

    region = endpoint = ""

    def __init__(self):
        self.bodies = []

    def put(self, body, count):
        self.bodies.append((body, count))
        return {}

    def close(self): ...


class Trace:
    """Counts the calls into files of ours while it is on."""

    def __init__(self):
        self.is_on, self.files = False, Counter()

    def __call__(self, frame, event, _):
        if self.is_on and event == "call" and (name := frame.f_code.co_filename).startswith(FOLDERS):
            self.files[name] += 1


@pytest.fixture
def trace():
    before, trace = sys.getprofile(), Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    yield trace
    sys.setprofile(before)
    threading.setprofile(None)


def run_window(monkeypatch, folder, trace):
    """Run the pipeline for five windows; trace the last; return its body, and how often a series was hashed."""
    now = [time.time_ns() // MINUTE * MINUTE]
    sink, client, common = CloudwatchSink(CloudwatchSink.Config()), Client(), Dimensions(instance_id="i-1")
    monkeypatch.setattr(sink, "open", lambda: setattr(sink, "_client", client))
    spool = Spool("cloudwatch", folder / "cloudwatch.db", max_age=sink.limits.max_age)
    worker = Worker("cloudwatch", sink, spool, common=lambda: common)
    window = Window(60, born=0, increases=True)
    admission = Admission("cloudwatch", 500, zeros=False, increases=True)
    route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda: common, admission=admission)
    sampler = Sampler("probe", Probe(), Level.ALL)
    pipeline = Pipeline([sampler], [route], interval=60, clock=lambda: now[0])
    hashes = Counter()

    def counted(dims):
        hashes["dims"] += 1
        return object.__hash__(dims)

    pipeline.start()
    for minute in range(5):
        if minute == 4:
            trace.is_on = True
            monkeypatch.setattr(Dimensions, "__hash__", counted)
        now[0] += MINUTE
        pipeline.tick(grace=5.0)
        deadline = time.monotonic() + 20
        while spool.ledger.sent < minute * 2 * len(GPUS) and time.monotonic() < deadline:
            time.sleep(0.005)
    monkeypatch.undo()
    trace.is_on = False
    pipeline.stop()
    pipeline.close()
    return client.bodies, hashes["dims"]


def test_a_point_passes_few_files_and_is_looked_up_few_times(monkeypatch, tmp_path, trace):
    bodies, hashes = run_window(monkeypatch, tmp_path, trace)

    points = 2 * len(GPUS)
    files = sorted(name.rpartition("/chipwatch")[2] for name in trace.files)
    assert bodies[3][1] == points
    assert 0 < len(files) <= MOST_FILES, "\n".join(files)
    assert 0 < hashes <= MOST_LOOKUPS * points, hashes / points
