"""The pods of helm/sidecar: upstream's schemas, the rules of a server, Pod Security, and the agent itself."""

import json
from pathlib import Path

import pytest
import yaml
from tests.deploy import tools
from tests.deploy.test_helm import VERSIONS, breaks_restricted, faults_by_schema
from tests.doubles import kube

from chipwatch.config import load as configuration
from chipwatch.engine.build import validate

FOLDER = Path(__file__).parents[2] / "helm/sidecar"
FILES = sorted(FOLDER.glob("*.yaml"))
BEFORE_SIDECARS = "1.25"
each = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def read(file):
    return yaml.safe_load(file.read_text())


def pod_of(job):
    return job["spec"]["template"]["spec"]


def agent_of(file):
    (found,) = [one for one in pod_of(read(file))["initContainers"] if one["name"] == "chipwatch"]
    return found


def environment(file):
    return {one["name"]: one.get("value", f"my-{one['name'].lower()}") for one in agent_of(file)["env"]}


def test_they_fit_the_schemas_of_all_versions_that_have_sidecars():
    tools.kubernetes_validate()
    versions = [version for version in VERSIONS if version != BEFORE_SIDECARS]
    assert faults_by_schema(versions, [read(file) for file in FILES]) == ""


@each
def test_a_restricted_namespace_lets_them_in(file):
    job = read(file)
    assert kube.fault(job["kind"], job, None) is None
    assert breaks_restricted(pod_of(job)) == []
    assert agent_of(file)["securityContext"]["readOnlyRootFilesystem"] is True


@each
def test_the_training_neither_waits_for_the_agent_nor_ends_with_it(file):
    agent = agent_of(file)
    assert agent["restartPolicy"] == "Always", "else it is an init container, and the training never begins"
    assert not {"startupProbe", "readinessProbe", "lifecycle"} & agent.keys()
    assert pod_of(read(file))["terminationGracePeriodSeconds"] >= 10
    assert agent["resources"]["requests"]["memory"] == agent["resources"]["limits"]["memory"]


@each
def test_the_spool_is_on_a_mount_and_no_variable_stands_twice(file):
    assert environment(file)["CHIPWATCH_SPOOL"] in {mount["mountPath"] for mount in agent_of(file)["volumeMounts"]}
    assert len({one["name"] for one in agent_of(file)["env"]}) == len(agent_of(file)["env"])


@each
def test_its_sink_takes_the_configuration(file):
    config = configuration.load(None, {}, environment(file))
    validate(config)
    assert config.sink == ("cloudwatch" if file.stem == "eks-fargate" else "google",)


@each
def test_the_agent_says_of_which_pod_it_is(file, agent, tmp_path):
    program, *words = agent_of(file)["command"]
    assert program == "agent"
    env = environment(file) | {"CHIPWATCH_SINK": "stdout", "CHIPWATCH_SPOOL": str(tmp_path)}
    done = agent.run(*words, "--once", "--collector", "memory", "--format", "json", env=env)
    assert done.returncode == 0, done.stderr
    dims = json.loads(done.stdout.splitlines()[0])["dims"]
    assert dims == {"k8s_cluster": "training", "k8s_namespace": "my-k8s_namespace", "k8s_pod": "my-k8s_pod_name"}
