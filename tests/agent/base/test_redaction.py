import json
import logging
import re
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.base.redaction import MAX_LENGTH, one_line, redacted, without, without_secrets
from chipwatch.net.http_client import HttpAnswer
from chipwatch.net.status_socket import StatusServer, ask
from chipwatch.service.health_server import health_server
from chipwatch.service.heartbeat import Heartbeat
from chipwatch.service.log_formats import Formatter


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('connect to "http://user:S3CRET@host:1/"', 'connect to "http://...@host:1/"'),
        ("http://user:S3@CRET@host/x", "http://...@host/x"),
        ("http://user:S3/CRET@host/x", "http://...@host/x"),
        ("https://S3CRET@host", "https://...@host"),
        ("proxy user:S3CRET@proxy:3128 failed", "proxy ...@proxy:3128 failed"),
        ("http://host/?a=1&access_token=S3CRET&b=2", "http://host/?..."),
        ("http://host/?X-Amz-Signature=S3CRET'", "http://host/?...'"),
        ("two: http://a:S3CRET@h, http://b:S3CRET@h", "two: http://...@h, http://...@h"),
        ("http://host/x?S3CRET and more", "http://host/x?... and more"),
        ("GET /x?access_token=S3CRET&b=2", "GET /x?access_token=...&b=2"),
        ("Authorization: Bearer S3CRET\nnext", "Authorization: ...\nnext"),
        ("{'Authorization': 'Basic S3CRET', 'a': 1}", "{'Authorization': '...', 'a': 1}"),
        ('{"authorization":"Token S3CRET"}', '{"authorization":"..."}'),
        ("got Bearer S3CRET, sorry", "got Bearer ..., sorry"),
        ("Basic UzNDUkVUS3CRET9==", "Basic ..."),
        ("X-Api-Key: S3CRET", "X-Api-Key: ..."),
        ("x-amz-security-token:S3CRET'", "x-amz-security-token:...'"),
        ("password=S3CRET level=all", "password=... level=all"),
        ("AWS_SECRET_ACCESS_KEY=S3CRET x", "AWS_SECRET_ACCESS_KEY=... x"),
        ('{"password": "S3CRET one"}', '{"password": "..."}'),
        ("password: S3CRET", "password: ..."),
        ("Cookie: a=S3CRET; b=S3CRET", "Cookie: ..."),
        ("AWS4-HMAC-SHA256 Credential=S3CRET/x, Signature=S3CRET", "AWS4-HMAC-SHA256 ..."),
        ("the key AKIAIOSFODNN7S3CRET is old", "the key ... is old"),
        ("eyJhbGciOiJIUzI1NiJ9.S3CRET.S3CRET", "..."),
        (
            "retrieving credentials from custom-process: S3CRET\nS3CRET",
            "retrieving credentials from custom-process: ...",
        ),
    ],
)
def test_the_secrets_of_an_address_are_not_told(text, told):
    assert without_secrets(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/path/me@there",
        "serviceAccount:agent@project.iam.gserviceaccount.com lacks it",
        "arn:aws:sts::123456789012:assumed-role/role/me@there",
        "3 points are kept // really",
        "/readyz?name=x",
        "bearer_token_file: cannot read /run/token1 (OSError)",
        "bearer_token_file=/run/token1",
        "Google credentials: no file 5; AWS credentials of x1: invalid",
        "token: expected 3 words; the bearer token is old",
        "Basic authentication failed",
        "OTEL_EXPORTER_OTLP_HEADERS is ignored: expected KEY=VALUE,..., and part 2 has another form",
        "set MLFLOW_TRACKING_USERNAME and _PASSWORD, or MLFLOW_TRACKING_TOKEN",
        "keyboard=us, job.keys=5, --dim key=value",
        "the credentials lack the permission cloudwatch:PutMetricData",
    ],
)
def test_a_text_without_a_secret_is_left_as_it_is(text):
    assert one_line(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("one\ntwo\r\n", r"one\ntwo"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\u202eb\u2028c\x85d\ud800", r"a\u202eb\u2028c\x85d\ud800"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_a_character_that_is_not_visible_is_shown_by_its_escape(text, told):
    assert one_line(text) == told


def test_what_a_request_kept_secret_is_found_wherever_it_stands():
    assert without("say friend and enter", ["friend", "friend and", "a"]) == "say ... enter"
    said = HttpAnswer(500, {}, b"", ("friend of ours",)).says("x" + " " * 1995 + "friend of ours")
    assert said == "x ..."  # not its beginning, where the text is cut


def test_each_text_in_an_object_is_redacted():
    value = {"a": ["password=S3CRET", 1, None, True], "token=S3CRET": {"b": ("http://u:S3CRET@h",)}}
    assert redacted(value) == {"a": ["password=...", 1, None, True], "token=...": {"b": ["http://...@h"]}}


@pytest.mark.parametrize(
    "part", ["a", "a-key-", "key ", "bearer ", "authorization", "'key'", "//", "x:y@", "http://a?", "=", ";", "?key"]
)
def test_a_long_text_is_searched_in_linear_time(part):
    text, began = part * (100_000 // len(part)), time.process_time()
    without_secrets(text)
    assert time.process_time() - began < 2.0


def test_a_long_text_is_cut():
    assert one_line("x" * 10**6) == "x" * MAX_LENGTH + "..."


def test_an_endless_row_of_slashes_takes_no_time():
    assert len(one_line("//" * 10**5 + "@")) <= MAX_LENGTH + 3


@given(st.text(st.characters(), max_size=300), st.text(re.escape("abcXYZ019-_.~%$&'()*+,;=!@"), min_size=8))
def test_whatever_stands_around_it_a_password_is_not_told_and_the_line_is_one(around, password):
    told = one_line(f"{around} http://user:<{password}>@host/ {around}")
    assert f"<{password}>" not in told
    assert told.isprintable()


def test_log_status_health_and_heartbeat_leave_out_the_same(tmp_path):
    words = "refused: http://h/?token=S3CRET, Authorization: Bearer S3CRET"
    clean = without_secrets(words)
    assert "S3CRET" not in clean
    record = logging.LogRecord("agent.x", logging.ERROR, "", 0, words, (), None)
    assert clean in Formatter().format(record)
    server = StatusServer(tmp_path / "status.sock", {"status": lambda: {"sinks": {"a": {"last_error": words}}}})
    try:
        assert ask(tmp_path, "status") == {"sinks": {"a": {"last_error": clean}}}
    finally:
        server.close()
    health = health_server("127.0.0.1:0", lambda: (True, {}), lambda: (False, {"refused": {"a": words}}))
    try:
        with pytest.raises(HTTPError) as caught:
            urlopen(f"http://127.0.0.1:{health.port}/readyz", timeout=5)
        assert json.load(caught.value) == {"ok": False, "refused": {"a": clean}}
        caught.value.close()
    finally:
        health.close()
    heartbeat = Heartbeat(tmp_path / "alive", 5.0)
    heartbeat.beat(words)
    heartbeat.close()
    assert json.loads((tmp_path / "alive").read_text())["why"] == clean
