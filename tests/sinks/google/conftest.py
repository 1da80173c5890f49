"""A Cloud Monitoring on loopback, and sinks that send there."""

import time

import pytest
from tests.doubles.monitoring import MonitoringDouble

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Summary, counter, gauge
from chipwatch_sinks.google import GoogleSink

S = 10**9
MINUTE = 60 * S
HEAT = gauge("gpu.temperature", "Cel", "Temperature of the core.", dims=("gpu",))
SENT = counter("network.sent", "By", "Bytes sent.")
PREFIX = "custom.googleapis.com/chipwatch/"


@pytest.fixture
def double():
    with MonitoringDouble() as running:
        yield running


@pytest.fixture
def make_sink(double, at_the_end):
    """Make sinks that are closed at the end; opened unless told otherwise."""

    def make(*, opened=True, clock=time.time_ns, **config):
        config = {"project": "some-project", "endpoint": double.target, "insecure": True, "timeout": 5.0} | config
        sink = GoogleSink(GoogleSink.Config(**config), clock, clock)
        at_the_end.callback(sink.close)
        if opened:
            sink.open()
        return sink

    return make


def windowed(metric, values, dims=NO_DIMENSIONS, at=None):
    """Return the point of a window in which each of `values` was seen once, in this order."""
    at = time.time_ns() if at is None else at
    ascending = tuple(sorted(values))
    total = Summary(len(values), sum(values), ascending[0], ascending[-1], ascending, (1,) * len(values), values[-1])
    return Datapoint(metric, total.sum / total.count, dims, at, None, at - MINUTE, total)
