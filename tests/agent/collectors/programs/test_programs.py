"""The collector `programs`: pages that this process serves, and requests of OTLP that processes push to it."""

from __future__ import annotations

import gzip
import http.client
import os
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.doubles.exporter import Exporter
from tests.ports import free_port

from chipwatch.collectors.programs import ProgramsCollector
from chipwatch.collectors.programs.otlp import decoded, page_of
from chipwatch.collectors.programs.receiver import (
    JSON,
    MAX_BYTES,
    MOST_KEPT,
    MOST_REQUESTS,
    PROTOBUF,
    OtlpReceiver,
    Sender,
)
from chipwatch.contract.datapoint import Dimensions, Kind
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.host.job_times import CHECKPOINT, INPUT, STEP, JobProgram, JobTimes, table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes of sockets are found by Linux's /proc")
S = 10**9
JOB = Dimensions(job="41337")
PAGE = """# TYPE grain_python_dataset_next_duration_ns histogram
grain_python_dataset_next_duration_ns_bucket{le="+Inf"} 10
grain_python_dataset_next_duration_ns_count 10
grain_python_dataset_next_duration_ns_sum %d
# TYPE jax_orbax_write_async_blocking_duration_secs histogram
jax_orbax_write_async_blocking_duration_secs_count 1
jax_orbax_write_async_blocking_duration_secs_sum %g
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_count{model_name="a"} %d
vllm:inter_token_latency_seconds_sum{model_name="a"} %g
# TYPE vllm:time_per_output_token_seconds histogram
vllm:time_per_output_token_seconds_count{model_name="a"} %d
vllm:time_per_output_token_seconds_sum{model_name="a"} %g
process_cpu_seconds_total 7
"""


def page(wait, checkpoint, count, seconds):
    return PAGE % (wait * S, checkpoint, count, seconds, count, seconds)


@pytest.fixture
def opened():
    collectors = []

    def make(**config):
        one = ProgramsCollector(ProgramsCollector.Config(**config))
        one.open()
        one.follow([os.getpid()])
        collectors.append(one)
        return one

    yield make
    for one in collectors:
        one.close()


def tick(collector, at=7):
    points, problems = [], []
    try:
        points.extend(collector.collect(at))
    except PartlyCollected as partly:
        problems = [*partly.problems]
    return points, problems


def until(collector, is_so, seconds=60):
    """Collect until points or problems are as wanted; return all points and the last problems."""
    end, every = time.monotonic() + seconds, []
    while time.monotonic() < end:
        points, problems = tick(collector)
        every += points
        if is_so(every, problems):
            return every, problems
        time.sleep(0.02)
    raise AssertionError((every, collector.describe()))


def test_a_page_of_a_job_s_process_becomes_the_times_of_the_job(opened):
    with Exporter(page(3, 2, 100, 5.0)) as exporter:
        one = opened(pages=(f"orbax:{urlsplit(exporter.url).port}",), every=0.05)
        first, _ = until(
            one, lambda points, _: {"job.input.wait", "job.checkpoint.time"} <= {p.metric.name for p in points}
        )
        assert {point.dims["job"] for point in first} != {""}
        assert all(point.metric in (INPUT, CHECKPOINT, STEP) for point in first), "no other series of the page"
        exporter.page = page(8, 2.5, 300, 9.0)
        points, _ = until(one, lambda points, _: any(point.metric is STEP for point in points))
        last = {point.metric.name: point.value for point in points}
        assert last == {"job.input.wait": 5.0, "job.checkpoint.time": 0.5, "job.step.time": pytest.approx(4.0 / 200)}
        assert one.describe() == exporter.url


@pytest.mark.parametrize("mood", ["hang", "trickle_head", "trickle_body", "promise_more", "promise_huge", "huge"])
def test_a_hostile_page_loses_only_its_own_data(opened, monkeypatch, mood):
    monkeypatch.setattr("chipwatch.collectors.programs.pages.TIMEOUT", 0.3)
    monkeypatch.setattr("chipwatch.collectors.programs.pages.MAX_BYTES", 1 << 20)
    with Exporter(page(1, 1, 1, 1)) as bad, Exporter(page(1, 1, 1, 1)) as good:
        bad.answer = getattr(bad, mood)
        ports = sorted(urlsplit(each.url).port for each in (bad, good))
        one = opened(pages=tuple(f"orbax:{port}" for port in ports), every=0.05)
        _, problems = until(one, lambda _, problems: problems)
        assert f"{bad.url} of job" in problems[0]
        until(one, lambda points, _: points)
        bad.gate.set()


def test_a_page_of_no_job_is_not_read(opened):
    with Exporter(page(1, 1, 1, 1)) as exporter:
        one = opened(pages=(f"vllm:{urlsplit(exporter.url).port}",), every=0.0)
        one.follow([])
        for _ in range(3):
            assert tick(one) == ([], [])
        assert exporter.requests == []


@pytest.mark.parametrize("word", ["vlm", "vllm:", "vllm:0", "vllm:70000", "vllm:x", ""])
def test_a_wrong_page_is_refused_with_the_right_ones(word):
    with pytest.raises(ValueError, match="grain, orbax, ray, sglang, vllm"):
        ProgramsCollector.Config(pages=(word,))


def test_it_is_off_unless_a_page_or_a_port_is_set():
    with pytest.raises(Unavailable, match="no source is configured"):
        ProgramsCollector(ProgramsCollector.Config()).open()


def test_each_row_of_the_table_has_a_metric_of_ours():
    assert {word for word, _, _ in table()["times"]} == {INPUT.name, CHECKPOINT.name, STEP.name}


def program(number, **values):
    made = JobProgram(JOB, 100, all_series=False)
    made.read("".join(f"{name} {value}\n" for name, value in values.items()).encode(), 1)
    return made


def test_times_of_several_programs_add_up_and_never_fall():
    times, first, second, made = JobTimes(), program(1), program(2), []
    for at, values in enumerate(
        [{first: 5.0, second: 7.0}, {first: 6.0, second: 9.0}, {first: 6.5}, {first: 0.5, second: 9.0}], 1
    ):  # a program leaves, one starts again and the other comes back
        for each, value in values.items():
            each.read(f"job_input_wait {value}\n".encode(), at)
        made += [point for point in times.take(values, at) if point.metric is INPUT]
    assert [point.value for point in made] == [0.0, 3.0, 3.5, 4.0]
    assert {point.start_time for point in made} == {1}


def test_the_step_time_of_two_programs_is_one_point_and_no_steps_are_none():
    times = JobTimes()
    given = [program(1, job_step_time=0.2), program(2, job_step_time=0.4)]
    assert [(point.metric, point.value) for point in times.take(given, 1)] == [(STEP, pytest.approx(0.3))]
    steps = [program(1, job_step_time_sum=1.0, job_step_time_count=5.0)]
    assert [*times.take(steps, 2)] == []
    assert [*times.take(steps, 3)] == [], "no step since the last reading"


# -- what is pushed ------------------------------------------------------------------------------------------------


def request(*metrics, resource=()):
    sent = ExportMetricsServiceRequest()
    group = sent.resource_metrics.add()
    for key, value in resource:
        group.resource.attributes.add(key=key).value.string_value = value
    scope = group.scope_metrics.add()
    for name, form, value, attributes in metrics:
        metric = scope.metrics.add(name=name, unit="s" if form == "histogram" else "1")
        data = getattr(metric, form.removeprefix("delta_"))
        point = data.data_points.add()
        if form == "histogram":
            point.count, point.sum = value
        else:
            point.as_double = value
        if form.endswith("sum"):
            data.is_monotonic, data.aggregation_temporality = True, 1 if form == "delta_sum" else 2
            point.start_time_unix_nano = 5
        for key, text in attributes.items():
            point.attributes.add(key=key).value.string_value = text
    return sent


def push(port, body, kind=PROTOBUF, path="/v1/metrics", method="POST", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, {"Content-Type": kind, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


class Clock:
    """Time that passes when a test says so; each look at the CPU time of a thread finds `cost` more of it."""

    def __init__(self):
        self.now, self.used, self.cost = 1000.0, 0.0, 0.0

    def monotonic(self):
        return self.now

    def thread_time(self):
        self.used += self.cost
        return self.used


@pytest.fixture
def clock(monkeypatch):
    one = Clock()
    monkeypatch.setattr("chipwatch.collectors.programs.receiver.time", one)
    return one


@pytest.fixture
def listening(opened, clock):
    """Listen, with a clock by which no request takes long."""
    port = free_port()
    return opened(port=port, max_series=20), port


ALL = request(
    ("train.loss", "gauge", 0.5, {"phase": "train"}), ("train.tokens", "sum", 7.0, {}),
    ("job.step.time", "histogram", (4, 2.0), {}), resource=[("service.name", "trainer"), ("secret", "no")],
)  # fmt: skip

GIANT = (
    b'{"resourceMetrics": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "%s"}}]},'
    b' "scopeMetrics": [{"metrics": [{"name": "a", "gauge": {"dataPoints": [%s]}}]}]}]}'
)


@pytest.mark.parametrize("zipped", [False, True])
def test_what_a_process_pushes_has_its_job(listening, zipped):
    one, port = listening
    body = ALL.SerializeToString()
    more = {"Content-Encoding": "gzip"} if zipped else {}
    assert push(port, gzip.compress(body) if zipped else body, **more) == (200, b"")
    points, problems = tick(one)
    assert problems == []
    by_name = {point.metric.name: point for point in points}
    assert by_name.keys() == {"train_loss", "train_tokens"}, "the first sum of steps has no mean yet"
    loss = by_name["train_loss"]
    assert (loss.value, loss.metric.kind, dict(loss.dims)) == (
        0.5, Kind.GAUGE, {"phase": "train", "service.name": "trainer", "job": loss.dims["job"]})  # fmt: skip
    assert (by_name["train_tokens"].metric.kind, by_name["train_tokens"].start_time) == (Kind.COUNTER, 5)
    assert tick(one) == ([], []), "a value is yielded once"
    steps = request(("job.step.time", "histogram", (8, 4.0), {}), resource=[("service.name", "trainer")])
    assert push(port, steps.SerializeToString())[0] == 200
    ((point,), _) = tick(one)
    assert (point.metric, point.value, [*point.dims]) == (STEP, 0.5, [key for key in loss.dims if key in point.dims])


def test_json_says_the_same_as_protobuf():
    def attributes(**pairs):
        return [{"key": key, "value": {"stringValue": value}} for key, value in pairs.items()]

    sent = {"resourceMetrics": [{
        "resource": {"attributes": attributes(**{"service.name": "trainer", "secret": "no"})},
        "scopeMetrics": [{"metrics": [
            {"name": "train.loss", "unit": "1",
             "gauge": {"dataPoints": [{"asDouble": 0.5, "attributes": attributes(phase="train")}]}},
            {"name": "train.tokens", "unit": "1", "sum": {
                "isMonotonic": True, "aggregationTemporality": 2,
                "dataPoints": [{"asInt": "7", "startTimeUnixNano": "5"}]}},
            {"name": "job.step.time", "unit": "s", "histogram": {
                "aggregationTemporality": "AGGREGATION_TEMPORALITY_CUMULATIVE",
                "dataPoints": [{"count": "4", "sum": 2.0, "bucketCounts": ["4"], "explicitBounds": []}]}},
        ]}]}]}  # fmt: skip
    wanted = ("service.name",)
    assert [*page_of(sent, wanted)] == [*page_of(decoded(ALL.SerializeToString()), wanted)]
    del sent["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]
    assert [*page_of(sent, wanted)] != [*page_of(decoded(ALL.SerializeToString()), wanted)]


def test_a_sum_that_falls_starts_again_and_deltas_are_left_out(listening):
    one, port = listening
    for at, value in ((100, 2.0), (200, 3.0)):
        push(port, request(("a", "delta_sum", value, {}), ("b", "sum", 9.0 - value, {})).SerializeToString())
        ((point,), _) = tick(one, at=at)
    assert (point.metric.name, point.value) == ("b", 6.0)
    assert point.start_time > 5


def test_odd_words_stay_what_they_are_and_times_are_seconds(listening):
    one, port = listening
    sent = request(("a\nb{c} 1", "gauge", 1.0, {'k"\n\\': 'v"\n# TYPE x\\', "job": "forged", "": "x"}))
    sent.resource_metrics[0].scope_metrics[0].metrics.add(name="lag", unit="ms").gauge.data_points.add().as_int = 250
    assert push(port, sent.SerializeToString()) == (200, b"")
    points, problems = tick(one)
    odd, lag = sorted(points, key=lambda point: point.metric.name)
    assert problems == []
    assert odd.metric.name == "a_b_c__1"
    assert odd.dims['k"\n\\'] == 'v"\n# TYPE x\\'
    assert odd.dims["job"] not in ("forged", "")
    assert (lag.value, lag.metric.unit) == (0.25, "s")


@pytest.mark.parametrize(
    ("status", "body", "more"),
    [
        (404, b"", {"path": "/v1/traces"}),
        (404, None, {"method": "GET"}),
        (415, b"{}", {"kind": "text/plain"}),
        (415, b"{}", {"kind": JSON, "Content-Encoding": "br"}),
        (400, b"{", {"kind": JSON}),
        (400, b"[" * 500_000, {"kind": JSON}),
        (400, b'{"resourceMetrics": {"a": 1}}', {"kind": JSON}),
        (400, b'{"resourceMetrics": [{"x": ' + b"[" * 100_000, {"kind": JSON}),
        (400, bytes(range(255, -1, -1)) * 20, {}),
        (400, b"\x0a\xff\xff\xff\xff\x0f", {}),
        (400, ALL.SerializeToString()[:-3], {}),
        (400, b"no gzip", {"Content-Encoding": "gzip"}),
        (400, gzip.compress(ALL.SerializeToString())[:-20], {"Content-Encoding": "gzip"}),
        (413, gzip.compress(bytes(200 * MAX_BYTES)), {"Content-Encoding": "gzip"}),
        (413, bytes(MAX_BYTES + 1), {}),
        (400, GIANT % (b"", b'{"asInt": 1%s}' % (400 * b"0")), {"kind": JSON}),
        (400, GIANT % (b"", b'{"asInt": 1, "flags": Infinity}'), {"kind": JSON}),
        (400, GIANT % (b"", b'{"asInt": 1, "startTimeUnixNano": 1%s}' % (400 * b"0")), {"kind": JSON}),
        (400, GIANT % (200_000 * b"x", b",".join(1000 * [b'{"asInt": 1}'])), {"kind": JSON}),
        (411, iter([b"0", b"1"]), {}),
    ],
    ids=[str(n) for n in range(20)],
)
def test_what_is_not_a_request_is_refused_and_a_later_one_is_taken(listening, status, body, more):
    one, port = listening
    try:
        assert push(port, body, **more)[0] == status
    except ConnectionError:
        assert status in (411, 413), "it closes without reading the rest"
    assert push(port, ALL.SerializeToString())[0] == 200
    assert {"train_loss", "train_tokens"} <= {point.metric.name for point in tick(one)[0]}


def test_a_million_series_cost_only_their_own(listening):
    one, port = listening
    many = request(*((f"m{n}", "gauge", 1.0, {"n": str(n)}) for n in range(5000))).SerializeToString()
    assert push(port, many)[0] == 200
    points, problems = tick(one)
    assert len(points) == 20
    assert any("has more than 20 series (max_series)" in problem for problem in problems)
    another(port, ("loss", "gauge", 2.0, {}))
    points, problems = tick(one)
    assert [point.metric.name for point in points] == ["loss"]
    assert problems == []


def test_after_a_request_or_a_search_that_took_long_the_next_ones_wait(listening, clock):
    one, port = listening
    clock.cost = 1.0
    assert push(port, ALL.SerializeToString())[0] == 200
    clock.cost = 0.0
    for later, status in ((4.9, 503), (0.2, 503), (44.8, 503), (0.2, 200)):
        clock.now += later
        assert push(port, ALL.SerializeToString())[0] == status
    assert len(tick(one)[0]) == 2


def test_a_request_that_never_ends_holds_nobody_up(listening):
    one, port = listening
    with socket.create_connection(("127.0.0.1", port)) as endless:
        endless.sendall(
            b"POST /v1/metrics HTTP/1.1\r\nContent-Type: application/x-protobuf\r\nContent-Length: 900000\r\n\r\nabc"
        )
        assert push(port, ALL.SerializeToString())[0] == 200
        assert tick(one)[0]


def another(port, *metrics):
    """Push from another process."""
    code = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], open(0, "rb").read(), {"Content-Type": sys.argv[2]})
sys.exit(urllib.request.urlopen(request).status != 200)
"""
    url, body = f"http://127.0.0.1:{port}/v1/metrics", request(*metrics).SerializeToString()
    subprocess.run([sys.executable, "-c", code, url, PROTOBUF], input=body, check=True, timeout=60)


def test_a_series_of_two_processes_is_of_the_first_and_a_message_names_it(listening):
    one, port = listening
    push(port, request(("loss", "gauge", 1.0, {})).SerializeToString())
    another(port, ("loss", "gauge", 2.0, {}), ("mine", "gauge", 3.0, {}))
    points, problems = tick(one)
    assert {(point.metric.name, point.value) for point in points} == {("loss", 1.0), ("mine", 3.0)}
    assert any("two processes push loss" in problem for problem in problems)


def test_what_waits_of_a_process_is_bounded_and_the_newest():
    sender = Sender(None, 20, 0.0)
    for n in range(100):
        sender.keep(b"%d" % n)
    assert sender.pages == [b"%d" % n for n in range(100 - MOST_REQUESTS, 100)]
    sender.keep(bytes(MOST_KEPT - 1))
    assert [len(page) for page in sender.pages] == [MOST_KEPT - 1]


def test_processes_that_have_ended_make_room_for_others(listening, monkeypatch):
    monkeypatch.setattr("chipwatch.collectors.programs.receiver.MOST_SENDERS", 1)
    one, port = listening
    another(port, ("loss", "gauge", 2.0, {}))
    assert push(port, ALL.SerializeToString())[0] == 503, "what it sent is not read yet"
    assert [point.metric.name for point in tick(one)[0]] == ["loss"]
    assert push(port, ALL.SerializeToString())[0] == 200


def test_a_port_that_is_taken_is_reported(opened):
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        opened(port=server.getsockname()[1])


def test_nobody_else_reaches_the_port(listening):
    receiver = listening[0]._receiver
    assert isinstance(receiver, OtlpReceiver)
    assert receiver._server.host == "127.0.0.1"
