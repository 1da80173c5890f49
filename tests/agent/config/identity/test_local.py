import os

import pytest

from chipwatch.config.identity.local import KUBERNETES, Kubernetes, Slurm, Static, WatchedProcess
from chipwatch.config.identity.resolver import Identity, sources
from chipwatch.contract.owner import Owner

INSIDE = {"KUBERNETES_SERVICE_HOST": "10.100.0.1", "HOSTNAME": "chipwatch-x7k2p"}
ALL = list(KUBERNETES)


def test_the_host_name_is_stable_and_each_run_id_is_new():
    first, second = Static().ask(["hostname"]), Static().ask(["run_id"])
    assert first.words["hostname"].value == second.words["hostname"].value == os.uname().nodename
    assert len({answer.words["run_id"].value for answer in (first, second)}) == 2
    assert len(first.words["run_id"].value) == 12


def test_a_job_has_its_id_and_rank():
    answer = Slurm({"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0"}).ask(["slurm_job"])
    assert answer.words == {"slurm_job": ("4711", "SLURM_JOB_ID"), "slurm_rank": ("0", "SLURM_PROCID")}
    assert answer.trouble == ""


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (
            Owner("slurm", "4711", step="0", user="ada", partition="h100"),
            {"slurm_job": "4711", "slurm_step": "0", "slurm_partition": "h100", "user": "ada"},
        ),
        (
            Owner("kubernetes", "train-0", namespace="team", pod="train-0", container="main"),
            {"k8s_namespace": "team", "k8s_pod": "train-0", "k8s_container": "main"},
        ),
        (Owner("kubernetes", "4415fd05", container="713a77a26fe2"), {}),
        (Owner("ecs", "5a0d5ced", container="38fac3e9"), {"ecs_task": "5a0d5ced"}),
        (Owner("docker", "713a77a26fe2", user="ada", container="713a77a26fe2"), {"user": "ada"}),
        (Owner("unit", "jupyter.service", user="root", unit="jupyter.service"), {"user": "root"}),
        (Owner("user", "ada", user="ada"), {"user": "ada"}),
    ],
)
def test_the_watched_process_tells_the_job_that_it_belongs_to(owner, words):
    answer = WatchedProcess(owner).ask(["slurm_job", "hostname"])
    assert {word: found.value for word, found in answer.words.items()} == words
    assert answer.trouble == ("" if "slurm_job" in words else "its cgroup does not tell slurm_job")


def test_the_watched_process_wins_over_the_environment_of_the_agent():
    among = sources({"SLURM_JOB_ID": "1", "SLURM_PROCID": "3"}, owner=Owner("slurm", "2", user="ada"))
    identity = Identity(["slurm_job", "slurm_rank", "user"], {}, among)
    identity.start()
    assert dict(identity.known()) == {"slurm_job": "2", "slurm_rank": "3", "user": "ada"}
    identity.close()


def test_outside_a_job_the_message_names_the_unset_variables():
    assert Slurm({}).ask(["slurm_rank", "slurm_job"]) == ({}, "SLURM_JOB_ID, SLURM_PROCID not set", False)
    assert Slurm({"SLURM_JOB_ID": "1"}).ask(["slurm_rank"]).trouble == "SLURM_PROCID not set"


@pytest.fixture
def account(tmp_path):
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "namespace").write_text("training")
    return folder


def ask(env, account, wanted=ALL):
    return Kubernetes(env, account).ask(wanted)


def values(answer):
    return {word: found.value for word, found in answer.words.items()}


def test_the_downward_api_gives_all_values(account):
    env = INSIDE | {
        "K8S_CLUSTER_NAME": "gpu-1",
        "K8S_LOCATION": "us-west-2",
        "K8S_NODE_NAME": "ip-10-0-1-7.us-west-2.compute.internal",
        "K8S_NAMESPACE": "monitoring",
        "K8S_POD_NAME": "chipwatch-x7k2p",
        "K8S_CONTAINER_NAME": "agent",
    }
    answer = ask(env, account)
    assert values(answer) == {
        "k8s_cluster": "gpu-1",
        "k8s_location": "us-west-2",
        "k8s_node": "ip-10-0-1-7.us-west-2.compute.internal",
        "k8s_namespace": "monitoring",
        "k8s_pod": "chipwatch-x7k2p",
        "k8s_container": "agent",
    }
    assert answer.trouble == ""
    assert answer.words["k8s_node"].origin == "K8S_NODE_NAME"


@pytest.mark.parametrize("word", ALL)
def test_every_variable_is_read_and_the_first_wins(word, account):
    for name in KUBERNETES[word]:
        assert values(ask(INSIDE | {name: "it"}, account))[word] == "it"
    names = KUBERNETES[word]
    assert values(ask(INSIDE | {name: name for name in reversed(names)}, account))[word] == names[0]


def test_outside_a_pod_generic_variables_are_ignored(tmp_path):
    env = {"NODE_NAME": "a", "CLUSTER_NAME": "b", "CLUSTER_LOCATION": "d", "HOSTNAME": "c"}
    answer = ask(env, tmp_path)
    assert values(answer) == {}
    assert answer.trouble == f"this is not a pod: it has neither KUBERNETES_SERVICE_HOST nor {tmp_path}/namespace"


def test_outside_a_pod_our_variables_are_read(tmp_path):
    assert values(ask({"K8S_CLUSTER_NAME": "edge", "CLUSTER_NAME": "x"}, tmp_path)) == {"k8s_cluster": "edge"}


def test_the_namespace_is_read_from_the_service_account(account):
    answer = ask({}, account)
    assert values(answer) == {"k8s_namespace": "training"}
    assert answer.words["k8s_namespace"].origin == str(account / "namespace")


def test_the_host_name_is_the_last_resort_for_the_pods_name(account):
    answer = ask(INSIDE, account)
    assert values(answer)["k8s_pod"] == "chipwatch-x7k2p"
    assert answer.words["k8s_pod"].origin == "HOSTNAME"


def test_the_nodes_host_name_is_not_the_pods_name(account):
    env = INSIDE | {"NODE_NAME": "ip-10-0-1-7.ec2.internal", "HOSTNAME": "ip-10-0-1-7.ec2.internal"}
    assert "k8s_pod" not in values(ask(env, account))
    assert "k8s_pod" not in values(ask(env | {"HOSTNAME": "ip-10-0-1-7"}, account))


def test_a_host_name_that_may_be_truncated_is_not_the_pods_name(account):
    assert "k8s_pod" not in values(ask(INSIDE | {"HOSTNAME": "x" * 63}, account))
    assert values(ask(INSIDE | {"HOSTNAME": "x" * 62}, account))["k8s_pod"] == "x" * 62


def test_the_message_names_the_variables_that_the_pod_must_set(account):
    assert ask({}, account, ["k8s_node", "k8s_namespace"]).trouble == (
        "the pod's environment lacks K8S_NODE_NAME (fieldRef spec.nodeName)"
    )


def test_an_empty_variable_is_ignored(account):
    assert values(ask({"K8S_NODE_NAME": " ", "NODE_NAME": "node"}, account))["k8s_node"] == "node"
