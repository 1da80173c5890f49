import logging
import time

import pytest
from tests.certificates import Authority
from tests.doubles import cloudwatch as service
from tests.doubles.cloudwatch import KEY, SECRET
from tests.doubles.frame import Clock
from tests.doubles.imds import ROOT, Imds

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.contract.trusted_clock import TrustedClock

ROLE = "arn:aws:iam::123456789012:role/metrics"


def signed_for(double):
    """Return the region that the last request was signed for."""
    return double.requests[-1].headers["authorization"].split("/")[2]


# -- region


@pytest.mark.parametrize(
    ("env", "region"),
    [
        ({"AWS_REGION": "us-west-1", "AWS_DEFAULT_REGION": "us-west-2"}, "us-west-1"),
        ({"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
    ],
)
def test_the_region_is_found_in_the_environment(double, make_sink, points, monkeypatch, *, env, region):
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    make_sink(region=None).write(points())

    assert signed_for(double) == region


@pytest.mark.parametrize(
    ("zone", "region"),
    [("eu-west-1b", "eu-west-1"), ("us-west-2-lax-1a", "us-west-2"), ("us-gov-east-1a", "us-gov-east-1"), ("x", None)],
)
def test_the_region_is_the_instances_own_where_nobody_gives_one(make_sink, monkeypatch, zone, region):
    with Imds() as service:
        service.answers[f"{ROOT}/placement/availability-zone/"] = (200, {}, zone.encode())
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        if region is None:
            with pytest.raises(Refused, match="no AWS region"):
                make_sink(region=None, endpoint_url=None)
        else:
            assert f"monitoring.{region}.amazonaws.com" in make_sink(region=None, endpoint_url=None).describe()


def test_without_a_region_it_says_what_to_do(make_sink):
    with pytest.raises(Refused, match="--region, AWS_REGION or a profile"):
        make_sink(region=None)


# -- endpoint


@pytest.mark.parametrize(
    ("config", "host"),
    [
        ({}, "monitoring.us-east-2.amazonaws.com"),
        ({"use_fips": True}, "monitoring-fips.us-east-2.amazonaws.com"),
        ({"use_dualstack": True}, "monitoring.us-east-2.api.aws"),
        ({"use_fips": True, "use_dualstack": True}, "monitoring-fips.us-east-2.api.aws"),
    ],
)
def test_the_endpoint_is_the_regions_or_its_fips_or_dual_stack_one(make_sink, config, host):
    assert make_sink(region="us-east-2", endpoint_url=None, **config).describe().endswith(f" at https://{host}")


@pytest.mark.parametrize("config", [{"endpoint_url": "127.0.0.1"}, {"region": "no region"}, {"profile": "nobody"}])
def test_a_set_up_that_makes_no_sense_is_refused_at_the_start(make_sink, config):
    with pytest.raises(Refused):
        make_sink(**config)


def test_a_proxy_of_the_environment_is_used(double, make_sink, points, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", double.url)

    make_sink(endpoint_url="http://monitoring.invalid").write(points())

    assert double.requests[0].headers["host"] == "monitoring.invalid"
    assert len(double.datums) == 3


def test_a_proxys_password_is_not_repeated(make_sink, points, monkeypatch):
    with service.CloudwatchDouble(listen=False) as dead:
        monkeypatch.setenv("HTTP_PROXY", dead.url.replace("//", "//agent:hunter2@"))
        with pytest.raises(Retryable) as caught:
            make_sink(endpoint_url="http://monitoring.invalid").write(points())

    assert "hunter2" not in str(caught.value)


@pytest.fixture
def secure(double, tmp_path):
    """Make the double speak TLS; return the file of the authority that signed its certificate."""
    authority = Authority(tmp_path)
    double.encrypt(*authority.sign("double"))
    return authority.file


def test_a_certificate_of_an_authority_that_was_named_is_trusted(double, secure, make_sink, points, monkeypatch):
    monkeypatch.setenv("AWS_CA_BUNDLE", str(secure))

    make_sink().write(points())

    assert len(double.datums) == 3


def test_a_certificate_of_an_unknown_authority_is_a_fault_of_the_set_up(double, secure, make_sink, points):
    with pytest.raises(Refused, match="AWS_CA_BUNDLE"):
        make_sink().write(points())

    assert double.requests == []


# -- credentials


def test_without_credentials_it_says_what_to_do_and_finds_those_that_come_later(double, make_sink, points, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    sink = make_sink(opened=False)
    with pytest.raises(Refused, match="attach a role to this machine"):
        sink.open()

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    sink.open()

    assert sink.write(points()) == []


@pytest.fixture
def shared_file(monkeypatch, tmp_path):
    """Give a function that writes the shared file of credentials, from which alone they come."""
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    def write(key, secret, token):
        path.write_text(
            f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\naws_session_token = {token}\n"
        )

    return write


def test_credentials_that_expired_are_read_again(double, make_sink, points, shared_file):
    double.credentials = {"ASIA1": ("one", "token-1"), "ASIA2": ("two", "token-2")}
    shared_file("ASIA1", "one", "token-1")
    sink = make_sink()
    sink.write(points())
    double.expired.add("ASIA1")
    shared_file("ASIA2", "two", "token-2")

    with pytest.raises(Retryable, match="ExpiredToken"):
        sink.write(points())
    sink.write(points())

    assert len(double.datums) == 6
    assert double.requests[-1].headers["x-amz-security-token"] == "token-2"


def test_credentials_that_stay_expired_are_refused_until_there_are_others(double, make_sink, points, shared_file):
    double.credentials = {"ASIA1": ("one", "token-1"), "ASIA2": ("two", "token-2")}
    double.expired.add("ASIA1")
    shared_file("ASIA1", "one", "token-1")
    sink = make_sink()

    with pytest.raises(Retryable):
        sink.write(points())
    for _ in range(2):
        with pytest.raises(Refused, match=r"expired or unknown.* log in again .`aws sso login`., or set new keys "):
            sink.write(points())
    shared_file("ASIA2", "two", "token-2")
    assert sink.write(points()) == []


def test_a_wrong_secret_is_refused_and_no_secret_is_printed(double, make_sink, points, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    double.credentials[KEY] = ("another", "session-token")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token")

    with pytest.raises(Refused, match="secret key does not belong to the access key") as caught:
        make_sink().write(points())

    told = str(caught.value) + caplog.text
    assert "session-token" not in told
    assert SECRET not in told


def test_nothing_that_is_signed_is_logged_at_any_level(double, make_sink, points, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    double.credentials[KEY] = (SECRET, "session-token")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token")

    make_sink().write(points())

    assert len(double.datums) == 3
    assert "session-token" not in caplog.text
    assert "Signature=" not in caplog.text


# -- roles


def test_a_role_is_assumed_with_its_external_id_and_used(double, make_sink, points, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", double.url)
    double.roles[ROLE] = "secret-handshake"
    sink = make_sink(role_arn=ROLE, external_id="secret-handshake")

    for _ in range(3):
        sink.write(points())

    assert double.assumed == ["ASIA0"]
    assert {request.headers["authorization"].split("=")[1].split("/")[0] for request in double.requests} == {"ASIA0"}
    assert len(double.datums) == 9


def test_a_roles_credentials_are_renewed_before_they_expire(double, make_sink, points, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", double.url)
    double.roles[ROLE], double.role_seconds = None, 300
    sink = make_sink(role_arn=ROLE)
    sink.write(points())

    sink.write(points())

    assert len(double.assumed) > 1
    assert len(double.datums) == 6


@pytest.mark.parametrize("external_id", [None, "wrong"])
def test_a_role_that_may_not_be_assumed_is_refused_with_the_permission_named(
    double, make_sink, points, monkeypatch, external_id
):
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", double.url)
    double.roles[ROLE] = "secret-handshake"

    with pytest.raises(Refused, match="sts:AssumeRole"):
        make_sink(role_arn=ROLE, external_id=external_id).write(points())

    assert double.requests == []


def test_a_role_needs_credentials_to_be_assumed_with(make_sink, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    with pytest.raises(Refused, match="no AWS credentials"):
        make_sink(role_arn=ROLE)


# -- clock


@pytest.mark.parametrize(("skew", "words"), [(-100, "100 s ahead of"), (100, "100 s behind"), (50, None)])
def test_a_clock_that_is_off_is_warned_of_once_and_a_little_is_not_worth_a_word(
    double, make_sink, points, caplog, *, skew, words
):
    double.skew = skew + 0.5
    sink = make_sink()

    for _ in range(3):
        sink.write(points())

    assert [(of.levelname, words in of.getMessage()) for of in caplog.records] == [("WARNING", True)] * bool(words)


@pytest.mark.parametrize("skew", [-1_000, 1_000])
def test_a_clock_that_spoils_the_signature_is_refused_and_nothing_is_lost(double, make_sink, points, caplog, skew):
    double.skew = skew
    sink, batch = make_sink(), points()

    with pytest.raises(Refused, match="the clock of this machine is wrong"):
        sink.write(batch)
    double.skew = 0
    sink.write(batch)

    assert len(double.datums) == 3
    assert len(caplog.records) == 1


def test_too_old_is_reckoned_by_the_clock_that_was_given(double, make_sink, points):
    later = make_sink(clock=lambda: time.time_ns() + 15 * 86_400 * 10**9)

    assert [one.reason for one in later.write(points(1))] == ["too old"]


@pytest.mark.parametrize("ahead", [15 * 86_400, -15 * 86_400])
def test_the_service_judges_the_time_of_points_while_the_clock_is_not_trusted(double, make_sink, points, ahead):
    """A clock that jumps loses no point; the service's time decides."""
    wall = Clock(time.time_ns() + ahead * 10**9)
    steady = TrustedClock(wall, Clock())
    sink = make_sink(steady=steady)

    assert sink.write(points(3)) == []
    assert len(double.datums) == 3
    assert steady() is None
    wall.now = time.time_ns()
    sink.write(points(3))
    assert steady() == wall.now


# -- destination


def test_the_destination_is_known_without_a_call_and_tells_no_secret(double, make_sink, monkeypatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    url = double.url.replace("//", "//user:secret@")
    sink = make_sink(opened=False, region=None, endpoint_url=url, namespace="Mine", role_arn="arn:aws:iam::1:role/r")
    known = {"namespace": "Mine", "endpoint": double.url, "role": "arn:aws:iam::1:role/r", "profile": ""}
    assert sink.destination() == known
    found = make_sink(region=None, namespace="Mine")
    assert found.destination() == known | {"role": "", "region": "eu-north-1"}
    assert make_sink(opened=False).destination()["region"] == "eu-west-1"
    assert double.requests == []
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert sink.destination()["profile"] == "other"
