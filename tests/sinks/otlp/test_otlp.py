"""The sink against a strict receiver on loopback: what is sent, and what each answer leads to."""

import logging
import os
import re
from email.utils import formatdate

import pytest
from tests.certificates import DAY, Authority
from tests.doubles import otlp as double
from tests.doubles.otlp import Reply
from tests.sinks.otlp.conftest import AT, LEVEL

from chipwatch.base.version import __version__
from chipwatch.contract.datapoint import Dimensions, counter
from chipwatch.contract.errors import BadBatch, ConfigError, Refused, Retryable
from chipwatch_sinks.otlp import OtlpSink
from chipwatch_sinks.otlp.answers import JSON

TOTAL = counter("test.total", "By", "A total.")
BATCH = [LEVEL.point(AT, 1.5, Dimensions(gpu=str(n), host="n1")) for n in range(8)]


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_a_batch_arrives_in_each_form(receiver, compression, opened):
    sink = opened(receiver.url, compression=compression, headers={"X-Tenant": "ours"})
    assert sink.write(BATCH) == []
    (request,) = receiver.requests
    assert request.path == "/v1/metrics"
    assert request.headers["x-tenant"] == "ours"
    assert request.headers["user-agent"] == f"chipwatch/{__version__}"
    assert (request.headers.get("content-encoding") == "gzip") == (compression == "gzip")
    assert [(p.name, p.value, p.at, dict(p.attributes)["gpu"]) for p in receiver.points] == [
        ("test.level", 1.5, AT, str(n)) for n in range(8)
    ]


@pytest.mark.parametrize("kind", [double.PROTOBUF, JSON])
def test_partial_success_is_counted_with_its_words_and_never_sent_again(receiver, kind, opened):
    receiver.will(double.partial(3, "out of order\nsamples", kind))
    rejected = opened(receiver.url).write(BATCH)
    assert [one.reason for one in rejected] == ["by the receiver: out of order samples"] * 3
    assert len(receiver.requests) == 1


def test_a_warning_of_the_receiver_is_logged_once(receiver, caplog, opened):
    receiver.will(double.partial(0, "please send less"), double.partial(0, "please send less"))
    sink = opened(receiver.url)
    with caplog.at_level(logging.WARNING):
        assert sink.write(BATCH) == []
        assert sink.write(BATCH) == []
    assert [record.getMessage() for record in caplog.records] == ["otlp: the receiver says: please send less"]


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (double.status(429, "slow down", ("Retry-After", "7")), Retryable, "429: slow down"),
        (double.status(500, "oops"), Refused, "the receiver.*fails.*500: oops"),
        (double.status(501, "oops"), Refused, "nothing takes metrics at this address; check endpoint_url.*501: oops"),
        (double.status(505, ""), Refused, "505"),
        (double.status(599, ""), Refused, "599"),
        (double.status(502, ""), Retryable, "502"),
        (double.status(503, "x"), Retryable, "503: x"),
        (double.status(504, "x"), Retryable, "504"),
        (double.status(408, "x"), Refused, "408"),
        (double.status(409, "x"), Refused, "409"),
        (double.status(422, "bad point"), BadBatch, "422: bad point"),
        (double.status(425, "x"), Refused, "425"),
        (double.status(400, "bad point"), BadBatch, "400: bad point"),
        (double.status(413, "too large"), BadBatch, "413: too large"),
        (double.status(401, "who are you"), Refused, "who are you"),
        (double.status(403, "no"), Refused, "403"),
        (double.status(404, "no"), Refused, "endpoint_url"),
        (double.status(415, "no"), Refused, "compression"),
        (Reply(302, headers=(("Location", "http://other"),)), Refused, "redirects"),
        (Reply(400, b'{"error": {"message": "of Google"}}', kind=JSON), BadBatch, "of Google"),
        (Reply(400, b'{"__type": "ValidationException", "message": "of AWS"}', kind=JSON), BadBatch, "of AWS"),
        (Reply(503, b"<html>maintenance</html>", kind="text/html"), Retryable, "the answer is 503"),
        (Reply(400, b"plain words", kind="text/plain"), BadBatch, "plain words"),
        (Reply(202, b"<html>", kind=double.PROTOBUF), Retryable, "202 with a body that is not OTLP's"),
        (Reply(503, b"x" * (5 << 20)), Retryable, "503"),
        (Reply(200, b"x" * (5 << 20)), Retryable, "4194304 bytes"),
    ],
)  # fmt: skip
def test_each_answer_has_its_consequence(receiver, reply, kind, words, opened):
    receiver.will(reply)
    sink = opened(receiver.url)
    with pytest.raises(kind, match=words):
        sink.write(BATCH)
    assert sink.write(BATCH) == []  # and the next request is served


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"ok", "text/plain"), (b"OK\n", ""), (b"[]", JSON), (b"[1]", JSON), (b"null", JSON), (b"null", "text/plain"), (b'{"status": "ok"}', JSON),
        (b'{"status": "ok"}', "text/plain"), (b'{"error": {"message": "x"}}', JSON), (b'{"__type": "X", "message": "x"}', JSON),
        (b'{"partialSuccess": 5}', JSON), (b'{"partialSuccess": {"rejectedDataPoints": 1e999}}', JSON), (b'{"partialSucc', JSON),
        (b"<html>Welcome, log in</html>", "text/html"), (b"", "text/html; charset=utf-8"), (b"welcome", "application/xhtml+xml"),
        (b"\r\n <!DOCTYPE html><title>x</title>", "text/plain"), (b"\xef\xbb\xbf<!-- x --><HTML>", JSON), (b"<html>", ""),
        (b"\xff\xff", double.PROTOBUF), (b"\x1f\x8b no gzip", double.PROTOBUF), (b"\x30\x01", double.PROTOBUF), (b"\xef\xbb\xbfok", JSON), (b"x" * 100_000, "text/plain"),
    ],
)  # fmt: skip
def test_a_success_whose_body_is_not_otlps_is_kept_and_told(receiver, body, kind, opened):
    receiver.will(Reply(200, body, kind=kind))
    sink = opened(receiver.url)
    with pytest.raises(Retryable) as caught:
        sink.write(BATCH)
    shown = kind or "no content type"
    assert str(caught.value) == (
        f"the answer is 200 with a body that is not OTLP's ({shown}): check endpoint_url and proxy"
    )


@pytest.mark.parametrize(
    ("body", "kind"), [(b"", "text/plain"), (b" ", "text/plain"), (b"{}", JSON), (b"{}\n", "text/plain"), (b"\n\x00", ""),
                       (b'{"partialSuccess": null, "later": 1}', JSON), (b"\n\x00\x30\x01", double.PROTOBUF)],
)  # fmt: skip
def test_a_success_of_otlp_counts_also_where_it_has_fields_of_a_later_version(receiver, body, kind, opened):
    receiver.will(Reply(200, body, kind=kind))
    assert opened(receiver.url).write(BATCH) == []


@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ([("Retry-After", "7")], 7),
        ([("Retry-After", formatdate(1_000_030, usegmt=True)), ("Date", formatdate(1_000_000, usegmt=True))], 30),
        ([("Retry-After", formatdate(1_000_000, usegmt=True)), ("Date", formatdate(1_000_030, usegmt=True))], None),
        ([("Retry-After", formatdate(1_000_000, usegmt=True))], None),
        ([("Retry-After", "soon")], None),
        ([("Retry-After", "-5")], None),
        ([("Retry-After", "9" * 400)], 999999999),
        ([], None),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_receivers_clock(receiver, headers, after, opened):
    receiver.will(double.status(429, "", *headers))
    with pytest.raises(Retryable) as caught:
        opened(receiver.url).write(BATCH)
    assert caught.value.after == after


def test_no_secret_stands_in_a_message(receiver, tmp_path, opened):
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    receiver.will(double.status(403, "the key k3y-of-ours and the token s3cret-token are bad"))
    sink = opened(receiver.url, headers={"api-key": "k3y-of-ours"}, bearer_token_file=token)
    with pytest.raises(Refused) as caught:
        sink.write(BATCH)
    assert receiver.requests[0].headers["authorization"] == "Bearer s3cret-token"
    said = str(caught.value) + repr(OtlpSink.Config(headers={"api-key": "k3y-of-ours"})) + str(sink.destination())
    assert "s3cret" not in said
    assert "k3y" not in said


def test_a_token_is_read_for_each_request(receiver, tmp_path, opened):
    token = tmp_path / "token"
    sink = opened(receiver.url, bearer_token_file=token)
    with pytest.raises(Refused, match="cannot read"):
        sink.write(BATCH)
    for word in ("one", "two"):
        token.write_text(word)
        sink.write(BATCH)
    assert [request.headers["authorization"] for request in receiver.requests] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize(
    ("file", "fault"),
    [("/dev/zero", "has characters that HTTP does not allow"), ("/dev/null", "is empty"), ("pipe", "is empty")],
)
def test_a_token_of_a_file_without_an_end_is_refused(receiver, tmp_path, opened, file, fault):
    os.mkfifo(tmp_path / "pipe")
    sink = opened(receiver.url, bearer_token_file=tmp_path / file)
    with pytest.raises(Refused, match=f"^bearer_token_file: .*{file} {fault}"):
        sink.write(BATCH)


def test_tls_with_a_certificate_of_the_client(receiver, tmp_path, opened):
    authority = Authority(tmp_path)
    server, key = authority.sign("server")
    url = receiver.encrypt(server, key, authority.file)
    certificate, own_key = authority.sign("client")
    sink = opened(url, ca_file=authority.file, cert_file=certificate, key_file=own_key)
    for _ in range(3):
        assert sink.write(BATCH) == []
    assert receiver.connections == 1
    with pytest.raises(Refused, match=r"not trusted.*ca_file"):
        opened(url).write(BATCH)
    with pytest.raises(Retryable):
        opened(url, ca_file=authority.file).write(BATCH)
    with pytest.raises(Refused, match=r"gone\.pem"):
        opened(url, ca_file=tmp_path / "gone.pem").write(BATCH)


def test_a_certificate_of_another_time_or_host_is_refused_with_its_own_advice(receiver, tmp_path, opened):
    authority = Authority(tmp_path)
    for lasts, host, cure in (
        (-DAY, "127.0.0.1", "has expired; renew it, or set this machine's clock"),
        (DAY, "localhost", "not valid for 'localhost'; check the address"),
    ):
        url = receiver.encrypt(*authority.sign("server", lasts)).replace("127.0.0.1", host)
        with pytest.raises(Refused, match=f"^the certificate of {host} is not trusted: .*{cure}$"):
            opened(url, ca_file=authority.file).write(BATCH)


def test_points_and_bytes_of_a_request_stay_below_the_limits():
    for flavour, most in (("plain", 5000), ("cloudwatch", 1000), ("google", 200)):
        sink = OtlpSink(OtlpSink.Config(flavour=flavour), {})
        assert sink.limits.max_points + sink._room <= most
        several = OtlpSink(OtlpSink.Config(flavour=flavour, gauges="mean-min-max", mark_ended=True), {})
        assert 3 * (several.limits.max_points + several._room) <= most
        assert sink.limits.max_bytes < 64 << 20


def test_a_series_that_ended_is_marked_once_and_again_if_the_answer_was_lost(receiver, opened):
    sink = opened(receiver.url)
    both = [LEVEL.point(AT, 1, Dimensions(gpu="0")), LEVEL.point(AT, 1, Dimensions(gpu="1"))]
    sink.write(both)
    for n in range(1, 8):
        if n == 6:
            receiver.will(double.status(503, ""))
            with pytest.raises(Retryable):
                sink.write([both[0]._replace(at=AT + n * 60 * 10**9)])
        sink.write([both[0]._replace(at=AT + n * 60 * 10**9)])
    assert [dict(point.attributes) for point in receiver.points if point.value is None] == [{"gpu": "1"}]


def test_a_receiver_that_takes_no_points_without_a_value_gets_the_others(receiver, opened):
    sink, both = opened(receiver.url), [LEVEL.point(AT, 1, Dimensions(gpu=gpu)) for gpu in "01"]
    sink.write(both)
    sink.write([both[0]._replace(at=AT + 600 * 10**9)])
    receiver.will(double.status(400, "a point without a value"))
    later = [both[0]._replace(at=AT + 660 * 10**9)]
    with pytest.raises(BadBatch):
        sink.write(later)
    assert sink.write(later) == []
    assert all(point.value is not None for point in receiver.points)


# -- the environment -------------------------------------------------------------------------------------------------


def test_the_variables_of_opentelemetry_apply_where_nothing_is_set(receiver, opened):
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,x-tenant=1",
        "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "x-tenant=2",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=prod,service.name=other",
        "OTEL_SERVICE_NAME": "training",
    }
    sink = opened(None, env, headers={"x-mine": "3"})
    sink.write(BATCH)
    (request,) = receiver.requests
    assert [request.headers[name] for name in ("api-key", "x-tenant", "x-mine")] == ["a b", "2", "3"]
    assert request.headers.get("content-encoding") is None
    assert sink._settings.timeout == 2.5
    resource = dict(receiver.points[0].resource)
    assert (resource["service.name"], resource["deployment.environment"]) == ("training", "prod")


@pytest.mark.parametrize(
    ("preference", "delta"), [("delta", True), ("Delta", True), ("cumulative", False), ("lowmemory", False)]
)
def test_the_preference_of_temporality(receiver, preference, delta, opened):
    env = {"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": preference}
    sink = opened(receiver.url, env)
    assert sink.limits.increases is delta
    sink.write([TOTAL.point(AT, 9, start_time=1)._replace(window_start=AT - 5, increase=2)])
    assert [(point.kind, point.value) for point in receiver.points] == [
        ("sum delta", 2) if delta else ("sum cumulative", 9)
    ]
    assert not opened(receiver.url, env, temporality="cumulative").limits.increases


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "gRPC is not spoken here, HTTP is used.*4318"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "GRPC", "gRPC is not spoken here, HTTP is used.*4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "expected http/protobuf, got 'http/json'"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "gzip or none"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "milliseconds"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "milliseconds"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "5s", "milliseconds"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "9" * 5000, "milliseconds"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret,secret", "part 2"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Content-Type=secret", "set by the agent"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0Ab", "does not allow"),
        ("OTEL_RESOURCE_ATTRIBUTES", "secret", "KEY=VALUE"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "x", "lowmemory"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_understood_is_ignored_with_one_warning(name, value, words, caplog, request):
    receiver, opened = map(request.getfixturevalue, ("receiver", "opened"))
    with caplog.at_level(logging.WARNING):
        sink = opened(receiver.url, {name: value})
        sink.open()
    assert sink.write(BATCH) == []
    (record,) = caplog.records
    assert re.fullmatch(f"otlp: {name} is ignored: .*{words}.*", record.getMessage())
    assert "secret" not in record.getMessage()
    assert len(record.getMessage()) < 300
    plain = opened(receiver.url)
    plain.write(BATCH)
    assert receiver.requests[0].headers == receiver.requests[1].headers
    assert sink._settings._replace(ignored={}) == plain._settings


@pytest.mark.parametrize(
    ("value", "words"), [("localhost:4318", "expected http://"), ("http://user:secret@host", "user name")]
)
def test_an_address_that_cannot_be_used_ends_the_start_since_the_default_is_another_place(value, words):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        with pytest.raises(ConfigError, match=words) as caught:
            OtlpSink(OtlpSink.Config(), {name: value})
        assert name in str(caught.value)
        assert "secret" not in str(caught.value)


def test_variables_for_a_collector_do_not_reach_a_cloud():
    env = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    sink = OtlpSink(OtlpSink.Config(flavour="google"), env)
    assert "secret" not in str(vars(sink))
    assert sink.destination() == {"flavour": "google"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endpoint_url": "ftp://x"}, "endpoint_url"),
        ({"endpoint_url": "http://u:p@x"}, "user name"),
        ({"headers": {"a b": "x"}}, "not a valid name"),
        ({"headers": {"host": "x"}}, "set by the agent"),
        ({"timeout": 0.0}, "timeout"),
        ({"key_file": "x"}, "cert_file"),
        ({"headers": {"authorization": "x"}, "bearer_token_file": "y"}, "Authorization"),
    ],
)
def test_a_wrong_option_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        OtlpSink.Config(**options)
