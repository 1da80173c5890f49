"""Whatever a server answers: points are kept or halved, never lost, and no answer is a bug of ours."""

import random
import tracemalloc
from contextlib import closing

import pytest
from tests.doubles.raw import BODIES, STATUSES, WRECKS, RawServer, http
from tests.sinks.otlp.conftest import ONE

from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.net.http_client import HttpAnswer
from chipwatch.net.protobuf import BadMessage, fields
from chipwatch_sinks.otlp import OtlpSink
from chipwatch_sinks.otlp.answers import Partial, judge

KINDS = ("application/x-protobuf", "application/json", "text/html", "")


def verdicts(*answers):
    """Return what the sink makes of each answer."""
    found = []
    with RawServer(answers) as server:
        sink = OtlpSink(OtlpSink.Config(endpoint_url=server.url, timeout=5), {})
        sink.open()
        with closing(sink):
            for _ in answers:
                try:
                    found.append(sink.write(ONE))
                except (Retryable, Refused, BadBatch) as problem:
                    found.append(problem)
    assert all(one == [] or (len(str(one)) < 500 and str(one).isprintable()) for one in found)
    return [one if one == [] else type(one) for one in found]


def verdict(answer):
    return verdicts(answer)[0]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_body_makes_a_success_of_an_error_or_rejects_a_point(body, kind):
    headers = [f"Content-Type: {kind}"] if kind else []
    found = verdicts(*(http(status, BODIES[body], *headers) for status in STATUSES))
    for status, one in zip(STATUSES, found, strict=True):
        if status >= 300:
            assert one in (Retryable, Refused, BadBatch)
            assert (one is BadBatch) == (status == 400)
        else:
            assert one == ([] if body == "nothing" and "html" not in kind else Retryable)


@pytest.mark.parametrize("wreck", WRECKS)
def test_an_answer_that_breaks_off_is_retried(wreck):
    found = verdict(WRECKS[wreck])
    assert found is {"bad code": BadBatch}.get(wreck, Retryable)  # a whole answer with the status 400


def test_random_bytes_never_reject_more_than_there_is():
    dice = random.Random(5)
    for _ in range(3000):
        body = dice.randbytes(dice.randint(0, 30))
        try:
            read = [*fields(body)]
        except BadMessage:
            continue
        assert all(number > 0 for number, _ in read)
    with RawServer(
        [http(200, dice.randbytes(12), "Content-Type: application/x-protobuf") for _ in range(300)]
    ) as server:
        sink = OtlpSink(OtlpSink.Config(endpoint_url=server.url), {})
        sink.open()
        with closing(sink):
            for _ in range(300):
                try:
                    assert len(sink.write(ONE)) <= 1
                except Retryable:
                    continue


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("application/json", b'{"code": 3, "message": "no such tenant"}', "no such tenant"),
        ("application/x-protobuf", b"\x08\x03\x12\x0eno such tenant", "no such tenant"),
        ("application/json", b'{"code": 0, "message": "stored"}', ""),
    ],
)
def test_an_error_in_the_body_of_a_success_is_passed_on_and_loses_nothing(kind, body, words):
    assert judge(HttpAnswer(200, {"content-type": kind}, body)) == Partial(words=words)


def test_a_length_that_a_server_claims_is_not_allocated():
    chunk = b"HTTP/1.1 503 Words\r\nTransfer-Encoding: chunked\r\n\r\n77359400\r\nx"
    tracemalloc.start()
    try:
        assert verdicts(b"HTTP/1.1 503 Words\r\nContent-Length: 2000000000\r\n\r\nx", chunk) == [Retryable, Retryable]
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
