import botocore.session
import pytest
from botocore import exceptions as failures
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net.aws_login import find, reading_credentials
from chipwatch.net.aws_signer import Login
from chipwatch_sinks.cloudwatch import CloudwatchSink
from chipwatch_sinks.cloudwatch.client import endpoint_of

PARTITIONS = botocore.session.Session().get_data("partitions")["partitions"]
REGIONS = [region for partition in PARTITIONS for region in partition["regions"] if not region.endswith("-global")]
ONE_OF_EACH = ["us-east-1", "eu-west-1", "cn-north-1", "us-gov-west-1", "eusc-de-east-1", "us-iso-east-1"]
FLAGS = [(False, False), (True, False), (False, True), (True, True)]


def asked(session, service, operation, region, flags):
    """Return where a session would send to, and for what it would sign; or how it refuses."""
    client = session.create_client(
        service,
        region,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(use_fips_endpoint=flags[0], use_dualstack_endpoint=flags[1], parameter_validation=False),
    )
    seen = []

    def catch(params, context, request_signer, **_):
        signing = context.get("signing", {})
        seen.append((params["url"], signing.get("region", request_signer.region_name), request_signer.signing_name))
        return AWSResponse(None, 200, {}, None), {}

    client.meta.events.register("before-call", catch)
    try:
        getattr(client, operation)()
    except Exception as refusal:  # noqa: BLE001  # of one kind in both
        seen.append(str(refusal))
    finally:
        client.close()
    return seen


@pytest.fixture(scope="module")
def session():
    return botocore.session.Session()


def found(region, flags):
    """Return the address that the sink finds, or None if it refuses."""
    config = CloudwatchSink.Config(use_fips=flags[0], use_dualstack=flags[1])
    try:
        return endpoint_of(config, find(Login(region, endpoint_url="any")))
    except Refused:
        return None


@pytest.mark.parametrize(
    ("region", "flags"),
    [
        *((region, FLAGS[0]) for region in (*REGIONS, "us-east-99", "xx-nowhere-1")),
        *(
            (region, flags) for flags in FLAGS[1:] for region in ONE_OF_EACH
        ),  # all regions of a partition have its kinds
    ],
)
def test_the_address_of_every_region_is_that_of_botocore(session, region, flags):
    theirs = asked(session, "cloudwatch", "put_metric_data", region, flags)[0]
    ours = found(region, flags)
    if isinstance(theirs, str):
        assert ours is None, theirs
    else:
        assert (f"{ours}/", region, "monitoring") == (theirs[0].rstrip("/") + "/", *theirs[1:])


@pytest.mark.parametrize(
    ("env", "files", "url"),
    [
        ({"AWS_ENDPOINT_URL_CLOUDWATCH": "https://a", "AWS_ENDPOINT_URL": "https://b"}, "", "https://a"),
        ({"AWS_ENDPOINT_URL": "https://b"}, "", "https://b"),
        ({"AWS_ENDPOINT_URL": "https://b", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "", None),
        ({}, "[default]\nendpoint_url = https://c\n", "https://c"),
        ({}, "[default]\nservices = mine\n[services mine]\ncloudwatch =\n  endpoint_url = https://d\n", "https://d"),
        ({"AWS_PROFILE": "team"}, "[default]\nendpoint_url = https://c\n[profile team]\n", None),
        ({}, "", None),
    ],
)
def test_an_address_of_the_environment_or_the_profile_is_used_as_botocore_does(monkeypatch, tmp_path, env, files, url):
    (tmp_path / "config").write_text(files)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    ordinary = "https://monitoring.us-east-1.amazonaws.com"
    assert found("us-east-1", FLAGS[0]) == (url or ordinary)
    theirs = asked(botocore.session.Session(), "cloudwatch", "put_metric_data", "us-east-1", FLAGS[0])[0]
    assert theirs[0].rstrip("/") == (url or ordinary)


@pytest.mark.parametrize(
    ("who", "says"), [("", "AWS credentials: "), ("shared-file", "AWS credentials of shared-file: ")]
)
def test_trouble_with_credentials_says_whose_they_are(who, says):
    with pytest.raises(Retryable) as caught, reading_credentials(who):
        raise ValueError("secret-output")
    assert str(caught.value).startswith(says)
    assert "secret-output" not in str(caught.value)


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (OSError(2, "No such file or directory", "/bin/none"), Refused),
        (OSError(5, "Input/output error"), Retryable),
        (failures.EndpointConnectionError(endpoint_url="http://host"), Retryable),
        (failures.ProfileNotFound(profile="none"), Refused),
        (failures.MetadataRetrievalError(error_msg="secret-output"), Retryable),
    ],
)
def test_who_is_to_blame_for_credentials(problem, error):
    with pytest.raises(error) as caught, reading_credentials():
        raise problem
    assert type(caught.value) is error
    assert "secret-output" not in str(caught.value)
