"""Requests to the clouds: signatures as AWS checks them, tokens as Google gives them."""

import json
import sys
from urllib.parse import urlsplit

import pytest
from tests.doubles import cloudwatch
from tests.doubles import otlp as double
from tests.doubles.otlp import Reply
from tests.doubles.raw import RawServer, http
from tests.sinks.otlp.conftest import ONE

from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch_sinks.otlp import CloudwatchOtlpSink, OtlpSink
from chipwatch_sinks.otlp.answers import JSON


def fault_of(request, region="eu-west-1"):
    """Return why AWS would not take the signature of a request, or None."""
    with cloudwatch.CloudwatchDouble() as aws:
        parts = request.path
        fault = aws._judge_signature(parts, request.headers, request.raw, "monitoring")
    assert f"/{region}/monitoring/aws4_request" in request.headers["authorization"]
    return fault


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_cloudwatch_gets_a_signature_that_it_takes(receiver, opened, compression):
    sink = opened(receiver.url, flavour="cloudwatch", region="eu-west-1", compression=compression)
    assert sink.write(ONE) == []
    assert fault_of(receiver.requests[0]) is None
    assert receiver.requests[0].path == "/v1/metrics"


def test_the_address_of_cloudwatch_has_the_domain_of_the_regions_partition(opened):
    sink = opened(None, flavour="cloudwatch", region="cn-north-1")
    assert sink.destination()["endpoint"] == "https://monitoring.cn-north-1.amazonaws.com.cn/v1/metrics"


@pytest.mark.parametrize(
    ("address", "region"),
    [
        ("https://monitoring.eu-west-1.amazonaws.com", "eu-west-1"),
        ("https://monitoring.eu-west-1.amazonaws.com:443/v1/metrics", "eu-west-1"),
        ("https://monitoring.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("https://monitoring-fips.us-gov-west-1.amazonaws.com/", "us-gov-west-1"),
        ("https://monitoring.eu-west-1.api.aws", "eu-west-1"),
        ("https://vpce-0a1b.monitoring.eu-west-1.vpce.amazonaws.com", "eu-west-1"),
        ("https://monitoring.example.org", None),
        ("https://monitoring.eu-west-1.amazonaws.com.example.org", None),
        ("http://collector:4318/monitoring.eu-west-1.amazonaws.com", None),
    ],
)
def test_an_address_of_cloudwatch_is_known_with_its_region(address, region):
    config = OtlpSink.Config(endpoint_url=address, region="us-east-1")
    assert (config.flavour, config.region) == (("cloudwatch", region) if region else ("plain", "us-east-1"))
    assert OtlpSink(config, {}).limits.max_points == (1000 if region else 4750)
    assert OtlpSink.Config(flavour="google", endpoint_url=address).flavour == "google"


def test_one_word_has_the_address_the_signature_and_the_limits_of_cloudwatch(receiver, monkeypatch):
    cloudwatch.isolate(monkeypatch)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    sink = CloudwatchOtlpSink(CloudwatchOtlpSink.Config(), {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
    sink.open()
    assert sink.destination()["endpoint"] == "https://monitoring.eu-west-1.amazonaws.com/v1/metrics"
    assert (sink.limits.max_points, sink.limits.max_bytes, sink.limits.max_series) == (1000, 900_000, 5000)
    assert sink.find(()) == 'CloudWatch > Query Studio: {"@resource.service.name"="chipwatch"}'
    sink.close()
    sink = CloudwatchOtlpSink(CloudwatchOtlpSink.Config(endpoint_url=receiver.url), {})
    sink.open()
    sink.write(ONE)
    assert fault_of(receiver.requests[0]) is None
    sink.close()


def test_cloudwatch_takes_150_labels_and_the_resources_count():
    own, machine = ONE[0].metric, Dimensions({f"k{number}": "v" for number in range(147)})  # and three of the service
    sink = CloudwatchOtlpSink(CloudwatchOtlpSink.Config(), {})
    assert sink.refuses(own, machine) is None
    assert sink.refuses(own, machine | {"one": "more"}) == "151 labels, and the receiver takes 150"
    given = CloudwatchOtlpSink.Config(resource_attributes={"team": "ml"})
    assert CloudwatchOtlpSink(given, {}).refuses(own, machine) == "151 labels, and the receiver takes 150"
    assert OtlpSink(OtlpSink.Config(), {}).refuses(own, machine | {"one": "more"}) is None


def test_cloudwatch_takes_an_api_key_without_botocores_credentials(receiver, opened, tmp_path):
    key = tmp_path / "key"
    key.write_text("ABSK-key")
    sink = opened(receiver.url, flavour="cloudwatch", bearer_token_file=key)
    sink.write(ONE)
    assert receiver.requests[0].headers["authorization"] == "Bearer ABSK-key"


@pytest.mark.parametrize(("flavour", "module"), [("cloudwatch", "botocore"), ("google", "google.auth")])
def test_a_library_that_is_missing_is_named_with_its_extra(opened, monkeypatch, flavour, module):
    for name in [
        name
        for name in sys.modules
        if name.startswith(("chipwatch_sinks.common.", "chipwatch_sinks.otlp.google", module))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Refused, match=f"{module}.*the extra '{flavour}'"):
        opened(None, flavour=flavour, region="eu-west-1")


def test_no_credentials_are_refused_at_the_start(receiver, opened, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(Refused, match="no AWS credentials"):
        opened(receiver.url, flavour="cloudwatch", region="eu-west-1")
    with pytest.raises(Refused, match="no AWS region"):
        opened(receiver.url, flavour="cloudwatch")


EXPIRED = Reply(403, b'{"__type":"ExpiredTokenException","message":"The security token is expired"}', kind=JSON)


def test_expired_credentials_are_read_again_once(receiver, opened, monkeypatch):
    sink = opened(receiver.url, flavour="cloudwatch", region="eu-west-1")
    receiver.will(EXPIRED)
    with pytest.raises(Retryable, match="read again"):
        sink.write(ONE)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "new-token")
    sink.write(ONE)
    assert receiver.requests[-1].headers["x-amz-security-token"] == "new-token"
    receiver.will(EXPIRED, EXPIRED)
    with pytest.raises(Retryable):
        sink.write(ONE)
    with pytest.raises(Refused, match="no valid ones are found"):
        sink.write(ONE)


def test_cloudwatchs_answers_keep_their_meaning(receiver, opened):
    sink = opened(receiver.url, flavour="cloudwatch", region="eu-west-1")
    receiver.will(double.status(403, "not authorized"), double.status(400, "too many labels"))
    with pytest.raises(Refused, match="cloudwatch:PutMetricData"):
        sink.write(ONE)
    with pytest.raises(BadBatch, match="too many labels"):
        sink.write(ONE)


# -- Google ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(key_file):
    """A server of numbered tokens, and credentials that use it; the list has a request each."""
    asked = []

    def give(_):
        asked.append(len(asked) + 1)
        return http(200, json.dumps({"access_token": f"token-{asked[-1]}", "expires_in": 3600}).encode())

    with RawServer([give]) as server:
        key_file(f"{server.url}/token")
        yield asked


PLACE = {"OTEL_RESOURCE_ATTRIBUTES": "location=us-central1"}


def test_google_gets_a_token_the_project_and_the_quota_project(receiver, opened, tokens, monkeypatch):
    monkeypatch.setenv("GOOGLE_CLOUD_QUOTA_PROJECT", "who-pays")
    sink = opened(receiver.url, PLACE, flavour="google")
    for _ in range(3):
        assert sink.write(ONE) == []
    assert tokens == [1]
    headers = receiver.requests[0].headers
    assert headers["authorization"] == "Bearer token-1"
    assert headers["x-goog-user-project"] == "who-pays"
    resource = dict(receiver.points[0].resource)
    assert (resource["gcp.project_id"], resource["location"]) == ("some-project", "us-central1")
    assert resource["service.instance.id"]


def test_google_needs_a_location_and_a_project(receiver, opened, tokens):
    with pytest.raises(Refused, match="location"):
        opened(receiver.url, flavour="google").write(ONE)
    zone = [point._replace(dims=Dimensions({"@gcp_zone": "us-central1-a", **point.dims})) for point in ONE]
    opened(receiver.url, flavour="google").write(zone)
    assert dict(receiver.points[0].resource)["cloud.region"] == "us-central1"


def test_no_credentials_of_google(receiver, opened, monkeypatch, tmp_path):
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with pytest.raises(Refused, match="credentials"):
        opened(receiver.url, flavour="google")


# -- proxies ---------------------------------------------------------------------------------------------------------


def test_a_proxy_of_the_environment_is_used_and_spared(receiver, opened, monkeypatch):
    port = urlsplit(receiver.url).port
    monkeypatch.setenv("http_proxy", f"http://user:pa%3Ass@127.0.0.1:{port}")
    sink = opened("http://collector.example:4318")
    sink.write(ONE)
    request = receiver.requests[0]
    assert (request.path, request.headers["host"]) == (
        "http://collector.example:4318/v1/metrics",
        "collector.example:4318",
    )
    assert request.headers["proxy-authorization"] == "Basic dXNlcjpwYTpzcw=="
    opened(receiver.url).write(ONE)
    assert receiver.requests[1].path == "/v1/metrics"
