import re

import pytest

from chipwatch.config.identity.dmi import DmiTables
from chipwatch.config.identity.platforms import DISABLED, DOCUMENT, ENDPOINT, MODE, Ec2, Imds
from chipwatch.net.metadata_service import NoMetadata, NoService

COMMAND = "aws ec2 modify-instance-metadata-options --instance-id i-1234567890abcdef0"


@pytest.fixture
def ec2(imds, nitro):
    return Ec2({ENDPOINT: imds.url}, DmiTables(nitro, {}))


@pytest.fixture
def stranger(imds, elsewhere):
    return Ec2({ENDPOINT: imds.url}, DmiTables(elsewhere, {}))


def test_the_document_has_every_value(ec2, imds):
    answer = ec2.ask(ec2.words)
    assert {word: found.value for word, found in answer.words.items()} == {
        "instance_id": "i-1234567890abcdef0",
        "instance_type": "trn1.32xlarge",
        "ami_id": "ami-5fb8c835",
        "region": "us-west-2",
        "availability_zone": "us-west-2b",
        "account_id": "123456789012",
    }
    assert set(answer.words) == set(ec2.words)
    assert {found.origin for found in answer.words.values()} == {f"{imds.url}{DOCUMENT}"}
    assert (answer.trouble, answer.retry) == ("", False)
    assert len(imds.requests) == 2


def test_botocore_reads_the_same_region(ec2, imds):
    utils = pytest.importorskip("botocore.utils")
    imds.answers["/latest/meta-data/placement/availability-zone/"] = (200, {}, b"us-west-2b")
    theirs = utils.InstanceMetadataRegionFetcher(config={"ec2_metadata_service_endpoint": imds.url})
    assert theirs.retrieve_region() == ec2.ask(["region"]).words["region"].value == "us-west-2"


def test_a_silent_service_on_ec2_hardware_is_retried(ec2, imds):
    imds.hops = "reset"
    answer = ec2.ask(["region"])
    assert answer.words == {}
    assert answer.retry
    assert "hop" in answer.trouble
    imds.hops = ""
    assert ec2.ask(["region"]).words["region"].value == "us-west-2"


def test_a_silent_service_on_other_hardware_is_not_retried(stranger, imds):
    imds.hops = "reset"
    assert not stranger.is_here()
    assert not stranger.ask(["region"]).retry


def test_a_service_that_returns_a_token_is_retried_on_any_hardware(stranger, imds):
    imds.answers[DOCUMENT] = (500, {}, b"")
    assert not stranger.is_here()
    assert stranger.ask(["region"]).retry
    assert stranger.is_here()
    del imds.answers[DOCUMENT]
    assert stranger.ask(["region"]).words["region"].value == "us-west-2"


@pytest.mark.parametrize(
    "document",
    [b"", b"<html>log in</html>", b"[]", b'{"region": 7}', b'{"region": "\xff"}', b'{"x": ' + b"[" * 60_000],
    ids=["empty", "html", "list", "number", "not-utf-8", "endless"],
)
def test_an_invalid_document_is_requested_again(ec2, imds, document):
    imds.answers[DOCUMENT] = (200, {}, document)
    answer = ec2.ask(["region"])
    assert answer == ({}, f"{imds.url}{DOCUMENT} is not an identity document", True)


def test_a_value_that_the_document_lacks_is_absent(ec2, imds):
    imds.document = {"instanceId": "i-1234567890abcdef0", "region": None, "accountId": ""}
    answer = ec2.ask(["instance_id", "region"])
    assert set(answer.words) == {"instance_id"}
    assert (answer.trouble, answer.retry) == (f"{imds.url}{DOCUMENT} lacks region", False)


def test_a_fargate_task_makes_no_request(imds, nitro):
    env = {ENDPOINT: imds.url, "AWS_EXECUTION_ENV": "AWS_ECS_FARGATE"}
    ec2 = Ec2(env, DmiTables(nitro, env))
    assert not ec2.remote
    assert ec2.ask(["region"]) == ({}, "a Fargate task does not own an instance", False)
    assert imds.requests == []


# -- the client -------------------------------------------------------------------------------------------------


@pytest.fixture
def session(imds, nitro):
    return Imds({ENDPOINT: imds.url}, DmiTables(nitro, {}))


@pytest.fixture
def other_session(imds, elsewhere):
    """A session on a machine that is not detected as EC2."""
    return Imds({ENDPOINT: imds.url}, DmiTables(elsewhere, {}))


def test_one_token_serves_many_requests(session, imds):
    assert b"i-1234567890abcdef0" in session.get(DOCUMENT)
    assert session.get("/latest/meta-data/services/domain") == b"amazonaws.com"
    assert imds.requests == ["PUT /latest/api/token", f"GET {DOCUMENT}", "GET /latest/meta-data/services/domain"]
    assert session.token


def test_an_old_token_is_renewed_once(session, imds):
    session.get(DOCUMENT)
    imds.forget()
    assert session.get(DOCUMENT)
    assert [request.split()[0] for request in imds.requests] == ["PUT", "GET", "GET", "PUT", "GET"]


def test_a_service_that_refuses_every_token_is_asked_twice(session, imds):
    imds.answers[DOCUMENT] = (401, {}, b"")
    with pytest.raises(NoMetadata, match="answers 401"):
        session.get(DOCUMENT)
    assert len(imds.requests) == 4


@pytest.mark.parametrize("lost", ["hang", "reset"])
def test_the_message_about_the_hop_limit_has_the_command_to_raise_it(session, imds, lost):
    imds.hops = lost
    with pytest.raises(NoMetadata) as silent:
        session.get(DOCUMENT)
    assert f"`{COMMAND} --http-put-response-hop-limit 2`" in str(silent.value)
    assert "container" in str(silent.value)
    assert not session.token
    assert imds.requests == ["PUT /latest/api/token"]  # no second try without a token


@pytest.mark.parametrize("lost", ["hang", "reset"])
def test_the_hop_limit_is_not_mentioned_outside_ec2(other_session, imds, lost):
    imds.hops = lost
    with pytest.raises(NoMetadata, match=r"http://127.0.0.1:\d+ (does not answer|cannot be reached: [\w ]+)$"):
        other_session.get(DOCUMENT)


def test_the_message_about_a_disabled_service_has_the_command_to_enable_it(session, imds):
    imds.enabled = False
    with pytest.raises(NoMetadata, match=re.escape(f"`{COMMAND} --http-endpoint enabled`")):
        session.get(DOCUMENT)


@pytest.mark.parametrize(
    ("status", "body"), [(404, b""), (405, b""), (200, b""), (200, b"<html>\n log in"), (200, b"x" * 1025), (302, b"x")]
)
def test_an_invalid_token_is_refused(session, imds, status, body):
    imds.answers["/latest/api/token"] = (status, {}, body)
    with pytest.raises(NoMetadata, match=rf"gives no token \({status}\)"):
        session.get(DOCUMENT)
    assert not session.token


def test_an_error_status_raises_no_answer(session, imds):
    imds.answers[DOCUMENT] = (503, {}, b"busy")
    with pytest.raises(NoMetadata, match=f"{imds.url}{DOCUMENT} answers 503"):
        session.get(DOCUMENT)
    assert session.token


def test_messages_do_not_contain_the_token(session, imds):
    session.get(DOCUMENT)
    imds.answers[DOCUMENT] = (500, {}, imds.tokens()[0].encode())
    with pytest.raises(NoMetadata) as silent:
        session.get(DOCUMENT)
    assert imds.tokens()[0] not in str(silent.value)


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, "http://169.254.169.254"),
        ({MODE: "IPv6"}, "http://[fd00:ec2::254]"),
        ({MODE: "ipv4"}, "http://169.254.169.254"),
        ({MODE: "IPv6", ENDPOINT: "http://127.0.0.1:1338/"}, "http://127.0.0.1:1338"),
    ],
)
def test_the_address_is_that_of_the_sdks(env, url, nitro):
    assert Imds(env, DmiTables(nitro, {})).url == url


@pytest.mark.parametrize("word", ["true", "TRUE"])
def test_the_environment_can_disable_the_service(word, nitro):
    with pytest.raises(NoService, match="AWS_EC2_METADATA_DISABLED is set"):
        Imds({DISABLED: word}, DmiTables(nitro, {}))
    Imds({DISABLED: "false"}, DmiTables(nitro, {}))


def test_a_remote_address_is_refused(nitro):
    with pytest.raises(NoService, match=f"{ENDPOINT}: expected http"):
        Imds({ENDPOINT: "http://imds.example"}, DmiTables(nitro, {}))
