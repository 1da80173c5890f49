"""The double refuses what the service refuses: else the tests that rest on it prove little."""

import time

import botocore.config
import botocore.session
import pytest
from botocore.exceptions import ClientError
from tests.doubles.cloudwatch import KEY, SECRET, CloudwatchDouble, isolate


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch):
    isolate(monkeypatch)


@pytest.fixture
def double():
    with CloudwatchDouble() as running:
        yield running


@pytest.fixture
def client(double):
    """botocore's own client, untouched."""
    made = botocore.session.Session().create_client(
        "cloudwatch",
        "eu-west-1",
        endpoint_url=double.url,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=1, parameter_validation=False),
    )
    yield made
    made.close()


def datum(**change):
    return {"MetricName": "m", "Value": 1.0, "Timestamp": int(time.time())} | change


def refusal(client, *datums):
    """Return the code and message of the answer."""
    with pytest.raises(ClientError) as caught:
        client.put_metric_data(Namespace="N", MetricData=datums)
    error = caught.value.response
    return error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"], error["Error"]["Message"]


def test_it_takes_what_botocore_sends_and_stores_it(double, client):
    dims = [{"Name": "b", "Value": "2"}, {"Name": "a", "Value": "1"}]
    client.put_metric_data(
        Namespace="N",
        MetricData=[
            datum(Timestamp=int(time.time()), Dimensions=dims, Unit="Percent", StorageResolution=1),
            {"MetricName": "v", "Timestamp": int(time.time()), "Values": [1.0, 2.0], "Counts": [3.0, 4.0]},
        ],
    )

    assert [(d.name, d.dims, d.value, d.values, d.counts, d.unit, d.resolution) for d in double.datums] == [
        ("m", (("b", "2"), ("a", "1")), 1.0, (), (), "Percent", 1),
        ("v", (), None, (1.0, 2.0), (3.0, 4.0), "None", 60),
    ]
    assert double.requests[0].end == 200


NOW = int(time.time())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"MetricName": "m" * 256}, "MetricName"),
        ({"MetricName": " "}, "MetricName"),
        ({"Dimensions": [{"Name": f"d{n}", "Value": "v"} for n in range(31)]}, "Dimensions"),
        ({"Dimensions": [{"Name": ":k", "Value": "v"}]}, "Dimensions.member.1.Name"),
        *(({"Dimensions": [{"Name": "k", "Value": bad}]}, "Dimensions.member.1.Value") for bad in ("v" * 1025, "é", "a\tb")),
        ({"Dimensions": [{"Name": "k", "Value": "v"}] * 2}, "Dimensions"),
        *(({"Value": bad}, "Value") for bad in (2.0**361, True)),
        ({"Values": [1.0]}, "Value"),
        *(({"Value": ..., "Values": bad}, "Values") for bad in ([float(n) for n in range(151)], [], [1.0, 1.0])),
        ({"Value": ..., "Values": [1.0, 2.0], "Counts": [1.0]}, "Values"),
        ({"Value": ..., "Values": [1.0], "Counts": [0.0]}, "Values"),
        ({"Unit": "Watts"}, "Unit"),
        ({"StorageResolution": 7}, "StorageResolution"),
        ({"Timestamp": NOW - 15 * 86_400}, "Timestamp"),
        ({"Timestamp": NOW + 3 * 3_600}, "Timestamp"),
    ],
)  # fmt: skip
def test_a_datum_over_a_limit_is_refused_by_its_number_and_nothing_of_the_request_is_stored(
    double, client, change, told
):
    """A field that is `...` is left out."""
    wrong = {name: value for name, value in datum(**change).items() if value is not ...}
    status, code, message = refusal(client, datum(), wrong, datum(), wrong)

    assert (status, code) == (400, "InvalidParameterValue")
    assert [f"MetricData.member.{n}.{told if n % 2 == 0 else ''}" in message for n in (1, 2, 3, 4)] == [False, True] * 2
    assert double.datums == []


def test_a_request_that_is_not_signed_is_refused(double):
    assert double.judge("/", {}, b"").code == "MissingAuthenticationToken"
