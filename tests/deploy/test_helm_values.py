"""Values that Kubernetes, a cloud or the agent would refuse end at `helm lint`, and values that these take do not."""

import functools
import json
import subprocess

import pytest
import yaml
from tests.deploy import tools
from tests.deploy.test_helm import CHART, CI, LONG, NEEDED, faults_by_schema, helm, one, pod_of, read, render, schema
from tests.doubles import kube

from chipwatch.config import load as configuration
from chipwatch.engine.build import validate

REFUSED, TAKEN, KINDS = map(read, ("refused", "taken", "kinds"))
OPEN = {"windowsOptions"}
"""Keys of Kubernetes that are not for this chart, whose pods run on Linux."""
UPSTREAM = """
import json, sys
from pathlib import Path
import kubernetes_validate
folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema/v1.37.0-local-strict"
json.dump({name: [*json.loads((folder / f"{name}.json").read_text())["properties"]] for name in json.load(sys.stdin)}, sys.stdout)
"""


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: json.dumps(case["values"])[:100])
def test_what_is_wrong_or_would_be_refused_later_is_refused_by_name(case, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(NEEDED | case["values"]))
    done = helm("lint", CHART, "--values", file)
    assert done.returncode == 1
    assert case["said"] in done.stdout


def test_no_case_stands_twice():
    assert len({json.dumps(case["values"]) for case in REFUSED}) == len(REFUSED) > 300
    assert len({json.dumps(values) for values in TAKEN}) == len(TAKEN) > 50


@pytest.mark.parametrize("path", ["jobs", "commonLabels", "prometheus.service", "probes.readiness", "neuron.enabled"])
def test_a_key_with_nothing_after_it_is_refused_by_its_name_where_the_chart_needs_it(path):
    """Helm takes the default of such a key away, in `template` and `install` but not in `lint`."""
    done = helm("template", "x", CHART, "--values", CI["eks-gpu"], "--set", f"{path}=null")
    section, _, key = path.rpartition(".")
    assert f"- {section or '(root)'}: {key} is required" in done.stderr


@pytest.mark.parametrize("values", TAKEN, ids=json.dumps)
def test_what_kubernetes_and_the_agent_take_is_taken(values, tmp_path, monkeypatch):
    found = render(values)
    assert [kube.fault(what["kind"], what, None) for what in found] == [None] * len(found)
    configs = {what["metadata"]["name"]: what.get("data") for what in found if what["kind"] == "ConfigMap"}
    workloads = [what for what in found if what["kind"] in ("DaemonSet", "Deployment")]
    assert workloads
    for workload in workloads:
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        file = tmp_path / "chipwatch.toml"
        file.write_text(configs[workload["metadata"]["name"]]["chipwatch.toml"])
        env = {e["name"]: e["value"] for e in container["env"] if "value" in e} | {"CHIPWATCH_CONFIG": str(file)}
        for key, value in env.items():
            monkeypatch.setenv(key, value)
        validate(configuration.load(file, {}, env))


def test_what_is_taken_fits_upstreams_schemas():
    tools.kubernetes_validate()
    assert faults_by_schema(["1.37"], [what for values in TAKEN for what in render(values)]) == ""


def test_the_parts_that_are_kubernetes_own_have_its_keys():
    tools.kubernetes_validate()
    command = [tools.python_of_tools(), "-c", UPSTREAM]
    done = subprocess.run(
        command, input=json.dumps([*KINDS.values()]), capture_output=True, text=True, timeout=LONG, check=True
    )
    theirs = json.loads(done.stdout)
    for path, kind in KINDS.items():
        part = functools.reduce(dict.__getitem__, path.split("/"), schema())
        assert part["additionalProperties"] is False, path
        assert {*part["properties"]} == {*theirs[kind]} - OPEN, path


# -- what followed from the values and was wrong ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "user"),
    [
        ({}, 65532),
        ({"podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False}}, 0),
        ({"securityContext": {"runAsUser": 2000}}, 2000),
        ({"securityContext": {"runAsUser": 2000}, "jobs": {"enabled": True, "podResources": True}}, 0),
    ],
)
def test_the_spools_folder_is_given_to_the_user_that_the_agent_is(values, user):
    pod = pod_of(render(values | {"spool": {"type": "hostPath"}}))
    assert f'"/var/lib/chipwatch", {user}\n' in pod["initContainers"][0]["args"][0]
    effective = pod["securityContext"] | pod["containers"][0]["securityContext"]
    assert effective["runAsUser"] == user
    assert effective["runAsNonRoot"] is (user != 0)


def test_a_policy_lets_out_to_the_receivers_of_all_sinks():
    receivers = {"otlp": {"endpoint_url": "http://gw:4318"}, "mlflow": {"tracking_uri": "http://mlflow", "run": "r"}}
    values = {"sinks": ["otlp", "mlflow"], "config": {"sinks": receivers}, "networkPolicy": {"enabled": True}}
    policy = one(render(values), "NetworkPolicy")["spec"]
    assert sorted(port["port"] for port in policy["egress"][-1]["ports"]) == [80, 443, 4318]
    assert all(rule["ports"] for rule in policy["egress"])
