import botocore.session
import pytest
from botocore import exceptions as failures
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from agent.errors import Refused, Retryable
from sinks.common.aws_session import _SmallLoader, reading_credentials

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
def sessions():
    small = botocore.session.Session()
    small.register_component("data_loader", _SmallLoader())
    return botocore.session.Session(), small


@pytest.mark.parametrize("region", [*REGIONS, "us-east-99", "xx-nowhere-1"])
def test_without_the_list_of_all_endpoints_every_region_is_found_as_botocore_finds_it(sessions, region):
    whole, small = (asked(session, "cloudwatch", "put_metric_data", region, FLAGS[0]) for session in sessions)

    assert small == whole
    assert f"monitoring.{region}." in small[0][0]


@pytest.mark.parametrize(
    "service", [("cloudwatch", "put_metric_data"), ("sts", "assume_role")], ids=["cloudwatch", "sts"]
)
@pytest.mark.parametrize("flags", FLAGS, ids=["plain", "fips", "dual-stack", "both"])
@pytest.mark.parametrize("region", ONE_OF_EACH)
def test_so_are_the_other_kinds_of_endpoint_and_those_for_roles(sessions, region, flags, service):
    whole, small = (asked(session, *service, region, flags) for session in sessions)

    assert small == whole


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
