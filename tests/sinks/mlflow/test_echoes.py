"""Servers and proxies that repeat the request in their answers: no message of ours has its secrets."""

import base64
import json

import pytest
from tests.doubles.raw import RawServer, http
from tests.sinks.mlflow.conftest import LOAD

from chipwatch.contract.errors import BadBatch, Refused, Retryable

STATUSES = (301, 400, 401, 404, 413, 503)
TOKEN = {"MLFLOW_TRACKING_TOKEN": "s3cr3t-t0ken-of-ours"}
USER = {"MLFLOW_TRACKING_USERNAME": "ada", "MLFLOW_TRACKING_PASSWORD": "hunter-two"}


def echoing(status, server):
    """Return an answer that repeats the head of its request, also the bare values, in each field."""

    def answer(_):
        head = server.requests[-1].decode()
        value = next(line.partition(": ")[2] for line in head.splitlines() if line.startswith("Authorization"))
        word = value.partition(" ")[2]
        words = [head, word, value]
        if value.startswith("Basic"):
            words.append(base64.b64decode(word).decode())
        return http(status, json.dumps({"error_code": word, "message": " / ".join([word, *words])}).encode())

    return answer


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("env", [TOKEN, USER])
@pytest.mark.parametrize("call", ["begun", "prepare", "write"])
def test_no_message_repeats_what_the_request_kept_secret(make_sink, status, env, call):
    good = http(200, b'{"run": {"info": {"run_id": "r1"}}}')
    with RawServer([http(200)]) as server:
        answers = [echoing(status, server)] * 9
        server._answers = iter([good, *answers] if call == "write" else answers)
        sink = make_sink(tracking_uri=server.url, env=env, run="r1")
        points = [LOAD.point(1_790_000_000 * 10**9, 1.0)]
        if call == "begun":
            with pytest.raises((Retryable, Refused, BadBatch)) as caught:
                sink._api.begun("ada", 1)
        elif call == "prepare":
            with pytest.raises((Retryable, Refused, BadBatch)) as caught:
                sink.prepare(points)
        else:
            sink.prepare(points)
            with pytest.raises((Retryable, Refused, BadBatch)) as caught:
                sink.write(points)
    said = str(caught.value)
    assert str(status) in said
    for secret in (*env.values(), base64.b64encode(b"ada:hunter-two").decode()):
        assert secret == "ada" or secret not in said
