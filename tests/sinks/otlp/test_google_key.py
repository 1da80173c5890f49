"""The token of a key file, by google-auth: what our transport and the sink make of its requests and errors."""

import sys
from base64 import urlsafe_b64decode
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from tests.doubles.raw import RawServer, http
from tests.sinks.otlp.conftest import KEY, PEM

from chipwatch.contract.errors import Refused, Retryable
from chipwatch_sinks.otlp import OtlpSink
from chipwatch_sinks.otlp.google_token import GoogleToken


def test_one_token_is_used_until_its_end_and_its_request_is_signed_with_the_key(key_file):
    bodies, answer = [], http(200, b'{"access_token": "ya29", "expires_in": 3600}')
    with RawServer([lambda body: bodies.append(body) or answer]) as server:
        key_file(f"{server.url}/token")
        token = GoogleToken()
        assert token.project == "some-project"
        assert [token.headers("")["authorization"] for _ in range(3)] == ["Bearer ya29"] * 3
        token.expire()
        assert token.headers("")["authorization"] == "Bearer ya29"
        assert len(bodies) == 2
    text, _, signature = parse_qs(bodies[0].decode())["assertion"][0].rpartition(".")
    KEY.public_key().verify(urlsafe_b64decode(signature + "=="), text.encode(), padding.PKCS1v15(), hashes.SHA256())


@pytest.mark.parametrize(
    ("status", "body", "problem", "says"),
    [
        (400, b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}', Refused, "Invalid JWT"),
        (404, b"<html>", Refused, "<html>"),
        (429, b"", Retryable, "Google credentials"),
        (503, b"later", Retryable, "later"),
    ],
)
def test_an_answer_without_a_token_is_judged_by_its_status(key_file, status, body, problem, says):
    good = http(200, b'{"access_token": "ya29", "expires_in": 3600}')
    with RawServer([*[http(status, body)] * (1 if problem is Refused else 3), good]) as server:
        key_file(f"{server.url}/token")
        token = GoogleToken()
        with pytest.raises(problem, match=says):
            token.headers("")
        assert token.headers("")["authorization"] == "Bearer ya29"


@pytest.mark.parametrize("key", ["none", PEM[:600] + PEM[-30:]], ids=["none", "cut"])
def test_a_key_that_cannot_be_read_is_refused_without_its_text(key_file, key):
    key_file("http://127.0.0.1:1/token", private_key=key)
    with pytest.raises(Refused) as caught:
        GoogleToken()
    assert key[-60:] not in str(caught.value)


def test_without_google_auth_a_key_file_says_what_to_install(key_file, monkeypatch):
    key_file("http://127.0.0.1:1/token")
    monkeypatch.delitem(sys.modules, "chipwatch_sinks.otlp.google_token", raising=False)
    monkeypatch.setitem(sys.modules, "google.auth.exceptions", None)
    with pytest.raises(Refused, match="install chipwatch with the extra 'google'"):
        OtlpSink(OtlpSink.Config(flavour="google", project="p")).open()
