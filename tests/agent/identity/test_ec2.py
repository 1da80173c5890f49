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


def test_one_document_has_every_word(ec2, imds):
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


def test_botocore_reads_the_same_region_from_the_same_service(ec2, imds):
    utils = pytest.importorskip("botocore.utils")
    imds.answers["/latest/meta-data/placement/availability-zone/"] = (200, {}, b"us-west-2b")
    theirs = utils.InstanceMetadataRegionFetcher(config={"ec2_metadata_service_endpoint": imds.url})
    assert theirs.retrieve_region() == ec2.ask(["region"]).words["region"].value == "us-west-2"


def test_a_service_that_is_silent_where_the_hardware_says_ec2_is_asked_again(ec2, imds):
    imds.hops = "reset"
    answer = ec2.ask(["region"])
    assert answer.words == {}
    assert answer.retry
    assert "hop" in answer.trouble
    imds.hops = ""
    assert ec2.ask(["region"]).words["region"].value == "us-west-2"


def test_a_service_that_is_silent_where_nothing_says_ec2_is_not_there(stranger, imds):
    imds.hops = "reset"
    assert not stranger.is_here()
    assert not stranger.ask(["region"]).retry


def test_a_service_that_gives_a_token_is_there_whatever_the_hardware_says(stranger, imds):
    imds.answers[DOCUMENT] = (500, {}, b"")
    assert stranger.ask(["region"]).retry
    del imds.answers[DOCUMENT]
    assert stranger.ask(["region"]).words["region"].value == "us-west-2"


@pytest.mark.parametrize(
    "document",
    [b"", b"<html>log in</html>", b"[]", b'{"region": 7}', b'{"region": "\xff"}', b'{"x": ' + b"[" * 60_000],
    ids=["empty", "html", "list", "number", "not-utf-8", "endless"],
)
def test_a_document_that_is_none_is_asked_for_again(ec2, imds, document):
    imds.answers[DOCUMENT] = (200, {}, document)
    answer = ec2.ask(["region"])
    assert answer == ({}, f"{imds.url}{DOCUMENT} is not an identity document", True)


def test_a_word_that_the_document_lacks_is_not_made_up(ec2, imds):
    imds.document = {"instanceId": "i-1234567890abcdef0", "region": None, "accountId": ""}
    assert set(ec2.ask(["region"]).words) == {"instance_id"}


def test_switched_off_here_it_will_never_know(imds, nitro):
    answer = Ec2({ENDPOINT: imds.url, DISABLED: "true"}, Hardware(nitro, {})).ask(["region"])
    assert answer == ({}, "AWS_EC2_METADATA_DISABLED is set", False)
    assert imds.requests == []


def test_a_fargate_task_does_not_ask(imds, nitro):
    env = {ENDPOINT: imds.url, "AWS_EXECUTION_ENV": "AWS_ECS_FARGATE"}
    ec2 = Ec2(env, Hardware(nitro, env))
    assert not ec2.remote
    assert ec2.ask(["region"]) == ({}, "a Fargate task has no instance of its own", False)
    assert imds.requests == []


def test_more_fields_than_we_know_do_not_matter(ec2, imds):
    imds.document = json.dumps(imds.document | {"new": {"deep": [1, None]}})
    assert ec2.ask(["region"]).words["region"].value == "us-west-2"
