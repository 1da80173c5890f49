"""A receiver on loopback, sinks that send to it, and the file of a key for Google."""

import json
from contextlib import ExitStack

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.doubles import cloudwatch
from tests.doubles.otlp import OtlpDouble

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch_sinks.otlp import OtlpSink

AT = 1_790_000_000 * 10**9
LEVEL = gauge("test.level", "%", "A level.", dims=("gpu",))
ONE = [gauge("test.level", "%", "A level.").point(AT, 1.5, Dimensions(host="n1"))]
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


@pytest.fixture
def receiver():
    with OtlpDouble() as made:
        yield made


@pytest.fixture
def opened(monkeypatch):
    """Make sinks that are closed at the end, where nothing leads to a cloud itself."""
    cloudwatch.isolate(monkeypatch)
    with ExitStack() as stack:

        def make(url, env=None, **options):
            sink = OtlpSink(OtlpSink.Config(endpoint_url=url, **options), env or {})
            stack.callback(sink.close)
            sink.open()
            return sink

        yield make


@pytest.fixture
def key_file(tmp_path, monkeypatch):
    """Write a key file, and name it in the environment."""

    def write(token_uri, **more):
        content = {
            "type": "service_account", "project_id": "some-project", "client_email": "a@some-project.example.org",
            "private_key": PEM, "private_key_id": "k1", "token_uri": token_uri, **more,
        }  # fmt: skip
        (tmp_path / "key.json").write_text(json.dumps(content))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        monkeypatch.setenv("NO_GCE_CHECK", "true")

    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.setattr("google.auth._exponential_backoff.time.sleep", lambda _: None)
    return write
