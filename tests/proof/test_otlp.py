"""OpenTelemetry's own exporter sends the same points as ours, and a receiver written by others takes them."""

import json
import os
import random
import socket
import subprocess
import time
from pathlib import Path

import pytest
from tests.doubles.otlp import OtlpDouble, parse
from tests.ports import free_port
from tests.proof.parts import python

from chipwatch.base.version import __version__
from chipwatch.contract.datapoint import Dimensions, Kind, counter, gauge
from chipwatch.engine.window import summarise
from chipwatch_sinks.otlp import OtlpSink
from chipwatch_sinks.otlp.encoding import OtlpEncoder, histogram_of
from chipwatch_sinks.otlp.resource import SCHEMA, resource_of

pytestmark = pytest.mark.proof
LONG = 60.0
AT = time.time_ns() // 10**9 * 10**9
MACHINE = {"hostname": "n1", "@instance_id": "i-0abc", "site": "ü"}


def batch():
    dice, points = random.Random(1), []
    for m in range(6):
        metric = (counter if m % 2 else gauge)(f"proof.metric{m}", "By", f"Metric {m}.", dims=("gpu", "kind"))
        for n in range(20):
            samples = [dice.lognormvariate(1, 2) * dice.choice((1, -1, 0)) for _ in range(30)]
            point = metric.point(AT, abs(samples[0]), Dimensions(MACHINE, gpu=str(n), kind="k"), start_time=AT - 10**12)
            point = point._replace(window_start=AT - 60 * 10**9, increase=float(n))
            points.append(point if metric.kind is Kind.COUNTER else point._replace(summary=summarise(samples)))
    return points


def neutral(points, gauges, *, delta):
    """Return the points in the words of tests/proof/otlp_run.py, not by way of our encoder."""
    metrics = {}
    for point in points:
        metric, is_counter = point.metric, point.metric.kind is Kind.COUNTER
        kind = "gauge" if gauges == "mean" else "exponential histogram delta"
        if is_counter:
            kind = "sum delta" if delta else "sum cumulative"
        value = int(point.value) if is_counter and point.value == int(point.value) else point.value  # a count of bytes
        row = {"attributes": {"gpu": point.dims["gpu"], "kind": "k"}, "at": point.at, "start": 0, "value": value}
        if is_counter:
            row |= {"start": point.window_start, "value": int(point.increase)} if delta else {"start": point.start_time}
        elif gauges == "histogram":
            total, of = point.summary, histogram_of(point.summary)
            row |= {"start": point.window_start, "value": {
                "count": total.count, "sum": None if total.minimum < 0 else total.sum, "min": total.minimum, "max": total.maximum, "scale": of.scale,
                "zeros": of.zeros, "positive": of.positive, "negative": of.negative,
            }}  # fmt: skip
        found = metrics.setdefault(metric.name, {
            "name": metric.name, "help": metric.help, "unit": metric.unit, "kind": kind, "points": [],
        })  # fmt: skip
        found["points"].append(row)
    resource = resource_of(MACHINE.items(), {})
    return {"resource": resource, "scope": ["chipwatch", __version__], "schema": SCHEMA, "metrics": [*metrics.values()]}


def ordered(request):
    """Return a request with all attributes sorted, and without the empty buckets that the exporter sends."""
    for of in request.resource_metrics:
        of.resource.attributes.sort(key=lambda pair: pair.key)
        for metric in (metric for scope in of.scope_metrics for metric in scope.metrics):
            for point in getattr(metric, metric.WhichOneof("data")).data_points:
                point.attributes.sort(key=lambda pair: pair.key)
                for side in ("positive", "negative"):
                    if metric.HasField("exponential_histogram") and not getattr(point, side).bucket_counts:
                        point.ClearField(side)
    return request


@pytest.mark.parametrize("gauges", ["mean", "histogram"])
@pytest.mark.parametrize("delta", [False, True])
def test_opentelemetrys_exporter_sends_the_same_fields(gauges, delta):
    points = batch()
    with OtlpDouble() as receiver:
        done = subprocess.run(
            [python("otlp"), Path(__file__).with_name("otlp_run.py"), "send", f"{receiver.url}/v1/metrics"],
            input=json.dumps(neutral(points, gauges, delta=delta)), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout == "SUCCESS", done.stderr
        theirs = ordered(parse(receiver.requests[0].body))
    ours = ordered(parse(OtlpEncoder({}, gauges=gauges, delta=delta).encode(points)))
    assert ours == theirs


@pytest.fixture
def forwarded(tmp_path):
    """A rotel that takes OTLP over HTTP and forwards it; its address, and where the points arrive."""
    binary = next((python("otlp").parents[1] / "lib").glob("python*/site-packages/rotel/rotel-agent"), None)
    if binary is None:
        pytest.skip("the wheel of rotel for this platform has no program")
    port, log = free_port(), tmp_path / "rotel.log"
    with OtlpDouble() as target, log.open("wb") as out:
        words = [
            binary, "start", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}",
            "--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", target.url,
            "--batch-timeout", "200ms",
        ]  # fmt: skip
        env = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        process = subprocess.Popen(words, stdout=out, stderr=out, env=env)
        try:
            yield f"http://127.0.0.1:{port}", target
        finally:
            process.kill()
            process.wait(LONG)


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_rotel_takes_what_the_agent_sends_and_forwards_every_point(agent, until, forwarded, compression):
    url, target = forwarded
    until(lambda: is_open(url), LONG)
    running = agent.start(
        "--sink", "otlp", "--sink", "stdout", "--format", "json", "--interval", "0.5", "--window", "0", "--flush", "0",
        "--endpoint-url", url, "--level", "all", "--names", "otel", "--dim", "site=x",
        env={"CHIPWATCH_SINKS__OTLP__COMPRESSION": compression},
    )  # fmt: skip
    until(lambda: len({point.at for point in target.points}) > 4, LONG)
    code, _ = running.stop()
    assert code == 0, running.errors()
    printed = {(point["name"], round(float(point["value"]), 9)) for point in running.points()}
    until(
        lambda: printed <= {(point.name, round(point.value, 9)) for point in target.points if point.value is not None},
        LONG,
    )
    assert all(dict(point.resource)["site"] == "x" for point in target.points)
    assert "rejected 0" in running.errors()


def is_open(url):
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as sock:
        return sock.connect_ex((host, int(port))) == 0


@pytest.mark.parametrize("gauges", ["mean-min-max", "histogram"])
def test_rotel_takes_windows_in_every_form(until, forwarded, gauges):
    url, target = forwarded
    until(lambda: is_open(url), LONG)
    sink = OtlpSink(OtlpSink.Config(endpoint_url=url, gauges=gauges), {})
    sink.open()
    assert sink.write(batch()) == []
    sink.close()
    wanted = 60 * (3 if gauges == "mean-min-max" else 1) + 60
    until(lambda: len(target.points) >= wanted, LONG)
    assert len(target.points) == wanted
