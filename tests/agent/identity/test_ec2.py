import json

import pytest

from agent.identity.dmi import Hardware
from agent.identity.ec2 import DISABLED, DOCUMENT, ENDPOINT, Ec2


@pytest.fixture
def ec2(imds, nitro):
    return Ec2({ENDPOINT: imds.url}, Hardware(nitro, {}))


@pytest.fixture
def stranger(imds, elsewhere):
    return Ec2({ENDPOINT: imds.url}, Hardware(elsewhere, {}))


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
    assert stranger.ask(["region"]).retry
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
    assert set(ec2.ask(["region"]).words) == {"instance_id"}


def test_a_disabled_service_is_not_retried(imds, nitro):
    answer = Ec2({ENDPOINT: imds.url, DISABLED: "true"}, Hardware(nitro, {})).ask(["region"])
    assert answer == ({}, "AWS_EC2_METADATA_DISABLED is set", False)
    assert imds.requests == []


def test_a_fargate_task_makes_no_request(imds, nitro):
    env = {ENDPOINT: imds.url, "AWS_EXECUTION_ENV": "AWS_ECS_FARGATE"}
    ec2 = Ec2(env, Hardware(nitro, env))
    assert not ec2.remote
    assert ec2.ask(["region"]) == ({}, "a Fargate task has no instance of its own", False)
    assert imds.requests == []


def test_unknown_fields_are_ignored(ec2, imds):
    imds.document = json.dumps(imds.document | {"new": {"deep": [1, None]}})
    assert ec2.ask(["region"]).words["region"].value == "us-west-2"
