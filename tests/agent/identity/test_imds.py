import re

import pytest

from agent.identity.dmi import Hardware
from agent.identity.ec2 import DISABLED, DOCUMENT, ENDPOINT, MODE, Imds
from agent.identity.metadata import NoAnswer, NoService

MEND = "aws ec2 modify-instance-metadata-options --instance-id i-1234567890abcdef0"


@pytest.fixture
def session(imds, nitro):
    return Imds({ENDPOINT: imds.url}, Hardware(nitro, {}))


@pytest.fixture
def stranger(imds, elsewhere):
    """A session on a machine that is not detected as EC2."""
    return Imds({ENDPOINT: imds.url}, Hardware(elsewhere, {}))


def test_one_token_serves_many_requests(session, imds):
    assert b"i-1234567890abcdef0" in session.get(DOCUMENT)
    assert session.get("/latest/meta-data/services/domain") == b"amazonaws.com"
    assert imds.requests == ["PUT /latest/api/token", f"GET {DOCUMENT}", "GET /latest/meta-data/services/domain"]
    assert session.has_token


def test_a_missing_value_is_none(session):
    assert session.get("/latest/meta-data/tags/instance") is None


def test_an_old_token_is_renewed_once(session, imds):
    session.get(DOCUMENT)
    imds.forget()
    assert session.get(DOCUMENT)
    assert [request.split()[0] for request in imds.requests] == ["PUT", "GET", "GET", "PUT", "GET"]


def test_a_service_that_refuses_every_token_is_asked_twice(session, imds):
    imds.answers[DOCUMENT] = (401, {}, b"")
    with pytest.raises(NoAnswer, match="answers 401"):
        session.get(DOCUMENT)
    assert len(imds.requests) == 4


@pytest.mark.parametrize("lost", ["hang", "reset"])
def test_the_message_about_the_hop_limit_has_the_command_to_raise_it(session, imds, lost):
    imds.hops = lost
    with pytest.raises(NoAnswer) as silent:
        session.get(DOCUMENT)
    assert f"`{MEND} --http-put-response-hop-limit 2`" in str(silent.value)
    assert "container" in str(silent.value)
    assert not session.has_token
    assert imds.requests == ["PUT /latest/api/token"]  # no second try without a token


@pytest.mark.parametrize("lost", ["hang", "reset"])
def test_the_hop_limit_is_not_mentioned_outside_ec2(stranger, imds, lost):
    imds.hops = lost
    with pytest.raises(NoAnswer, match=r"http://127.0.0.1:\d+ (does not answer|cannot be reached: [\w ]+)$"):
        stranger.get(DOCUMENT)


def test_the_message_about_a_disabled_service_has_the_command_to_enable_it(session, imds):
    imds.enabled = False
    with pytest.raises(NoAnswer, match=re.escape(f"`{MEND} --http-endpoint enabled`")):
        session.get(DOCUMENT)


def test_status_403_outside_ec2_has_no_advice(stranger, imds):
    imds.enabled = False
    with pytest.raises(NoAnswer, match=r"gives no token \(403\)$"):
        stranger.get(DOCUMENT)


@pytest.mark.parametrize(
    ("status", "body"), [(404, b""), (405, b""), (200, b""), (200, b"<html>\n log in"), (200, b"x" * 1025), (302, b"x")]
)
def test_an_invalid_token_is_refused(session, imds, status, body):
    imds.answers["/latest/api/token"] = (status, {}, body)
    with pytest.raises(NoAnswer, match=rf"gives no token \({status}\)"):
        session.get(DOCUMENT)
    assert not session.has_token


def test_an_error_status_raises_no_answer(session, imds):
    imds.answers[DOCUMENT] = (503, {}, b"busy")
    with pytest.raises(NoAnswer, match=f"{imds.url}{DOCUMENT} answers 503"):
        session.get(DOCUMENT)
    assert session.has_token


def test_messages_do_not_contain_the_token(session, imds):
    session.get(DOCUMENT)
    imds.answers[DOCUMENT] = (500, {}, imds.tokens()[0].encode())
    with pytest.raises(NoAnswer) as silent:
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
    assert Imds(env, Hardware(nitro, {})).url == url


@pytest.mark.parametrize("word", ["true", "TRUE"])
def test_the_environment_can_disable_the_service(word, nitro):
    with pytest.raises(NoService, match="AWS_EC2_METADATA_DISABLED is set"):
        Imds({DISABLED: word}, Hardware(nitro, {}))
    Imds({DISABLED: "false"}, Hardware(nitro, {}))


def test_a_remote_address_is_refused(nitro):
    with pytest.raises(NoService, match=f"{ENDPOINT}: expected http"):
        Imds({ENDPOINT: "http://imds.example"}, Hardware(nitro, {}))
