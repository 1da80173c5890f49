"""The stand-in API server refuses what a real one does and merges as one does: else it would let a bad chart pass."""

import copy

import pytest
from tests.doubles import kube

POD = {
    "volumes": [{"name": "a", "hostPath": {"path": "/proc"}}],
    "containers": [
        {
            "name": "one",
            "volumeMounts": [{"name": "a", "mountPath": "/a"}],
            "ports": [{"name": "health", "containerPort": 1}],
            "livenessProbe": {"httpGet": {"port": "health"}},
            "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "0.125Gi"}},
        }
    ],
}


def broken(path: str, value) -> list[str]:
    pod = copy.deepcopy(POD)
    *way, last = path.split(".")
    part = pod
    for key in way:
        part = part[int(key)] if isinstance(part, list) else part[key]
    part[last] = value
    return list(kube.faults_of_pod(pod))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("volumes", POD["volumes"] * 2, "Duplicate"),
        ("volumes.0.hostPath", {"path": "/x/../y"}, "must not contain"),
        ("volumes.0.emptyDir", {}, "exactly one"),
        ("volumes", [], "Not found: a"),
        ("containers", POD["containers"] * 2, "Duplicate"),
        ("dnsPolicy", "None", "nameserver"),
        ("containers.0.volumeMounts", POD["containers"][0]["volumeMounts"] * 2, "unique"),
        ("containers.0.securityContext", {"privileged": True, "allowPrivilegeEscalation": False}, "cannot set"),
        ("containers.0.resources", {"requests": {"cpu": 1}, "limits": {"cpu": "999m"}}, "less than or equal to cpu"),
        ("containers.0.livenessProbe", {"httpGet": {"port": "other"}}, "no port is called other"),
        ("containers.0.livenessProbe", {"periodSeconds": 1}, "handler"),
        ("containers.0.startupProbe", {"exec": {}, "successThreshold": 2}, "must be 1"),
    ],
)
def test_a_pod_that_a_server_would_refuse_is_refused(path, value, said):
    assert any(said in problem for problem in broken(path, value))


def workload(selector: dict, labels: dict) -> dict:
    return {"spec": {"selector": {"matchLabels": selector}, "template": {"metadata": {"labels": labels}, "spec": POD}}}


def test_a_selector_fits_its_template_and_never_changes():
    old = workload({"a": "1"}, {"a": "1", "b": "2"})
    assert kube.fault("DaemonSet", old, None) is None
    assert "does not match" in kube.fault("DaemonSet", workload({"a": "1"}, {}), None)
    assert "immutable" in kube.fault("DaemonSet", workload({"b": "2"}, {"b": "2"}), old)


def test_a_strategic_patch_merges_lists_by_their_keys():
    below = {"env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}], "args": ["x"], "old": 1}
    patch = {
        "env": [{"name": "c", "value": "3"}, {"name": "a", "$patch": "delete"}],
        "$setElementOrder/env": [{"name": "c"}, {"name": "b"}],
        "args": ["y"],
        "old": None,
    }
    assert kube.merged(below, patch) == {
        "env": [{"name": "c", "value": "3"}, {"name": "b", "value": "2"}],
        "args": ["y"],
    }
