import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch.contract.errors import Refused
from chipwatch_sinks.google import GoogleSink
from chipwatch_sinks.google.rules import RESOURCES, WORDS, choose_resource, label_key, metric_type, series_fault

PREFIX = "custom.googleapis.com/chipwatch/"
NODE = {"hostname": "node-7", "location": "global", "namespace": "chipwatch"}
GCE = NODE | {
    "instance_id": "4520031799277581759",
    "gcp_zone": "us-central1-a",
    "gcp_project": "p",
    "region": "us-central1",
}
EC2 = {**NODE, "instance_id": "i-0abc", "region": "eu-west-1", "account_id": "123456789012"}
GKE = {**GCE, "k8s_cluster": "train", "k8s_location": "us-central1"}
POD = {"k8s_namespace": "ml", "k8s_pod": "job-x7"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpu.memory.used", "gpu/memory/used"),
        ("system/cpu_utilization_percentage", "system/cpu_utilization_percentage"),
        ("gpu.0.memoryAllocatedBytes", "gpu/key_0/memoryAllocatedBytes"),
        ("trainer:step-time", "trainer_step_time"),
        ("_odd", "key__odd"),
        ("ipu.0.average board temp (C)", "ipu/key_0/average_board_temp__C_"),
        ("..a..b.", "a/b"),
        ("größe", "gr__e"),
    ],
)
def test_a_name_becomes_a_type_that_is_allowed(name, kind):
    assert metric_type(PREFIX, name) == PREFIX + kind


@given(st.text(min_size=1, max_size=50))
def test_any_name_and_any_key_become_what_is_allowed(text):
    import re

    assert re.fullmatch(r"([A-Za-z][A-Za-z0-9_]*)(/[A-Za-z][A-Za-z0-9_]*)*", metric_type("", text))
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", label_key(text))


CLUSTER = {"location": "us-central1", "cluster_name": "train"}
JOB = CLUSTER | {"namespace_name": "ml", "pod_name": "job-x7"}
OTHER = {"location": "global", "namespace": "chipwatch"}
SLURM, ECS = (
    {"slurm_job": "991", "slurm_rank": "3"},
    {"ecs_cluster": "c", "ecs_task_family": "train", "ecs_task": "0f9d"},
)


@pytest.mark.parametrize(
    ("words", "kind", "labels"),
    [
        (NODE, "generic_node", OTHER | {"node_id": "node-7"}),
        (GCE, "gce_instance", {"instance_id": "4520031799277581759", "zone": "us-central1-a"}),
        (EC2, "aws_ec2_instance", {"instance_id": "i-0abc", "region": "aws:eu-west-1", "aws_account": "123456789012"}),
        ({**GKE, **POD, "k8s_node": "gke-1"}, "k8s_node", CLUSTER | {"node_name": "gke-1"}),
        ({**GKE, **POD}, "k8s_pod", JOB),
        ({**GKE, **POD, "k8s_node": "gke-1", "k8s_container": "c"}, "k8s_container", JOB | {"container_name": "c"}),
        ({**EC2, **ECS}, "generic_task", {"location": "global", "namespace": "c", "job": "train", "task_id": "0f9d"}),
        ({**NODE, **SLURM}, "generic_task", OTHER | {"job": "991", "task_id": "3"}),
        ({**EC2, "account_id": ""}, "generic_node", OTHER | {"node_id": "i-0abc"}),
    ],
)
def test_the_resource_is_what_this_machine_is(words, kind, labels):
    assert choose_resource("auto", words) == (kind, labels)


def test_a_resource_that_cannot_be_named_says_what_is_missing():
    with pytest.raises(Refused, match="gce_instance needs gcp_zone, and no value is known"):
        choose_resource("gce_instance", EC2)
    with pytest.raises(Refused, match="no host name is known"):
        choose_resource("auto", {"location": "global", "namespace": "x", "hostname": ""})


def test_every_word_of_a_resource_is_one_of_the_identity_or_an_option():
    from chipwatch.config.identity.names import WORDS as ALL

    asked = {
        word
        for ways in RESOURCES.values()
        for way in ways
        for word in "".join(way.values()).split("}")
        for word in [word.partition("{")[2]]
        if word
    }
    assert asked - {"location", "namespace"} <= {*WORDS} <= {*ALL}


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ({f"k{n}": "v" for n in range(30)}, None),
        ({f"k{n}": "v" for n in range(31)}, "more than 30 labels"),
        ({"k": "v" * 1024}, None),
        ({"k": "v" * 1025}, "label value longer than 1024 characters"),
        ({"k" * 100: "v"}, None),
        ({"k" * 101: "v"}, "label key longer than 100 characters"),
        ({"k": "caf\udce9"}, "label value is not UTF-8"),
        ({"k": "Ünïcode ☃"}, None),
    ],
)
def test_what_is_refused_is_known_before(labels, fault):
    assert series_fault(PREFIX + "a", Dimensions(labels)) == fault


@pytest.mark.parametrize(
    ("prefix", "dims", "why"),
    [
        (PREFIX, {"site": "Zürich", "empty": "", "@region": "x" * 2000}, None),
        (PREFIX, {"site": "x" * 1025}, "label value longer than 1024 characters"),
        (PREFIX, {"a.b": "1", "a_b": "2"}, "two dimensions become the same label"),
        (PREFIX + 190 * "a" + "/", {}, "metric name too long"),
    ],
)
def test_a_sink_that_is_not_open_says_what_it_would_reject(prefix, dims, why):
    sink = GoogleSink(GoogleSink.Config(prefix=prefix))
    assert sink.refuses(gauge("cpu.utilization", "%", "A."), Dimensions(dims)) == why
