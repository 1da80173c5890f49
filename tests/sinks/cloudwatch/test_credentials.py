"""A source of credentials fails at the start or at the refresh: a message, no loss, no secret repeated."""

import json
import logging
from datetime import UTC, datetime, timedelta

import pytest
from tests.doubles.cloudwatch import KEY, SECRET
from tests.doubles.raw import RawServer, http

from chipwatch.contract.errors import Refused, Retryable

ODD: dict[str, bytes | dict[str, object]] = {
    # what is printed instead of credentials, or what in them is wrong
    "garbage": b"\xff\xfesecret-output",
    "nothing": b"",
    "list": b"[]",
    "null": b"null",
    "object": b"{}",
    "code": b'{"Code": "InternalError", "Message": "secret-output"}',
    "lists": b"[" * 100_000,
    "bad date": {"Expiration": "secret-output"},
    "number for a date": {"Expiration": 17},
    "no time zone": {"Expiration": "2026-11-20T10:00:00"},
    "long ago": {"Expiration": "2001-01-01T00:00:00Z"},
    "year 9999": {"Expiration": "9999-99-99T00:00:00Z"},
    "number for a key": {"AccessKeyId": 5},
    "no secret": {"SecretAccessKey": None},
    "empty secret": {"SecretAccessKey": ""},
    "list for a token": {"SessionToken": ["secret-output"], "Token": ["secret-output"]},
    "line in a token": {"SessionToken": "secret\noutput", "Token": "secret\noutput"},
}
SOME = ("garbage", "nothing", "code", "bad date", "long ago", "no secret", "line in a token")
"""Each kind of them once, where a program runs or botocore refreshes what it has."""


def good(**change):
    """Return credentials that botocore refreshes at each request: they end in five minutes from now."""
    soon = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    made = {"Version": 1, "AccessKeyId": KEY, "SecretAccessKey": SECRET, "SessionToken": None, "Expiration": soon}
    return json.dumps(made | change).encode()


def made(odd):
    return good(**body) if isinstance(body := ODD[odd], dict) else body


@pytest.fixture(autouse=True)
def _none_in_the_environment(monkeypatch, double):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    double.credentials = {KEY: (SECRET, None), "token": (SECRET, "t")}


@pytest.fixture
def process(monkeypatch, tmp_path):
    """Configure a program that prints credentials: the text given to the function, from a file."""
    printed, program = tmp_path / "printed", tmp_path / "program.sh"
    program.write_text(f"echo secret-stderr >&2\ncat {printed}\n! test -e {tmp_path / 'fails'}\n")
    (tmp_path / "config").write_text(f"[default]\ncredential_process = sh {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return printed.write_bytes


def judge(problem, caplog):
    assert str(problem).startswith("AWS credentials")
    for secret in ("secret-output", "secret\noutput", "secret-stderr", SECRET):
        assert secret not in str(problem)
        assert secret not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("odd", SOME)
def test_a_program_that_prints_invalid_credentials_is_run_again(make_sink, points, process, caplog, odd):
    caplog.set_level(logging.DEBUG)
    process(made(odd))
    with pytest.raises((Retryable, Refused)) as caught:
        make_sink().write(points())
    judge(caught.value, caplog)
    process(good())
    assert make_sink().write(points()) == []


@pytest.mark.parametrize("odd", SOME)
def test_a_refresh_that_fails_costs_nothing_and_the_next_may_succeed(
    make_sink, points, process, double, *, caplog, odd
):
    caplog.set_level(logging.DEBUG)
    process(good())
    sink = make_sink()
    sink.write(points())
    process(made(odd))
    for _ in range(2):
        with pytest.raises((Retryable, Refused)) as caught:
            sink.write(points())
        judge(caught.value, caplog)
    process(good())
    assert sink.write(points()) == []
    assert len(double.datums) == 6


def test_what_a_program_that_fails_says_is_not_repeated(make_sink, process, tmp_path, caplog):
    process(b"")
    (tmp_path / "fails").touch()
    with pytest.raises(Retryable, match="custom-process fails") as caught:
        make_sink()
    judge(caught.value, caplog)


@pytest.mark.parametrize("program", ["/no/such/program", "/etc/hostname", "'unbalanced"])
def test_a_program_that_cannot_be_started_is_refused_by_its_name(make_sink, monkeypatch, tmp_path, caplog, program):
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises((Refused, Retryable)) as caught:
        make_sink()
    judge(caught.value, caplog)
    assert isinstance(caught.value, Refused) == (program[0] == "/")
    assert program in str(caught.value) or program[0] == "'"


@pytest.mark.parametrize("odd", ODD)
def test_a_container_that_answers_invalid_credentials_is_asked_again(make_sink, points, monkeypatch, caplog, odd):
    caplog.set_level(logging.DEBUG)
    with RawServer([http(200, made(odd))]) as server:
        monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url)
        with pytest.raises((Retryable, Refused)) as caught:
            make_sink().write(points())
    judge(caught.value, caplog)


@pytest.mark.parametrize("odd", SOME)
def test_a_container_whose_refresh_fails_costs_nothing(make_sink, points, monkeypatch, double, *, caplog, odd):
    caplog.set_level(logging.DEBUG)
    token = http(200, good(Token="t", AccessKeyId="token"))
    now = [token]
    with RawServer([lambda _: now[0]]) as server:
        monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url)
        sink = make_sink()
        sink.write(points())
        now[0] = http(200, made(odd))
        with pytest.raises((Retryable, Refused)) as caught:
            sink.write(points())
        judge(caught.value, caplog)
        now[0] = token
        assert sink.write(points()) == []
    assert len(double.datums) == 6


def test_an_invalid_role_costs_no_data(make_sink, points, monkeypatch):
    told = b"<ErrorResponse><Error><Code>ValidationError</Code><Message>x is invalid</Message></Error></ErrorResponse>"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with RawServer([http(400, told)]) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        with pytest.raises(
            Refused, match="choose another role \\(x is invalid\\) \\(AssumeRole answers 400 ValidationError\\)"
        ):
            make_sink(role_arn="arn:aws:iam::123456789012:role/x").write(points())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((200, body) for body in (b"<!DOCTYPE html>\xdf", b"[]", b"", b"<a/>", b"<AssumeRoleResponse/>")),
        *((status, b"<a/>") for status in (302, 403, 503)),
    ],
)
def test_an_odd_answer_of_sts_costs_no_data(make_sink, points, monkeypatch, caplog, *, status, body):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with RawServer([http(status, body)]) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        with pytest.raises((Retryable, Refused)):
            make_sink(role_arn="arn:aws:iam::123456789012:role/x").write(points())
    assert caplog.records == []


def test_what_is_wrong_with_a_proxy_does_not_repeat_its_password(make_sink, points, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("https_proxy", "http://user:sec#ret@127.0.0.1:3128")
    with pytest.raises(Retryable, match="check HTTPS_PROXY") as caught:
        make_sink(role_arn="arn:aws:iam::123456789012:role/x").write(points())
    assert "sec" not in str(caught.value)
