"""A tracking server on loopback, and sinks that write to it."""

import os
import time

import pytest
from tests.doubles.mlflow import MlflowDouble

from chipwatch.contract.datapoint import NO_DIMENSIONS, gauge
from chipwatch_sinks.mlflow import MlflowSink

LOAD = gauge("cpu.load", "1", "The load.")
GPU = gauge("gpu.temperature", "Cel", "Temperature.", dims=("gpu",))


@pytest.fixture(autouse=True)
def _no_mlflow_outside(monkeypatch):
    for name in [
        name for name in os.environ if name.startswith(("MLFLOW_", "DATABRICKS_")) or name.lower().endswith("_proxy")
    ]:
        monkeypatch.delenv(name)


@pytest.fixture
def double():
    with MlflowDouble() as running:
        running.add("r1")
        yield running


class Time:
    """A clock that stands still until a test moves it."""

    def __init__(self):
        self.ns = time.time_ns()

    def wall(self):
        return self.ns

    def steady(self):
        return self.ns / 1e9


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def make_sink(double, clock, at_the_end):
    """Make sinks that are closed at the end; opened unless told otherwise."""

    def make(*, opened=True, env=None, **config):
        config = {"tracking_uri": double.url, "run": "r1", "timeout": 10.0} | config
        config = {key: value for key, value in config.items() if value is not None}
        sink = MlflowSink(MlflowSink.Config(**config), env or {}, clock.wall, clock.steady)
        at_the_end.callback(sink.close)
        if opened:
            sink.open()
        return sink

    return make


@pytest.fixture
def points(clock):
    """Make points of the load, one for each of the next seconds of the clock."""

    def make(count=3, metric=LOAD, dims=NO_DIMENSIONS):
        found = []
        for _ in range(count):
            clock.ns += 10**9
            found.append(metric.point(clock.ns, clock.ns % 1000 / 10, dims))
        return found

    return make
