"""A clean environment, a CloudWatch on loopback, and sinks that send there."""

import json
import logging
import time

import pytest
from tests.doubles.cloudwatch import CloudwatchDouble, isolate

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, gauge
from chipwatch.contract.trusted_clock import TrustedClock
from chipwatch.engine.window import summarise
from chipwatch.net import aws_signer
from chipwatch.net.aws_login import find
from chipwatch_sinks.cloudwatch import CloudwatchSink

GAUGE = gauge("cpu.utilization", "%", "Busy share of all cores.")


@pytest.fixture(autouse=True, scope="module")
def _no_way_out():
    with pytest.MonkeyPatch.context() as patch:
        isolate(patch)
        yield


@pytest.fixture(autouse=True)
def _no_process(monkeypatch):
    """Let botocore find credentials in this process, in a tenth of the time; its own log is not the agent's."""
    monkeypatch.setattr(aws_signer, "ask", lambda login: aws_signer.AwsAccess(*json.loads(json.dumps(find(login)))))
    for name in ("botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    yield
    for name in ("botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def double():
    with CloudwatchDouble() as running:
        yield running


class Trusted(TrustedClock):
    """A clock that is always trusted."""

    def __call__(self):
        return self._wall()


@pytest.fixture
def make_sink(double, at_the_end):
    """Make sinks that are closed at the end; opened unless told otherwise."""

    def make(*, opened=True, clock=time.time_ns, steady=None, **config):
        config = {"region": "eu-west-1", "endpoint_url": double.url, "timeout": 5.0} | config
        sink = CloudwatchSink(CloudwatchSink.Config(**config), clock, steady or Trusted(clock))
        at_the_end.callback(sink.close)
        if opened:
            sink.open()
        return sink

    return make


@pytest.fixture
def points():
    """Return a function that makes `count` points of as many seconds, the newest of now."""

    def make(count=3):
        now = time.time_ns()
        return [GAUGE.point(now - n * 10**9, float(n)) for n in range(count)][::-1]

    return make


def windowed(metric, values, dims=NO_DIMENSIONS, at=None):
    """Return the point of a window in which `values` were seen."""
    at, total = time.time_ns() if at is None else at, summarise(values)
    return Datapoint(metric, total.sum / total.count, dims, at, None, at - 60 * 10**9, total)
