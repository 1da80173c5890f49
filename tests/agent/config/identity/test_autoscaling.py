import logging
import re
import sys
from urllib.parse import parse_qsl

import pytest
from tests.doubles.cloudwatch import signature
from tests.doubles.raw import RawServer, http
from tests.doubles.web import WebDouble, give

from chipwatch.config.identity.autoscaling import TAG, AutoScaling, _address
from chipwatch.config.identity.dmi import DmiTables
from chipwatch.config.identity.platforms import DISABLED, ENDPOINT
from chipwatch.net import aws_login, aws_signer

find_in_a_process = aws_signer.ask

KEY, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session-token"
FOUND = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<DescribeTagsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
    "<requestId>7a62c49f</requestId><tagSet><item><resourceId>i-1234567890abcdef0</resourceId>"
    "<resourceType>instance</resourceType><key>aws:autoscaling:groupName</key><value>trainers &amp; co</value></item>"
    "</tagSet></DescribeTagsResponse>"
)
DENIED = (
    "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>You are not authorized to perform this "
    "operation. Encoded authorization failure message: abc</Message></Error></Errors></Response>"
)


class Ec2Api(WebDouble):
    """DescribeTags of EC2's API on loopback; checks the signature and keeps the requests."""

    def __init__(self):
        self.answer = (200, FOUND)
        self.asked = []
        super().__init__()

    def handle(self, http):
        raw = http.rfile.read(int(http.headers["Content-Length"]))
        self.asked.append((dict(parse_qsl(raw.decode())), dict(http.headers)))
        status, text = self.answer if is_signed(http.headers, raw) else (401, "<Code>AuthFailure</Code>")
        give(http, status, text.encode())


def is_signed(headers, raw):
    """Check the signature (AWS, "Create a signed AWS API request")."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/us-west-2/ec2/aws4_request, SignedHeaders=([\w;-]+), Signature=(\w+)",
        headers["Authorization"],
    )
    if not found or found[1] != KEY or headers["X-Amz-Security-Token"] != SESSION:
        return False
    day, names, given = found.groups()[1:]
    lower = {name.lower(): value for name, value in headers.items()}
    return signature("/", lower, raw, scope=(day, "us-west-2", "ec2"), names=names, secret=SECRET)[0] == given


@pytest.fixture
def api(monkeypatch, tmp_path):
    pytest.importorskip("botocore")
    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": SESSION,
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(aws_signer, "ask", aws_login.find)  # in this process, which is quicker
    with Ec2Api() as made:
        yield made


@pytest.fixture
def ask(imds, nitro):
    """Ask the source on a Nitro instance; `more` is added to the environment."""

    def ask(**more):
        env = {ENDPOINT: imds.url, **more}
        return AutoScaling(env, DmiTables(nitro, env)).ask(["autoscaling_group"])

    return ask


def value(answer):
    return answer.words["autoscaling_group"].value


def test_the_group_is_read_from_the_tags_in_the_metadata(ask, imds):
    imds.tags = {"Name": "node", TAG: "trainers"}
    answer = ask()
    assert answer.words["autoscaling_group"] == ("trainers", f"{imds.url}/latest/meta-data/tags/instance/{TAG}")
    assert len(imds.requests) == 2


def test_visible_tags_without_a_group_are_read_again_and_the_api_is_not_asked(ask, imds, api):
    imds.tags = {"Name": "node"}
    assert ask(AWS_ENDPOINT_URL_EC2=api.url) == ({}, f"the instance has no tag {TAG}", True)
    assert api.asked == []


def test_the_api_is_asked_if_the_metadata_shows_no_tags(ask, api):
    answer = ask(AWS_ENDPOINT_URL_EC2=api.url)
    assert answer.words["autoscaling_group"] == ("trainers & co", "EC2's DescribeTags")
    (asked, headers), *others = api.asked
    assert others == []
    assert asked == {
        "Action": "DescribeTags",
        "Version": "2016-11-15",
        "Filter.1.Name": "resource-id",
        "Filter.1.Value.1": "i-1234567890abcdef0",
        "Filter.2.Name": "key",
        "Filter.2.Value.1": TAG,
    }
    assert headers["X-Amz-Security-Token"] == SESSION


def test_botocore_is_not_loaded(ask, api, monkeypatch):
    monkeypatch.setattr(aws_signer, "ask", find_in_a_process)
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    assert value(ask(AWS_ENDPOINT_URL_EC2=api.url)) == "trainers & co"


def test_the_message_names_the_permission_that_the_role_lacks(ask, api):
    api.answer = (403, DENIED)
    answer = ask(AWS_ENDPOINT_URL_EC2=api.url)
    assert answer.words == {}
    assert answer.retry
    assert "EC2 refuses DescribeTags (UnauthorizedOperation): the role lacks ec2:DescribeTags" in answer.trouble
    assert "`aws ec2 modify-instance-metadata-options --instance-id i-1234567890abcdef0 --instance-metadata-tags" in (
        answer.trouble
    )


@pytest.mark.parametrize(
    ("answer", "told"), [((503, "<Code>RequestLimitExceeded</Code>"), "RequestLimitExceeded"), ((500, "oh"), "500")]
)
def test_a_failed_request_to_the_api_is_retried(ask, api, answer, told):
    api.answer = answer
    found = ask(AWS_ENDPOINT_URL_EC2=api.url)
    assert f"EC2 refuses DescribeTags ({told})" in found.trouble
    assert found.retry


def test_an_instance_without_a_group_has_a_message(ask, api):
    api.answer = (200, "<DescribeTagsResponse><tagSet/></DescribeTagsResponse>")
    assert ask(AWS_ENDPOINT_URL_EC2=api.url) == ({}, f"the instance has no tag {TAG}", True)


def test_an_unreachable_api_is_retried(ask, api):
    answer = ask(AWS_ENDPOINT_URL_EC2="http://127.0.0.1:1")
    assert answer.trouble.startswith("EC2 cannot be asked: 127.0.0.1:1: nothing listens there")
    assert answer.retry


@pytest.mark.parametrize("answer", [http(200, b"{}"), http(200, b'{"Expiration": "2000-01-01T00:00:00Z"}'), http(500)])
def test_credentials_that_are_malformed_or_expired_are_retried(ask, api, monkeypatch, answer):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    with RawServer([answer]) as container:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.url)
        monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
        found = ask(AWS_ENDPOINT_URL_EC2=api.url)
    assert found.retry
    assert re.match(r"EC2 cannot be asked: AWS credentials( of container-role)?: ", found.trouble)


def test_an_answer_of_the_api_that_is_too_large_is_retried(ask, api):
    api.answer = (200, "<item>" * 20_000)
    found = ask(AWS_ENDPOINT_URL_EC2=api.url)
    assert found.retry
    assert found.trouble.startswith("EC2 cannot be asked: the answer has more than 65536 bytes")


def test_missing_credentials_have_a_message(ask, api, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(DISABLED, "true")  # for the SDK alone
    assert "EC2 cannot be asked: no AWS credentials in the environment" in ask(AWS_ENDPOINT_URL_EC2=api.url).trouble
    assert api.asked == []


def test_without_botocore_the_message_says_what_to_install_or_to_enable(ask, monkeypatch):
    monkeypatch.setattr(aws_signer, "find_spec", lambda _: None)
    answer = ask()
    assert answer.retry
    assert "install chipwatch with the extra 'cloudwatch'" in answer.trouble
    assert "--instance-metadata-tags enabled" in answer.trouble


def test_behind_the_hop_limit_the_dmi_and_the_environment_suffice(ask, imds, api):
    imds.hops = "reset"
    assert value(ask(AWS_ENDPOINT_URL_EC2=api.url, AWS_REGION="us-west-2")) == "trainers & co"


def test_behind_the_hop_limit_without_a_region_the_api_is_not_asked(ask, imds, api):
    imds.hops = "reset"
    answer = ask(AWS_ENDPOINT_URL_EC2=api.url)
    assert answer.retry
    assert "--http-put-response-hop-limit 2" in answer.trouble
    assert api.asked == []


def test_outside_ec2_the_group_is_not_retried(imds, elsewhere):
    imds.enabled = False
    env = {ENDPOINT: imds.url, "AWS_REGION": "us-west-2"}
    assert not AutoScaling(env, DmiTables(elsewhere, env)).ask(["autoscaling_group"]).retry


def test_a_fargate_task_has_no_group(imds, nitro):
    env = {ENDPOINT: imds.url, "AWS_EXECUTION_ENV": "AWS_ECS_FARGATE"}
    source = AutoScaling(env, DmiTables(nitro, env))
    assert not source.remote
    assert source.ask(["autoscaling_group"]) == ({}, "a Fargate task does not own an instance", False)


@pytest.mark.parametrize(
    ("known", "env", "address"),
    [
        ({"region": "us-west-2", "domain": "amazonaws.com"}, {}, "https://ec2.us-west-2.amazonaws.com"),
        ({"region": "us-west-2"}, {}, "https://ec2.us-west-2.amazonaws.com"),
        ({"region": "cn-north-1"}, {}, "https://ec2.cn-north-1.amazonaws.com.cn"),
        ({"region": "eusc-de-east-1", "domain": "amazonaws.eu"}, {}, "https://ec2.eusc-de-east-1.amazonaws.eu"),
        ({"region": "r"}, {"AWS_ENDPOINT_URL": "http://a"}, "http://a"),
        ({"region": "r"}, {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_EC2": "http://b"}, "http://b"),
    ],
)
def test_the_address_of_the_api_is_that_of_the_region_unless_another_is_set(known, env, address):
    assert _address(known, env) == address


def test_no_credential_is_logged(ask, api, caplog):
    caplog.set_level(logging.DEBUG)
    assert value(ask(AWS_ENDPOINT_URL_EC2=api.url)) == "trainers & co"
    for secret in (SECRET, SESSION, "Signature="):
        assert secret not in caplog.text


def test_moto_answers_the_same_request(ask, api, imds):
    boto3, server = pytest.importorskip("boto3"), pytest.importorskip("moto.server")
    moto = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    try:
        url = "http://{}:{}".format(*moto.get_host_and_port())
        ec2 = boto3.client("ec2", region_name="us-west-2", endpoint_url=url)
        started = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)
        instance = started["Instances"][0]["InstanceId"]
        imds.document["instanceId"] = instance
        assert ask(AWS_ENDPOINT_URL=url).trouble == f"the instance has no tag {TAG}"
        ec2.create_tags(Resources=[instance], Tags=[{"Key": TAG, "Value": "<trainers>"}])
        assert value(ask(AWS_ENDPOINT_URL=url)) == "<trainers>"
    finally:
        moto.stop()
