"""The token of a key file, beside what google-auth and cryptography make of the same file."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode, urlsafe_b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from google.auth import jwt
from tests.doubles.raw import RawServer, http

from chipwatch.contract.errors import Refused, Retryable
from chipwatch_sinks.otlp import google_key

FORMS = {
    "PKCS8": serialization.PrivateFormat.PKCS8,
    "PKCS1": serialization.PrivateFormat.TraditionalOpenSSL,
}


def pem_of(key, form="PKCS8"):
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, FORMS[form], plain).decode()


def file_of(tmp_path, pem, **more):
    content = {
        "type": "service_account", "project_id": "some-project", "client_email": "a@some-project.example.org",
        "private_key": pem, "private_key_id": "k1", "token_uri": "http://127.0.0.1:1/token", **more,
    }  # fmt: skip
    file = tmp_path / "key.json"
    file.write_text(json.dumps(content))
    return {google_key.VARIABLE: str(file), "CLOUDSDK_CONFIG": str(tmp_path)}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bits", [1024, 2048, 2049, 4096])
def test_a_signature_is_that_of_cryptography(form, bits):
    key = rsa.generate_private_key(65537, bits)
    ours = google_key.parse_key(pem_of(key, form))
    for text in (b"", b"some text", b"\0" * 1000):
        assert ours.sign(text) == key.sign(text, padding.PKCS1v15(), hashes.SHA256())


def test_google_auth_reads_the_assertion(tmp_path):
    key = rsa.generate_private_key(65537, 2048)
    token = google_key.find(file_of(tmp_path, pem_of(key)))
    assertion = token.assertion(1_790_000_000)
    header, claims, _, _ = jwt._unverified_decode(assertion)
    assert header == {"typ": "JWT", "alg": "RS256", "kid": "k1"}
    assert claims == {
        "iat": 1_790_000_000, "exp": 1_790_003_600, "iss": "a@some-project.example.org",
        "aud": "https://oauth2.googleapis.com/token", "scope": "https://www.googleapis.com/auth/cloud-platform",
    }  # fmt: skip
    assert token.project == "some-project"


@pytest.mark.parametrize("fault", ["", "type", "universe", "uri", "key", "cut", "other", "variable", "file"])
def test_what_is_unusual_is_left_to_google_auth(fault, tmp_path):
    key, changes = rsa.generate_private_key(65537, 2048), {}
    pem = pem_of(key)
    if fault == "cut":
        pem = pem[:600] + pem[-30:]
    if fault == "other":
        pem = pem.replace("PRIVATE KEY", "EC PRIVATE KEY")
    changes = {"type": {"type": "authorized_user"}, "universe": {"universe_domain": "example.org"},
               "key": {"private_key": "none"}, "uri": {"token_uri": "http://"}}.get(fault, {})  # fmt: skip
    env = file_of(tmp_path, pem, **changes)
    env |= {"variable": {"GOOGLE_CLOUD_QUOTA_PROJECT": "other"}, "file": {google_key.VARIABLE: "/no/such"}}.get(
        fault, {}
    )
    assert (google_key.find(env) is None) == bool(fault)


def test_a_key_of_more_bits_than_anyone_has_is_left_to_google_auth_without_a_computation(tmp_path):
    def value(tag, content):
        return bytes([tag, 0x84]) + len(content).to_bytes(4) + content

    number = value(2, b"\1" * 12_000)
    pem = b64encode(value(0x30, value(2, b"\0") + number * 8)).decode()
    begun = time.process_time()
    assert google_key.find(file_of(tmp_path, f"-----BEGIN RSA PRIVATE KEY-----\n{pem}\n-----END")) is None
    assert time.process_time() - begun < 1


def test_a_file_that_is_nested_too_deep_is_left_to_google_auth(tmp_path):
    env = file_of(tmp_path, "")
    (tmp_path / "key.json").write_text(f'{{"a": {"[" * 100_000}{"]" * 100_000}}}')
    assert google_key.find(env) is None


def test_a_key_whose_numbers_do_not_fit_is_left_to_google_auth(tmp_path):
    key = google_key.parse_key(pem_of(rsa.generate_private_key(65537, 2048)))
    with pytest.raises(ValueError, match="not an RSA key"):
        key._replace(dp=key.dp + 1).sign(b"")


def test_one_token_is_used_until_shortly_before_its_end(tmp_path):
    asked = []

    class Tokens(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            text = json.dumps({"access_token": f"token-{len(asked)}", "expires_in": 3600}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    key = rsa.generate_private_key(65537, 2048)
    with ThreadingHTTPServer(("127.0.0.1", 0), Tokens) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        token = google_key.find(
            file_of(tmp_path, pem_of(key), token_uri=f"http://127.0.0.1:{server.server_port}/token")
        )
        assert [token.headers("") for _ in range(3)] == [{"authorization": "Bearer token-1"}] * 3
        token.expire()
        assert token.headers("") == {"authorization": "Bearer token-2"}
        server.shutdown()
    assert [request["grant_type"] for request in asked] == [[google_key.GRANT]] * 2
    text, _, signature = asked[0]["assertion"][0].rpartition(".")
    signed = urlsafe_b64decode(signature + "==")
    key.public_key().verify(signed, text.encode(), padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(Retryable, match="Google credentials: 127"):
        google_key.find(file_of(tmp_path, pem_of(key))).headers("")


@pytest.mark.parametrize(
    ("status", "body", "problem", "says"),
    [
        (
            400,
            b'{"error": "invalid_grant",\n "error_description": "Invalid JWT Signature."}',
            Refused,
            r"400 .*invalid_grant",
        ),
        (404, b"<html>", Refused, r"404 <html>"),
        (200, b"{}", Retryable, "200"),
        (200, b'{"a":' + b"[" * 200_000, Retryable, "200"),
        (200, b'{"access_token": "a\\nb", "expires_in": 9}', Retryable, "200"),
        (200, b'{"access_token": "a", "expires_in": "soon"}', Retryable, "200"),
        (302, b"", Retryable, "302"),
        (429, b"", Retryable, "429"),
        (503, b"later", Retryable, "503 later"),
    ],
)
def test_an_answer_without_a_token_is_judged_by_its_status(tmp_path, status, body, problem, says):
    pem = pem_of(rsa.generate_private_key(65537, 2048))
    good = http(200, b'{"access_token": "ya29", "expires_in": "3600"}')
    with RawServer([http(status, body, "Retry-After: 7"), good]) as server:
        token = google_key.find(file_of(tmp_path, pem, token_uri=f"{server.url}/token"))
        with pytest.raises(problem, match=rf"gives no token \({says}") as caught:
            token.headers("")
        assert getattr(caught.value, "after", 7) == 7
        assert token.headers("") == {"authorization": "Bearer ya29"}
