import logging
import threading
import time
from contextlib import closing
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.load import seconds_since

from chipwatch.config.identity import resolver
from chipwatch.config.identity.names import OF_POINTS, WORDS
from chipwatch.config.identity.platforms import DISABLED, ENDPOINT
from chipwatch.config.identity.resolver import Identity, UnknownIdentity, sources
from chipwatch.config.identity.source import IdentityAnswer, IdentitySource, Word
from chipwatch.config.load import load
from chipwatch.contract.datapoint import NO_DIMENSIONS, Dimensions
from chipwatch.net.metadata_service import OFF

SOON = 10.0
"""Seconds within which a start that does not wait has ended, on any machine; what it would wait for takes 20 or more."""


class Stub(IdentitySource):
    """A source that returns the answer set by the test."""

    def __init__(self, *words, name="Stub", remote=True, here=True):
        self.name, self.words, self.remote, self._here = name, words, remote, here
        self.answer = IdentityAnswer(trouble="it is silent", retry=True)
        self.times = []
        self.block = threading.Event()
        self.block.set()

    @property
    def asked(self):
        return len(self.times)

    def is_here(self):
        return self._here

    def ask(self, wanted):
        self.times.append(time.monotonic())
        self.block.wait(20)
        return self.answer

    def knows(self, **words):
        self.answer = IdentityAnswer({word: Word(value, self.name) for word, value in words.items()})


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(resolver, "RETRY", (0.02, 0.1))
    monkeypatch.setattr(resolver, "RETRY_LATE", (0.02, 0.1))


@pytest.fixture
def start_soon(monkeypatch):
    """A start waits for nobody."""
    monkeypatch.setattr(resolver, "START_TIMEOUT", 0.05)


@pytest.fixture
def identify(at_the_end):
    """Build an Identity that is closed after the test."""

    def build(words, given=None, among=(), hints=()):
        return at_the_end.enter_context(closing(Identity(words, given or {}, among, hints)))

    return build


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("identity-")]


# -- without the network --------------------------------------------------------------------------------------


def test_without_dimensions_no_source_is_asked_and_no_thread_runs(identify):
    source = Stub(*WORDS)
    found = identify((), {}, [source])
    found.start()
    assert found.known() == NO_DIMENSIONS
    assert source.asked == 0
    assert threads() == []


def test_a_configured_value_wins_and_its_source_is_not_asked(identify):
    source = Stub("region")
    source.knows(region="us-west-2")
    found = identify(["region"], {"region": "mars-1"}, [source])
    found.start()
    assert found.known() == Dimensions(region="mars-1")
    assert source.asked == 0


def test_values_come_from_several_platforms(identify, imds, nitro, tmp_path):
    env = {ENDPOINT: imds.url, "K8S_NODE_NAME": "node-1", "K8S_POD_NAME": "pod-1", "SLURM_JOB_ID": "7"}
    found = identify(["k8s_node", "k8s_pod", "instance_id", "region", "slurm_job"], {"team": "ml"}, sources(env, nitro))
    found.start()
    assert dict(found.known()) == {
        "k8s_node": "node-1", "k8s_pod": "pod-1", "instance_id": "i-1234567890abcdef0", "region": "us-west-2",
        "slurm_job": "7", "team": "ml",
    }  # fmt: skip


def test_the_instance_and_its_type_need_no_network_on_nitro(identify, imds, nitro):
    imds.hops = "hang"
    found = identify(["instance_id", "instance_type"], {}, sources({ENDPOINT: imds.url}, nitro))
    found.start()
    assert found.known() == Dimensions(instance_id="i-1234567890abcdef0", instance_type="trn1.32xlarge")
    assert imds.requests == []
    assert threads() == []


def test_the_neuron_runtime_tag_is_left_to_each_point(identify):
    found = identify(["hostname", "neuron_runtime_tag"], {}, sources({}))
    found.start()
    assert set(found.known()) == {"hostname"}


def test_every_dimension_has_a_source_or_belongs_to_points():
    served = {word for source in sources({}) for word in source.words}
    assert served < set(WORDS)
    assert set(WORDS) - served == OF_POINTS


@given(st.sets(st.sampled_from(WORDS)), st.dictionaries(st.sampled_from((*WORDS, "team")), st.text(min_size=1)))
def test_either_all_wanted_dimensions_are_known_or_none(words, given):
    stub = Stub("hostname", "slurm_job", "region", remote=False)
    stub.knows(hostname="h", slurm_job="1", region="r")
    found = Identity(sorted(words), given, [stub])
    try:
        found.start()
    except UnknownIdentity:
        assert found.known() is None
        assert words - {"hostname", "slurm_job", "region"} - set(given) - OF_POINTS
    else:
        assert set(found.known()) == (words - OF_POINTS) | set(given)
        assert given.items() <= found.known().items()


# -- values that no source has -----------------------------------------------------------------------------------------------


def test_a_dimension_without_a_platform_fails_at_once_and_says_what_to_do(identify, elsewhere):
    found = identify(["hostname", "gcp_zone", "slurm_job"], {}, sources({OFF: "true"}, elsewhere))
    with pytest.raises(UnknownIdentity) as unknown:
        found.start()
    assert str(unknown.value) == (
        "--common-dims: no value found for gcp_zone, slurm_job (Slurm: SLURM_JOB_ID not set; GCE: NO_GCE_CHECK is set);"
        " set it with --dim gcp_zone=VALUE, or leave it out"
    )
    assert found.known() is None


def test_the_message_without_a_platform_says_where_it_looked(identify, imds, elsewhere, beside):
    imds.close()
    found = identify(["instance_id"], {}, sources(beside(imds), elsewhere))
    with pytest.raises(UnknownIdentity) as unknown:
        found.start()
    assert str(unknown.value) == (
        f"--common-dims: no value found for instance_id (DMI: {elsewhere}/class/dmi/id/sys_vendor says QEMU, not Amazon"
        f" EC2; EC2: {imds.url} cannot be reached: Connection refused; GCE: {imds.url} cannot be reached: Connection"
        " refused); set it with --dim instance_id=VALUE, or leave it out"
    )


def test_the_start_fails_within_five_seconds_even_if_no_request_is_answered(identify, imds, elsewhere, beside):
    imds.silent_until = time.monotonic() + 3600
    begun = time.monotonic()
    with pytest.raises(UnknownIdentity, match=r"EC2: .* does not answer; GCE: .* does not answer"):
        identify(["region"], {}, sources(beside(imds), elsewhere)).start()
    assert seconds_since(begun) < 5


def test_a_source_that_hangs_counts_as_absent_on_an_undetected_platform(start_soon, identify, monkeypatch):
    monkeypatch.setattr(resolver, "DETECTION_TIMEOUT", 0.05)
    source = Stub("region", here=False)
    source.block.clear()
    with pytest.raises(UnknownIdentity, match="no answer"):
        identify(["region"], {}, [source]).start()
    source.block.set()


def test_outside_ec2_the_group_fails(identify, imds, elsewhere):
    imds.close()
    with pytest.raises(UnknownIdentity, match="no value found for autoscaling_group"):
        identify(["hostname", "autoscaling_group"], {}, sources({ENDPOINT: imds.url}, elsewhere)).start()


def test_a_failed_start_leaves_no_thread(identify, until):
    silent = Stub("region")
    with pytest.raises(UnknownIdentity):
        identify(["region", "gcp_zone"], {}, [silent]).start()
    until(lambda: threads() == [])


# -- a detected platform that does not answer ------------------------------------------------------------------------


def test_a_silent_platform_is_asked_in_the_background_until_it_answers(start_soon, identify, until, caplog):
    caplog.set_level(logging.INFO)
    source = Stub("region", "account_id")
    found = identify(["region"], {"team": "ml"}, [source])
    begun = time.monotonic()
    found.start()
    assert seconds_since(begun) < SOON
    assert found.known() is None
    assert not found.wait(0.01)
    until(lambda: source.asked > 4)
    source.knows(region="us-west-2")
    assert found.wait(20)
    assert found.known() == Dimensions(region="us-west-2", team="ml")
    until(lambda: threads() == [])
    logged = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert logged == [
        ("WARNING", "identity: not known yet: region (Stub: it is silent); points are kept until it is known"),
        ("INFO", "identity: known: {'region': 'us-west-2', 'team': 'ml'}"),
    ]


def test_the_delay_between_requests_grows(start_soon, identify, until, monkeypatch):
    monkeypatch.setattr(resolver, "RETRY", (0.01, 0.32))
    source = Stub("region")
    identify(["region"], {}, [source]).start()
    until(lambda: source.asked == 6)
    gaps = [later - earlier for earlier, later in pairwise(source.times)]
    assert all(gap >= 0.005 * 2**n for n, gap in enumerate(gaps))


def test_an_incomplete_identity_is_not_known(start_soon, identify, until):
    quick, slow = Stub("region", name="quick"), Stub("ecs_task", name="slow")
    quick.knows(region="us-west-2")
    found = identify(["region", "ecs_task"], {}, [quick, slow])
    found.start()
    until(lambda: slow.asked > 2)
    assert found.known() is None
    slow.knows(ecs_task="t")
    assert found.wait(20)
    assert found.known() == Dimensions(region="us-west-2", ecs_task="t")


def test_a_value_never_changes_once_found(start_soon, identify, until):
    first, second = Stub("region", name="first"), Stub("region", "ecs_task", name="second")
    first.knows(region="us-west-2")
    found = identify(["region", "ecs_task"], {}, [first, second])
    found.start()
    second.knows(region="mars-1", ecs_task="t")
    assert found.wait(20)
    assert found.known() == Dimensions(region="us-west-2", ecs_task="t")


def test_a_platform_that_lacks_a_value_after_the_start_is_logged_as_an_error(start_soon, identify, until, caplog):
    source = Stub("ecs_service")
    found = identify(["ecs_service"], {}, [source])
    found.start()
    source.answer = IdentityAnswer(trouble="the task has none")
    until(lambda: any(record.levelname == "ERROR" for record in caplog.records))
    text = "no value found for ecs_service (Stub: the task has none); set it with --dim ecs_service=VALUE"
    assert text in caplog.text
    assert found.known() is None
    found.offer({"ecs_service": "web"})
    assert found.known() == Dimensions(ecs_service="web")


def test_the_hop_limit_is_explained_in_the_log_while_points_wait(identify, imds, nitro, until, caplog):
    imds.hops = "reset"
    found = identify(["instance_id", "region"], {}, sources({ENDPOINT: imds.url}, nitro))
    found.start()
    until(lambda: "--http-put-response-hop-limit 2" in caplog.text)
    assert found.known() is None
    imds.hops = ""
    assert found.wait(20)
    assert found.known() == Dimensions(instance_id="i-1234567890abcdef0", region="us-west-2")


def test_an_offered_value_fills_only_a_missing_dimension(start_soon, identify):
    local, silent = Stub("hostname", remote=False, name="local"), Stub("instance_id", "region")
    local.knows(hostname="h")
    found = identify(["hostname", "instance_id", "region"], {"region": "given"}, [local, silent])
    found.start()
    found.offer({"hostname": "other", "region": "other", "ami_id": "unasked", "instance_id": ""})
    assert found.known() is None
    found.offer({"instance_id": "i-0abc"}, "neuron-monitor")
    assert found.known() == Dimensions(hostname="h", instance_id="i-0abc", region="given")
    found.offer({"instance_id": "i-0def"})
    assert found.known() == Dimensions(hostname="h", instance_id="i-0abc", region="given")
    assert ("instance_id", "i-0abc", "neuron-monitor") in list(found.entries())


# -- the group, without which points are sent after a timeout --------------------------------------------------------------------


def test_points_wait_for_a_late_group(start_soon, identify, monkeypatch):
    monkeypatch.setattr(resolver, "LATE_TIMEOUT", 20.0)
    group, host = Stub("autoscaling_group"), Stub("hostname", remote=False)
    host.knows(hostname="h")
    found = identify(["hostname", "autoscaling_group"], {}, [host, group])
    found.start()
    assert not found.wait(0.1)
    group.knows(autoscaling_group="trainers")
    assert found.wait(20)
    assert found.known() == Dimensions(hostname="h", autoscaling_group="trainers")


def test_after_the_timeout_points_lack_the_group_until_it_is_known(start_soon, identify, until, monkeypatch, caplog):
    monkeypatch.setattr(resolver, "LATE_TIMEOUT", 0.1)
    group, host = Stub("autoscaling_group"), Stub("hostname", remote=False)
    host.knows(hostname="h")
    found = identify(["hostname", "autoscaling_group"], {}, [host, group])
    found.start()
    assert found.wait(20)
    assert found.known() == Dimensions(hostname="h")
    until(lambda: group.asked > 5)
    assert [record.getMessage() for record in caplog.records] == [
        "identity: left out until it is known: autoscaling_group (Stub: it is silent)"
    ]
    group.knows(autoscaling_group="trainers")
    until(lambda: found.known() == Dimensions(hostname="h", autoscaling_group="trainers"))


def test_the_timeout_of_a_group_begins_when_the_other_dimensions_are_known(start_soon, identify, until, monkeypatch):
    monkeypatch.setattr(resolver, "LATE_TIMEOUT", 0.05)
    group, place = Stub("autoscaling_group", name="group"), Stub("region", name="place")
    found = identify(["region", "autoscaling_group"], {}, [group, place])
    found.start()
    until(lambda: place.asked > 5)
    assert found.known() is None
    place.knows(region="us-west-2")
    assert found.wait(20)
    assert found.known() == Dimensions(region="us-west-2")


def test_a_request_that_hangs_leaves_out_the_group_only(start_soon, identify, monkeypatch):
    monkeypatch.setattr(resolver, "LATE_TIMEOUT", 0.05)
    group = Stub("autoscaling_group")
    group.block.clear()
    found = identify(["autoscaling_group"], {"team": "ml"}, [group])
    found.start()
    assert found.wait(20)
    assert found.known() == Dimensions(team="ml")
    group.block.set()


# -- hints ------------------------------------------------------------------------------


def test_hints_that_are_found_are_known_with_the_dimensions(identify, gce, beside, google):
    found = identify(["hostname"], {"team": "ml"}, sources(beside(gce), google), hints=["gcp_zone", "gcp_project"])
    found.start()
    assert found.known().items() >= {
        "team": "ml", "gcp_zone": "us-central1-a", "gcp_project": "ml-research-417",
    }.items()  # fmt: skip
    assert set(found.known()) == {"hostname", "team", "gcp_zone", "gcp_project"}


def test_a_configured_or_wanted_dimension_is_not_a_hint(identify):
    source = Stub("region", "gcp_zone", remote=False)
    source.knows(region="r", gcp_zone="z")
    found = identify(["region"], {"gcp_zone": "given"}, [source], hints=["gcp_zone", "region", "neuron_runtime_tag"])
    found.start()
    assert found.known() == Dimensions(region="r", gcp_zone="given")
    assert [entry.word for entry in found.entries()] == ["region", "gcp_zone"]


def test_an_unknown_hint_neither_fails_nor_is_listed(identify, elsewhere, caplog):
    caplog.set_level(logging.INFO)
    words = ["gcp_zone", "k8s_pod", "slurm_job", "account_id"]
    found = identify(["hostname"], {}, sources({OFF: "true", DISABLED: "true"}, elsewhere), hints=words)
    found.start()
    assert set(found.known()) == {"hostname"}
    assert [entry.word for entry in found.entries()] == ["hostname"]
    assert caplog.text == ""


def test_the_error_about_a_missing_dimension_does_not_name_hints(identify, elsewhere, gce, beside):
    gce.close()
    hints = ["gcp_zone", "region"]
    with pytest.raises(UnknownIdentity) as unknown:
        identify(["slurm_job"], {}, sources(beside(gce), elsewhere), hints=hints).start()
    assert str(unknown.value) == (
        "--common-dims: no value found for slurm_job (Slurm: SLURM_JOB_ID not set);"
        " set it with --dim slurm_job=VALUE, or leave it out"
    )


def test_on_ec2_hints_of_google_cause_no_request(identify, gce, beside, nitro, monkeypatch):
    monkeypatch.setattr(resolver, "START_TIMEOUT", 60.0)
    gce.trouble = "hang"
    found = identify(["hostname"], {}, sources(beside(gce), nitro), hints=["gcp_zone", "gcp_project", "k8s_location"])
    begun = time.monotonic()
    found.start()
    assert set(found.known()) == {"hostname"}
    assert seconds_since(begun) < 30
    assert gce.requests == []


def test_on_google_hints_of_aws_cause_no_request(identify, imds, beside, google, monkeypatch):
    monkeypatch.setattr(resolver, "START_TIMEOUT", 60.0)
    imds.silent_until = time.monotonic() + 3600
    found = identify(["hostname"], {}, sources(beside(imds), google), hints=["account_id", "availability_zone"])
    begun = time.monotonic()
    found.start()
    assert set(found.known()) == {"hostname"}
    assert seconds_since(begun) < 30
    assert imds.requests == []


def test_a_hint_of_an_undetected_platform_delays_the_start_as_a_missing_dimension_does(identify, monkeypatch):
    monkeypatch.setattr(resolver, "START_TIMEOUT", 0.1)
    monkeypatch.setattr(resolver, "DETECTION_TIMEOUT", 0.2)
    source, host = Stub("gcp_zone", here=False), Stub("hostname", remote=False, name="host")
    host.knows(hostname="h")
    source.block.clear()
    found = identify(["hostname"], {}, [host, source], hints=["gcp_zone"])
    begun = time.monotonic()
    found.start()
    assert time.monotonic() - begun >= 0.3
    assert seconds_since(begun) < SOON
    assert found.known() == Dimensions(hostname="h")
    source.knows(gcp_zone="z")
    source.block.set()
    assert found.wait(20)


def test_an_unanswered_hint_delays_the_start_by_one_request(identify, imds, beside, elsewhere):
    imds.silent_until = time.monotonic() + 3600
    found = identify(["hostname"], {}, sources(beside(imds), elsewhere), hints=["gcp_zone", "region", "account_id"])
    begun = time.monotonic()
    found.start()
    assert set(found.known()) == {"hostname"}
    assert seconds_since(begun) < SOON


def test_points_wait_for_a_hint_of_a_detected_silent_platform(start_soon, identify, until, caplog):
    caplog.set_level(logging.INFO)
    source, host = Stub("gcp_zone"), Stub("hostname", remote=False, name="host")
    host.knows(hostname="h")
    found = identify(["hostname"], {}, [host, source], hints=["gcp_zone"])
    begun = time.monotonic()
    found.start()
    assert seconds_since(begun) < SOON
    until(lambda: source.asked > 4)
    assert found.known() is None
    assert list(found.entries()) == [("hostname", "h", "host"), ("gcp_zone", None, "Stub: it is silent")]
    assert str(found.unknown()) == "the platform of this machine has not answered yet (Stub: it is silent)"
    source.knows(gcp_zone="z")
    assert found.wait(20)
    assert found.known() == Dimensions(hostname="h", gcp_zone="z")
    assert [record.getMessage() for record in caplog.records] == [
        "identity: not known yet: gcp_zone (Stub: it is silent); points are kept until it is known",
        "identity: known: {'gcp_zone': 'z', 'hostname': 'h'}",
    ]


def test_points_stop_waiting_for_a_hint_that_its_platform_lacks(start_soon, identify, until):
    source = Stub("k8s_cluster", "gcp_zone")
    found = identify((), {"team": "ml"}, [source], hints=["k8s_cluster", "gcp_zone"])
    found.start()
    assert found.known() is None
    source.knows(gcp_zone="z")
    assert found.wait(20)
    assert found.known() == Dimensions(team="ml", gcp_zone="z")
    assert found.known() is found.known()


def test_after_the_timeout_points_go_without_hints_which_are_still_requested(identify, until, monkeypatch, caplog):
    monkeypatch.setattr(resolver, "START_TIMEOUT", 0.0)
    monkeypatch.setattr(resolver, "HINT_TIMEOUT", 0.2)
    source, host = Stub("gcp_zone"), Stub("hostname", remote=False, name="host")
    host.knows(hostname="h")
    found = identify(["hostname"], {}, [host, source], hints=["gcp_zone"])
    found.start()
    assert found.known() is None
    until(lambda: found.known() == Dimensions(hostname="h"))
    asked = source.asked
    until(lambda: source.asked > asked + 2)
    assert caplog.records[-1].getMessage() == "identity: left out until it is known: gcp_zone (Stub: it is silent)"
    source.knows(gcp_zone="z")
    until(lambda: found.known() == Dimensions(hostname="h", gcp_zone="z"))


def test_a_platform_that_is_detected_late_delays_points_no_longer(start_soon, identify, until, monkeypatch):
    monkeypatch.setattr(resolver, "DETECTION_TIMEOUT", 0.0)
    monkeypatch.setattr(resolver, "HINT_TIMEOUT", 0.3)
    place, zone = Stub("region", name="place"), Stub("gcp_zone", name="zone", here=False)
    zone.block.clear()
    found = identify(["region"], {}, [place, zone], hints=["gcp_zone"])
    found.start()
    zone.block.set()  # it says that it may know more later
    until(lambda: zone.asked > 1)
    place.knows(region="r")
    until(lambda: found.known() == Dimensions(region="r"))


def test_wait_gives_up_hints_but_not_wanted_dimensions(start_soon, identify):
    place, zone = Stub("region", name="place"), Stub("gcp_zone", name="zone")
    found = identify(["region"], {}, [place, zone], hints=["gcp_zone"])
    found.start()
    assert not found.wait(0.05)
    place.knows(region="r")
    assert found.wait(20)
    assert found.known() == Dimensions(region="r")


def test_points_do_not_wait_for_hints_from_records(identify):
    records = Stub("instance_id", remote=False, name="records")
    found = identify((), {"team": "ml"}, [records], hints=["instance_id"])
    found.start()
    assert found.known() == Dimensions(team="ml")
    found.offer({"instance_id": "i-0abc"}, "neuron-monitor")
    assert found.known() == Dimensions(team="ml", instance_id="i-0abc")


@given(st.sets(st.sampled_from(WORDS)), st.sets(st.sampled_from(WORDS)))
def test_hints_only_add_dimensions(words, hints):
    stub = Stub("hostname", "slurm_job", "region", remote=False)
    stub.knows(hostname="h", slurm_job="1", region="r")
    outcomes = []
    for wanted in ((), sorted(hints)):
        found = Identity(sorted(words), {}, [stub], wanted)
        try:
            found.start()
        except UnknownIdentity as unknown:
            outcomes.append(str(unknown))
        else:
            outcomes.append({word: value for word, value in found.known().items() if word in words})
            assert set(found.known()) - words == set(wanted) & set(stub.words) - words
    assert outcomes[0] == outcomes[1]


# -- messages -------------------------------------------------------------------------------------------------


def test_entries_have_each_value_with_its_origin_or_the_reason(start_soon, identify):
    host, silent = Stub("hostname", remote=False, name="host"), Stub("region")
    host.knows(hostname="h")
    silent.block.clear()
    found = identify(
        ["region", "hostname", "neuron_runtime_tag", "gcp_zone"], {"team": "ml", "gcp_zone": "z"}, [host, silent]
    )
    found.start()
    assert list(found.entries()) == [
        ("region", None, "Stub: no answer"),
        ("hostname", "h", "host"),
        ("neuron_runtime_tag", "of each point", "its collector"),
        ("team", "ml", "the configuration"),
        ("gcp_zone", "z", "the configuration"),
    ]
    silent.block.set()


def test_the_configuration_accepts_every_dimension():
    assert load(None, {"common_dims": list(WORDS)}, {}).common_dims == WORDS
