"""Answers that Cloud Monitoring never gives, and invalid credentials: tried again or refused, never a bug."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
import pytest
from google.rpc import status_pb2
from tests.doubles.monitoring.answers import Answer
from tests.doubles.raw import BODIES, WRECKS, RawServer, http
from tests.sinks.google.conftest import HEAT, windowed

from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.errors import Refused, Retryable

DETAILS = "grpc-status-details-bin"


class Status(NamedTuple):
    code: Any
    details: str
    trailing_metadata: tuple


grpc.Status.register(Status)


class Garbled(Answer):
    """UNAVAILABLE, with details that a test chose."""

    def status(self):
        return Status(self.code, self.message, ((DETAILS, self.details[0]),))


def packed(code, message, url="type.googleapis.com/google.monitoring.v3.CreateTimeSeriesSummary", value=b"\xff\xff"):
    status = status_pb2.Status(code=code, message=message)
    status.details.add(type_url=url, value=value)
    return status.SerializeToString()


@pytest.mark.parametrize(
    "details",
    [
        b"\xff\xff\xff",
        packed(3, "x"),
        packed(14, "another message"),
        packed(14, "x"),
        packed(14, "x", "type.googleapis.com/google.rpc.RetryInfo"),
        packed(14, "x", "no type"),
    ],
    ids=["no message", "another code", "another text", "no summary", "no delay", "no type"],
)
def test_details_that_cannot_be_read_cost_nothing(double, make_sink, details):
    sink, point = make_sink(), windowed(HEAT, [61.0], Dimensions(gpu="0"))
    double.answer_next(Garbled(grpc.StatusCode.UNAVAILABLE, "x", (details,)))
    with pytest.raises(Retryable):
        sink.write([point])
    assert sink.write([point]) == []


def test_points_whose_answer_cannot_be_read_may_be_stored_and_then_count_as_sent(double, make_sink):
    sink, point = make_sink(), windowed(HEAT, [61.0], Dimensions(gpu="0"))
    double.answer_next(Garbled(grpc.StatusCode.UNAVAILABLE, "x", (b"\xff\xff\xff",)), "x", stored=True)
    with pytest.raises(Retryable, match="the answer cannot be read"):
        sink.write([point])
    assert sink.write([point]) == []
    assert len(double.points()) == 1


@pytest.mark.parametrize(
    "answer", [*WRECKS.values(), *(http(status, BODIES["page"]) for status in (200, 302, 407, 503))]
)
def test_a_server_that_does_not_speak_grpc_is_tried_again(make_sink, answer):
    with RawServer([answer]) as server:
        sink = make_sink(endpoint=f"127.0.0.1:{server.port}", timeout=1.0)
        with pytest.raises((Retryable, Refused)):
            sink.write([windowed(HEAT, [61.0], Dimensions(gpu="0"))])


@pytest.mark.parametrize("name", ["page", "list", "lists", "type"])
def test_an_invalid_token_of_the_metadata_server_costs_nothing(make_sink, monkeypatch, tmp_path, name):
    flavour = http(200, BODIES[name], "Metadata-Flavor: Google", "Content-Type: application/json")
    monkeypatch.setattr("google.auth._exponential_backoff.time", SimpleNamespace(sleep=lambda _: None))
    with RawServer([flavour]) as server:
        for variable in ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"):
            monkeypatch.setenv(variable, f"127.0.0.1:{server.port}")
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        with pytest.raises((Retryable, Refused)):
            make_sink(insecure=False, timeout=2.0).write([windowed(HEAT, [61.0], Dimensions(gpu="0"))])
