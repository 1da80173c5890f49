"""The DaemonSet on a cluster: its update beside dead nodes, the nodes that labels select, and its rights."""

import math
import os
import shutil
import socket
import subprocess

import pytest
from tests.deploy.test_helm import objects, of_file, one, pod_of, read, render

NODES, RIGHTS = map(read, ("nodes", "rights"))


def updated(spec, nodes, dead):
    """
    Return how many nodes an update reaches.

    Kubernetes' pkg/controller/daemon/update.go rounds `maxUnavailable` up. A dead node takes one of it until it is back,
    and the rest goes from node to node.
    """
    most = spec["updateStrategy"]["rollingUpdate"]["maxUnavailable"]
    most = most if isinstance(most, int) else math.ceil(nodes * int(most[:-1]) / 100)
    return nodes - dead if most > dead else 0


@pytest.mark.parametrize(
    ("most", "nodes", "dead", "reached"),
    [(None, 10, 1, 9), (None, 10, 2, 0), (None, 500, 99, 401), ("10%", 10, 1, 0), (None, 5, 1, 0), (2, 5, 1, 4)],
)
def test_one_dead_node_of_ten_does_not_stop_an_update(most, nodes, dead, reached):
    values = {"daemonSet": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": most}}}} if most else {}
    assert updated(one(render(values), "DaemonSet")["spec"], nodes, dead) == reached


def fits(rule, labels):
    return (labels.get(rule["key"]) in rule["values"]) is {"In": True, "NotIn": False}[rule["operator"]]


def selects(pod, labels):
    """Return whether a pod may run on a node, as Kubernetes reads `nodeSelector` and `nodeAffinity`."""
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    suits = any(all(fits(rule, labels) for rule in term["matchExpressions"]) for term in terms)
    return suits and pod["nodeSelector"].items() <= labels.items()


@pytest.mark.parametrize("node", NODES)
def test_the_labels_of_nvidia_s_operator_and_dra_driver_select_nodes(node):
    labels = {"kubernetes.io/os": "linux"} | NODES[node]["labels"]
    names = ("default", "dra", "gpu-operator")
    assert [name for name in names if selects(pod_of(objects(of_file(name))), labels)] == NODES[node]["runs"]


@pytest.mark.parametrize("brings", RIGHTS, ids=lambda brings: str(brings["values"]))
def test_each_value_brings_the_rights_that_it_takes_and_no_other(brings):
    pod, plain = pod_of(render(brings["values"])), pod_of(render({}))
    (container,) = pod["containers"]
    rights = pod | pod["securityContext"] | container["securityContext"]
    assert (rights["runAsUser"], rights["runAsGroup"], rights["capabilities"]) == (
        brings["user"],
        65532,
        {"drop": ["ALL"]},
    )
    assert [key for key in ("hostPID", "hostNetwork", "hostIPC", "privileged") if rights.get(key)] == brings["switches"]
    paths = {v["name"]: "{type} {path}".format(**v["hostPath"]) for v in pod["volumes"] if v not in plain["volumes"]}
    mounts = [mount for mount in container["volumeMounts"] if mount["name"] in paths and mount["readOnly"]]
    assert {mount["mountPath"]: paths[mount["name"]] for mount in mounts} == brings["mounts"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is not installed: apt-get install util-linux")
@pytest.mark.parametrize(("user", "group", "enters"), [(0, 65532, True), (65532, 0, False), (65532, 65532, False)])
def test_the_kubelet_s_socket_lets_in_user_0_without_group_or_capability_and_nobody_else(user, group, enters, tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    (tmp_path / "pod-resources").mkdir(mode=0o750)  # as the kubelet makes it
    path = tmp_path / "pod-resources/kubelet.sock"
    words = f"setpriv --reuid={user} --regid={group} --clear-groups --bounding-set=-all --inh-caps=-all test -w {path}"
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(path))
        path.chmod(0o755)
        assert (subprocess.run(words.split(), check=False).returncode == 0) is enters
