import json
import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.gce import POD, SECRET
from tests.load import seconds_since

from chipwatch.config.identity import resolver
from chipwatch.config.identity.autoscaling import AutoScaling
from chipwatch.config.identity.dmi import DmiTables
from chipwatch.config.identity.platforms import ENDPOINT, STARTING, Ec2, Gce, _words
from chipwatch.config.identity.platforms import GOOGLE_DOCUMENT as DOCUMENT
from chipwatch.config.identity.resolver import Identity, UnknownIdentity, sources
from chipwatch.net.metadata_service import MAX_BYTES, OFF, google_service

HOST = "GCE_METADATA_HOST"
INSIDE = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def source(gce, google):
    """A source on a Google instance."""
    return Gce({HOST: gce.host}, DmiTables(google, {}))


@pytest.fixture
def stranger(gce, elsewhere):
    """A source on a machine that is not detected as Google."""
    return Gce({HOST: gce.host}, DmiTables(elsewhere, {}))


def values(answer):
    return {word: found.value for word, found in answer.words.items()}


# -- values -----------------------------------------------------------------------------------------------


def test_the_document_has_every_value(source, gce):
    answer = source.ask(["gcp_zone"])
    assert values(answer) == {
        "gcp_project": "ml-research-417",
        "gcp_zone": "us-central1-a",
        "region": "us-central1",
        "instance_id": "7857118082129425417",
        "instance_type": "a3-highgpu-8g",
        "ami_id": "common-cu124-debian-12-v20260901",
    }
    assert {found.origin for found in answer.words.values()} == {f"{gce.url}/computeMetadata/v1"}
    assert (answer.trouble, answer.retry) == ("", False)
    assert gce.requests == [f"GET {DOCUMENT}"]
    assert gce.headers[0]["Metadata-Flavor"] == "Google"
    assert "X-Forwarded-For" not in gce.headers[0]


def test_a_pod_gets_its_cluster_and_location(source, gce):
    gce.document = POD
    answer = source.ask(source.words)
    assert values(answer) == {
        "gcp_project": "ml-research-417",
        "gcp_zone": "us-central1-f",
        "region": "us-central1",
        "instance_id": "3459945890685455413",
        "k8s_cluster": "gpu-1",
        "k8s_location": "us-central1",
    }
    assert answer.trouble == f"{gce.url}/computeMetadata/v1 lacks instance_type, ami_id"
    assert not answer.retry


@pytest.mark.parametrize(
    ("identity", "text"),
    [(2**63 + 5, "9223372036854775813"), (18446744073709551615, "18446744073709551615"), ("00bf4bf0", "00bf4bf0")],
)
def test_the_instance_id_keeps_every_digit(source, gce, identity, text):
    gce.document = {"instance": {"id": identity}}
    assert values(source.ask(["instance_id"])) == {"instance_id": text}


@pytest.mark.parametrize(
    "document",
    [{}, {"instance": {}}, {"instance": {"attributes": None}}, {"project": {}, "instance": {"zone": ""}}],
    ids=["nothing", "no-instance", "no-attributes", "empty"],
)
def test_missing_values_are_absent(source, gce, document):
    gce.document = document
    answer = source.ask(["gcp_zone", "region"])
    assert answer == ({}, f"{gce.url}/computeMetadata/v1 lacks region, gcp_zone", False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>log in</html>",
        b"[]",
        b'{"instance": 7}',
        b'{"instance": {"zone": "\xff"}}',
        b'{"x": ' + b"[" * 60_000,
    ],
    ids=["empty", "html", "list", "number", "not-utf-8", "endless"],
)
def test_an_invalid_document_is_requested_again(source, gce, body):
    gce.document = body
    assert source.ask(["gcp_zone"]) == ({}, f"{gce.url}/computeMetadata/v1 is not metadata", True)


def test_attributes_may_have_the_maximum_size_of_google(source, gce):
    attributes = {f"big-{n}": '"\n' * 128 * 1024 for n in range(2)} | {"cluster-name": "gpu-1"}
    project = {"attributes": {f"big-{n}": "x" * 256 * 1024 for n in range(2)}, "projectId": "p"}
    gce.document = {"instance": {"attributes": attributes, "id": 7}, "project": project}
    assert len(json.dumps(gce.document)) > MAX_BYTES
    assert values(source.ask(["k8s_cluster"])) == {"k8s_cluster": "gpu-1", "gcp_project": "p", "instance_id": "7"}


def test_attributes_are_neither_kept_nor_logged(source, gce, caplog):
    caplog.set_level(logging.DEBUG)
    answer = source.ask(source.words)
    assert SECRET not in repr(answer) + caplog.text + repr(vars(source))
    gce.document = {"instance": {"attributes": {"cluster-name": {"password": SECRET}}}}
    answer = source.ask(source.words)
    assert answer.words == {}
    assert SECRET not in repr(answer) + caplog.text + repr(vars(source))


@given(st.text(max_size=40))
def test_the_zone_is_the_last_part_of_its_path_and_begins_with_the_region(zone):
    found = _words(json.dumps({"instance": {"zone": f"projects/1/zones/{zone}"}}).encode(), "x")
    assert set(found) <= {"gcp_zone", "region"}
    if "region" in found and "gcp_zone" in found:
        assert found["gcp_zone"].value.startswith(found["region"].value)


def test_googles_client_reads_the_same_values(source, gce, monkeypatch):
    metadata = pytest.importorskip("google.auth.compute_engine._metadata")
    transport = pytest.importorskip("google.auth.transport.requests")
    request = transport.Request()
    root = f"{gce.url}/computeMetadata/v1/"
    monkeypatch.setenv("GCE_METADATA_IP", gce.host)
    assert metadata.ping(request)
    found = values(source.ask(source.words))
    assert metadata.get(request, "project/project-id", root=root) == found["gcp_project"]
    assert metadata.get(request, "instance/zone", root=root).endswith(f"/{found['gcp_zone']}")
    gce.flavor = ""
    assert not metadata.ping(request)


# -- the address ------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"])
def test_the_environment_may_set_another_address(gce, google, variable):
    assert Gce({variable: gce.host}, DmiTables(google, {})).ask(["gcp_zone"]).words["gcp_zone"].value == "us-central1-a"


@pytest.mark.parametrize("host", ["", "metadata.google.internal", "metadata.google.internal:80"])
def test_googles_host_name_needs_no_dns(host):
    assert google_service({HOST: host}).url == "http://169.254.169.254"


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "evil.example", "metadata.google.internal.evil.example", "a@evil.example"]
)
def test_a_remote_address_is_refused(google, host):
    answer = Gce({HOST: host}, DmiTables(google, {})).ask(["gcp_zone"])
    assert "GCE_METADATA_HOST: expected http:// and a loopback or link-local address" in answer.trouble
    assert not answer.retry


@pytest.mark.parametrize(
    ("variable", "says"),
    [((OFF, "true"), "NO_GCE_CHECK is set"),
     (("AWS_EXECUTION_ENV", "AWS_ECS_FARGATE"), "a Fargate task does not own an instance")],
)  # fmt: skip
def test_switched_off_or_in_a_fargate_task_it_will_never_know(gce, google, variable, says):
    env = dict([(HOST, gce.host), variable])
    source = Gce(env, DmiTables(google, env))
    assert not source.remote
    assert source.ask(["gcp_zone"]) == ({}, says, False)
    assert gce.requests == []


@pytest.mark.parametrize("kind", ["nitro", "xen"])
def test_an_ec2_instance_makes_no_request(gce, kind, request):
    source = Gce({HOST: gce.host}, DmiTables(request.getfixturevalue(kind), {}))
    assert not source.is_here()
    assert source.ask(["gcp_zone"]) == ({}, "this is an EC2 instance", False)
    assert gce.requests == []


# -- missing answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["reset", "hang", 404, 503])
def test_a_failing_server_on_google_hardware_is_retried(source, gce, trouble):
    gce.trouble = trouble
    answer = source.ask(["gcp_zone"])
    assert answer.words == {}
    assert answer.retry
    assert answer.trouble
    gce.trouble = ""
    assert source.ask(["gcp_zone"]).words


@pytest.mark.parametrize("trouble", ["reset", "hang"])
def test_a_silent_server_on_other_hardware_is_not_retried(stranger, gce, trouble):
    gce.trouble = trouble
    assert not stranger.is_here()
    assert not stranger.ask(["gcp_zone"]).retry


def test_a_server_that_answers_as_google_is_retried_on_any_hardware(stranger, gce):
    gce.trouble = 503
    assert not stranger.is_here()
    assert stranger.ask(["gcp_zone"]) == ({}, f"{gce.url}/computeMetadata/v1 answers 503", True)
    gce.trouble = ""
    assert stranger.ask(["gcp_zone"]).words["gcp_zone"].value == "us-central1-a"


@pytest.mark.parametrize("flavor", ["", "Amazon", "google"])
def test_an_answer_without_googles_header_is_refused(stranger, gce, flavor):
    gce.flavor = flavor
    assert stranger.ask(["gcp_zone"]) == ({}, f"{gce.url} is not Google's metadata server", False)


def test_the_message_in_a_pod_mentions_network_policies(gce, google):
    gce.trouble = "reset"
    trouble = Gce({HOST: gce.host, **INSIDE}, DmiTables(google, {})).ask(["gcp_zone"]).trouble
    assert trouble.endswith(", though this is Google Cloud; a network policy may block it for pods")


def test_a_new_pod_with_hidden_hardware_is_retried_for_30_seconds(gce, tmp_path):
    gce.trouble, clock = "reset", Clock()
    source = Gce({HOST: gce.host, **INSIDE}, DmiTables(tmp_path, {}), clock)
    assert source.ask(["gcp_zone"]).retry
    clock.now += STARTING - 1
    assert source.ask(["gcp_zone"]).retry
    clock.now += 1
    assert not source.ask(["gcp_zone"]).retry


def test_other_machines_are_not_retried_without_an_answer(gce, tmp_path, elsewhere):
    gce.trouble = "reset"
    hidden = DmiTables(tmp_path / "none", {})
    assert not Gce({HOST: gce.host}, hidden).ask(["gcp_zone"]).retry, "no pod"
    assert not Gce({HOST: gce.host, **INSIDE}, DmiTables(elsewhere, {})).ask(["gcp_zone"]).retry, "another machine"
    assert not Gce({HOST: gce.host, **INSIDE}, hidden).ask(["instance_id"]).retry, "a word that others have, too"


# -- both clouds use the same address ---------------------------------------------------------------


def identify(words, env, sys, hints=()):
    """Return the identity, and the seconds that the start took."""
    found = Identity(words, {}, sources(env, sys), hints)
    begun = time.monotonic()
    try:
        found.start()
        return found, seconds_since(begun)
    finally:
        found.close()


WORDS = ["instance_id", "instance_type", "region"]
LONG = 60.0


@pytest.fixture
def patient(monkeypatch):
    """Let a start that waits for an answer wait long."""
    monkeypatch.setattr(resolver, "START_TIMEOUT", LONG)


@pytest.mark.parametrize("hardware", ["google", "hidden"])
@pytest.mark.usefixtures("patient")
def test_on_google_the_values_are_googles_without_waiting_for_aws(gce, beside, google, tmp_path, hardware):
    found, took = identify([*WORDS, "gcp_zone"], beside(gce), google if hardware == "google" else tmp_path / "none")
    assert dict(found.known()) == {
        "gcp_zone": "us-central1-a", "instance_id": "7857118082129425417", "instance_type": "a3-highgpu-8g",
        "region": "us-central1",
    }  # fmt: skip
    assert took < LONG / 2
    if hardware == "google":
        assert gce.requests == [f"GET {DOCUMENT}"]


@pytest.mark.parametrize("hardware", ["xen", "hidden"])
@pytest.mark.parametrize("old", [False, True], ids=["version-2", "version-1-too"])
@pytest.mark.usefixtures("patient")
def test_on_aws_the_values_come_from_aws_without_waiting_for_google(imds, beside, hardware, old, request):
    sys = request.getfixturevalue("xen" if hardware == "xen" else "tmp_path")
    if old:
        imds.answers[DOCUMENT] = (404, {"Server": "EC2ws"}, b"<html>404 - Not Found</html>")
    found, took = identify(WORDS, beside(imds), sys)
    assert dict(found.known()) == {
        "instance_id": "i-1234567890abcdef0", "instance_type": "trn1.32xlarge", "region": "us-west-2",
    }  # fmt: skip
    assert took < LONG / 2
    if hardware == "xen":  # else both are asked at once, and nobody waits for the other
        assert f"GET {DOCUMENT}" not in imds.requests


@pytest.mark.usefixtures("patient")
def test_on_aws_a_dimension_of_google_fails_at_once(imds, beside, nitro):
    begun = time.monotonic()
    with pytest.raises(UnknownIdentity, match=r"no value found for gcp_zone \(GCE: this is an EC2 instance\)"):
        identify(["instance_id", "gcp_zone"], beside(imds), nitro)
    assert seconds_since(begun) < LONG / 2


@pytest.mark.usefixtures("patient")
def test_on_google_a_dimension_of_aws_fails_at_once_even_if_the_server_is_silent(gce, beside, google):
    gce.trouble = "hang"
    begun = time.monotonic()
    with pytest.raises(
        UnknownIdentity, match=r"no value found for account_id .*sys_vendor says Google, not Amazon EC2"
    ):
        identify(["account_id"], beside(gce), google)
    assert seconds_since(begun) < LONG / 2


def test_a_google_machine_makes_no_request_to_aws(gce, google):
    hardware, env = DmiTables(google, {}), {ENDPOINT: gce.url}
    for source in (Ec2(env, hardware), AutoScaling(env, hardware)):
        assert not source.ask(source.words).retry
    assert gce.requests == []
