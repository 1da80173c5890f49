"""The token of the metadata server, beside what google-auth makes of the same server."""

import subprocess
import sys

import pytest
from tests.doubles import cloudwatch
from tests.doubles import otlp as double
from tests.doubles.gce import Gce
from tests.doubles.otlp import OtlpDouble
from tests.sinks.otlp.conftest import ONE

from chipwatch.contract.errors import Refused, Retryable
from chipwatch_sinks.otlp import OtlpSink, google_machine

AT = "/computeMetadata/v1"
TOKEN = f"GET {AT}/instance/service-accounts/default/token?scopes=https://www.googleapis.com/auth/cloud-platform"


@pytest.fixture
def gce():
    with Gce() as made:
        yield made


@pytest.fixture
def env(gce, tmp_path):
    """An instance of Google Cloud on which nobody has logged in."""
    return {"GCE_METADATA_HOST": gce.host, "CLOUDSDK_CONFIG": str(tmp_path)}


@pytest.fixture
def machine(env):
    return google_machine.machine_token(env)


def test_one_token_is_used_until_shortly_before_its_end(machine, gce):
    assert [machine.headers("") for _ in range(3)] == [{"authorization": "Bearer ya29.1"}] * 3
    assert gce.requests == [f"GET {AT}/project/project-id", TOKEN]
    assert machine.project == "ml-research-417"
    machine.expire()
    gce.token = {"expires_in": google_machine.MARGIN}  # so it is replaced at once
    assert [machine.headers("")["authorization"] for _ in range(2)] == ["Bearer ya29.2", "Bearer ya29.3"]


def test_google_auth_asks_for_the_same_token_and_project(machine, env, gce):
    machine.headers("")
    ours, gce.requests = gce.requests, []
    program = """
import google.auth
from google.auth.transport.requests import Request
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(Request())
print(project, credentials.token)
"""
    env["GCE_METADATA_IP"] = gce.host
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [machine.project, "ya29.2"]
    theirs = [request.replace("%3A", ":").replace("%2F", "/") for request in gce.requests]
    assert set(ours) <= set(theirs)


@pytest.mark.parametrize(
    "more",
    [
        {"GOOGLE_APPLICATION_CREDENTIALS": "/a/file"},
        {"GOOGLE_CLOUD_QUOTA_PROJECT": "who-pays"},
        {"GCE_METADATA_MTLS_MODE": "strict"},
        {"GOOGLE_API_CERTIFICATE_CONFIG": "/a/file"},
        {"CLOUDSDK_CONTEXT_AWARE_USE_CLIENT_CERTIFICATE": "true"},
        {"NO_GCE_CHECK": "true"},
        {"GCE_METADATA_HOST": "example.org"},
        {"GCE_METADATA_HOST": "127.0.0.1:1"},
    ],
    ids=lambda more: "".join(f"{name}={value}" for name, value in more.items()),
)
def test_google_auth_decides_where_something_else_is_configured(env, more):
    assert google_machine.machine_token(env | more) is None


def test_a_machine_without_an_account_gets_instructions(machine, gce):
    gce.token = None
    with pytest.raises(Refused, match=r"service-accounts/default/token answers 404; attach a service account"):
        machine.headers("")


@pytest.mark.parametrize("trouble", ["reset", 429, 500, 503])
def test_a_server_in_trouble_is_asked_again(machine, gce, trouble):
    gce.trouble = trouble
    with pytest.raises(Retryable, match="Google credentials: http://127"):
        machine.headers("")
    gce.trouble = ""
    assert machine.headers("") == {"authorization": "Bearer ya29.1"}


@pytest.mark.parametrize(
    "token",
    [b"", b"<html>", b"[]", b"{}", {"expires_in": None}, {"expires_in": "soon"}, {"access_token": "a\r\nb", "expires_in": 9},
     {"access_token": "", "expires_in": 9}],
)  # fmt: skip
def test_an_answer_without_a_token_is_neither_sent_nor_printed(machine, gce, token):
    gce.token = token
    with pytest.raises(Retryable, match=r"gives no token$"):
        machine.headers("")


def test_the_sink_sends_with_this_token_and_a_new_one_after_a_401(env, gce, monkeypatch):
    cloudwatch.isolate(monkeypatch)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_GCE_CHECK", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")  # a token never goes through a proxy
    with OtlpDouble() as receiver:
        place = {"OTEL_RESOURCE_ATTRIBUTES": "location=us-central1"}
        sink = OtlpSink(OtlpSink.Config(endpoint_url=receiver.url, flavour="google"), place)
        sink.open()
        assert sink.write(ONE) == []
        assert dict(receiver.points[0].resource)["gcp.project_id"] == "ml-research-417"
        receiver.will(double.status(401, "invalid token"))
        with pytest.raises(Retryable, match="new token"):
            sink.write(ONE)
        sink.write(ONE)
        assert [request.headers["authorization"][-1] for request in receiver.requests] == ["1", "1", "2"]
        receiver.will(double.status(401, ""), double.status(401, ""))
        with pytest.raises(Retryable):
            sink.write(ONE)
        with pytest.raises(Refused):
            sink.write(ONE)
        sink.close()
