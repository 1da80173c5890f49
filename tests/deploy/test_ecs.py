"""
ECS task definitions and IAM policies, by four judges, none of which sees all: botocore's parameters, moto's server, a
walk of the model's enumerations and of the volumes, and cfn-lint.
"""

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import botocore.session
import pytest
from botocore.exceptions import ClientError
from tests.deploy import tools

from chipwatch.config.load import load, plugin_config, sink_options
from chipwatch_sinks.cloudwatch import CloudwatchSink

FOLDER = Path(__file__).parents[2] / "ecs-sidecar"
FILES = sorted((FOLDER / "task-definitions").glob("*.json"))
POLICIES = sorted((FOLDER / "iam").glob("*.json"))
DAEMONS = [file for file in FILES if file.name.startswith("daemon-")]
SIDECARS = [file for file in FILES if file.name.startswith("sidecar-")]
LONG = 300.0
AS_IT_IS = {"DockerLabels", "Options"}
"""Keys whose values have names of the user's."""


def read(file):
    return json.loads(file.read_text())


def agent_of(task):
    (container,) = [container for container in task["containerDefinitions"] if container["name"] == "chipwatch"]
    return container


def environment(task):
    return {pair["name"]: pair["value"] for pair in agent_of(task)["environment"]}


def each(files):
    return pytest.mark.parametrize("file", files, ids=lambda file: file.stem)


# -- the judges -------------------------------------------------------------------------------------------------


def model(task):
    """Mistakes that botocore does not find: enumerations, negative numbers, names given twice, volumes that nobody declares."""
    shape = botocore.session.Session().get_service_model("ecs").operation_model("RegisterTaskDefinition").input_shape
    faults = list(walk(shape, task, "task"))
    volumes = {volume["name"] for volume in task.get("volumes", [])}
    for container in task["containerDefinitions"]:
        mounted = {mount["sourceVolume"] for mount in container.get("mountPoints", [])}
        faults += [f"{container.get('name')}: nobody declares the volume {volume}" for volume in mounted - volumes]
        names = [pair["name"] for key in ("environment", "secrets") for pair in container.get(key, [])]
        paths = [mount["containerPath"] for mount in container.get("mountPoints", [])]
        faults += [f"{name} is given twice" for name, times in Counter([*names, *paths]).items() if times > 1]
        if not ({"memory", "memoryReservation"} & container.keys() or "memory" in task):
            faults.append(f"{container.get('name')}: no memory anywhere")
    if "FARGATE" in task.get("requiresCompatibilities", []):
        faults += ["Fargate has no pidMode host"] * (task.get("pidMode") == "host")
        faults += ["Fargate has awsvpc only"] * (task.get("networkMode") != "awsvpc")
    return faults


def walk(shape, value, path):
    if shape.type_name == "structure":
        yield from (f"{path}: no {key}" for key in shape.required_members if key not in value)
        for key, inner in value.items():
            if key in shape.members:
                yield from walk(shape.members[key], inner, f"{path}.{key}")
            else:
                yield f"{path}: unknown key {key}"
    elif shape.type_name == "list":
        for n, inner in enumerate(value):
            yield from walk(shape.member, inner, f"{path}[{n}]")
    elif shape.type_name == "map":
        for key, inner in value.items():
            yield from walk(shape.value, inner, f"{path}.{key}")
    elif isinstance(value, int) and value < 0:
        yield f"{path}: {value} is negative"
    elif getattr(shape, "enum", None) and value not in shape.enum:
        yield f"{path}: {value!r} is none of {shape.enum}"


def pascal(value):
    """Return the same in CloudFormation's words."""
    if isinstance(value, list):
        return [pascal(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    words = {key[0].upper() + key[1:]: inner for key, inner in value.items()}
    return {key: inner if key in AS_IT_IS else pascal(inner) for key, inner in words.items()}


def cfn_lint(resources, folder):
    """Return the names of the resources that cfn-lint finds fault with; each is a type and its properties."""
    names = {f"R{n}": name for n, name in enumerate(resources)}
    written = {f"R{n}": {"Type": kind, "Properties": it} for n, (kind, it) in enumerate(resources.values())}
    file = folder / "template.json"
    file.write_text(json.dumps({"AWSTemplateFormatVersion": "2010-09-09", "Resources": written}))
    command = [tools.cfn_lint(), "--format", "json", "--regions", "us-east-1", "--", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    faults = json.loads(done.stdout)
    assert bool(faults) == bool(done.returncode), done.stderr
    return {names[fault["Location"]["Path"][1]]: fault["Message"] for fault in faults}


def as_resource(task):
    return "AWS::ECS::TaskDefinition", pascal(task)


@pytest.fixture
def ecs(client):
    return client("ecs")


# -- the task definitions ---------------------------------------------------------------------------------------


def test_ecs_takes_every_task_definition(ecs):
    for file in FILES:
        registered = ecs.register_task_definition(**read(file))["taskDefinition"]
        assert registered["status"] == "ACTIVE", file.name


def test_the_daemon_becomes_a_daemon_service(ecs):
    ecs.register_task_definition(**read(FOLDER / "task-definitions/daemon-ec2.json"))
    ecs.create_cluster(clusterName="train")
    service = ecs.create_service(
        cluster="train", serviceName="chipwatch", taskDefinition="chipwatch-daemon",
        schedulingStrategy="DAEMON", launchType="EC2",
    )["service"]  # fmt: skip
    assert service["schedulingStrategy"] == "DAEMON"


@each(FILES)
def test_the_model_has_every_word_and_every_volume_is_declared(file):
    assert model(read(file)) == []


def test_cloudformation_would_take_them(tmp_path):
    assert cfn_lint({file.stem: as_resource(read(file)) for file in FILES}, tmp_path) == {}


@each(FILES)
def test_the_agent_may_do_nothing_but_its_work(file):
    task, agent = read(file), agent_of(read(file))
    assert agent["user"] == "65532:65532"
    assert agent["readonlyRootFilesystem"] is True
    assert agent["privileged"] is False
    assert agent["linuxParameters"]["capabilities"] == {"drop": ["ALL"]}
    assert agent.get("dockerSecurityOptions", []) == (
        [] if "FARGATE" in task["requiresCompatibilities"] else ["no-new-privileges"]
    )
    assert "portMappings" not in agent
    assert re.search(r"@sha256:[0-9a-f]{64}$", agent["image"])
    assert [m["sourceVolume"] for m in agent["mountPoints"] if not m["readOnly"]] == ["spool"]


@each(FILES)
def test_the_agent_never_holds_anything_up(file):
    task, agent = read(file), agent_of(read(file))
    assert agent["logConfiguration"]["options"]["mode"] == "non-blocking"
    assert agent["healthCheck"]["command"] == ["CMD", "/app/bin/agent", "status", "--health"]
    assert agent["stopTimeout"] >= 10
    assert agent["memoryReservation"] <= agent["memory"]
    # An init is of use only to the first process: with pidMode that is another one.
    assert agent["linuxParameters"].get("initProcessEnabled", False) is ("pidMode" not in task)


@each(SIDECARS)
def test_a_sidecar_cannot_end_the_training_nor_keep_it_from_starting(file):
    task = read(file)
    (training,) = [container for container in task["containerDefinitions"] if container["name"] == "training"]
    assert training["essential"] is True
    assert "dependsOn" not in training
    assert agent_of(task)["essential"] is False
    assert agent_of(task)["restartPolicy"]["enabled"] is True
    assert "secrets" not in agent_of(task), "a parameter that is missing keeps the whole task from starting"
    assert task.get("pidMode") in {None, "task"}


@each(DAEMONS)
def test_a_daemon_sees_the_host_and_cannot_write_to_it(file):
    task = read(file)
    assert (task["pidMode"], task["networkMode"]) == ("host", "host")
    sources = {v["name"]: v["host"]["sourcePath"] for v in task["volumes"] if "host" in v}
    mounts = {m["containerPath"]: sources[m["sourceVolume"]] for m in agent_of(task)["mountPoints"] if m["readOnly"]}
    assert mounts == {"/host/proc": "/proc", "/host/sys": "/sys", "/host/root": "/"}
    settings = environment(task)
    assert {f"CHIPWATCH_{path.upper()[6:]}": path for path in mounts}.items() <= settings.items()
    assert [secret["name"] for secret in agent_of(task)["secrets"]] == ["CHIPWATCH_LEVEL"]


@each(FILES)
def test_the_agent_understands_the_definition(file, caplog):
    settings = environment(read(file))
    secrets = {secret["name"]: "detailed" for secret in agent_of(read(file)).get("secrets", [])}
    config = load(None, {}, settings | secrets)
    assert config.sink == ("cloudwatch",)
    assert config.level == ("detailed" if secrets else "basic")
    assert plugin_config(CloudwatchSink, "sinks", "cloudwatch", config, settings).namespace == "Chipwatch"
    assert sink_options("cloudwatch", config, settings)
    assert str(config.spool) in {mount["containerPath"] for mount in agent_of(read(file))["mountPoints"]}
    assert caplog.text == ""


def test_gpus_are_seen_and_not_taken():
    for kind in ("sidecar", "daemon"):
        task = read(FOLDER / f"task-definitions/{kind}-nvidia.json")
        assert environment(task)["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
        assert environment(task)["NVIDIA_VISIBLE_DEVICES"] == "all"
        assert "resourceRequirements" not in agent_of(task)


def test_neuron_devices_are_given_to_the_agent_too():
    for kind in ("sidecar", "daemon"):
        task = read(FOLDER / f"task-definitions/{kind}-neuron.json")
        (device,) = agent_of(task)["linuxParameters"]["devices"]
        assert device == {"hostPath": "/dev/neuron0", "containerPath": "/dev/neuron0", "permissions": ["read", "write"]}
        assert agent_of(task)["memory"] >= 320 + 64


# -- IAM --------------------------------------------------------------------------------------------------------


def actions(policy):
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        found = statement["Action"]
        yield from [found] if isinstance(found, str) else found


def test_the_tasks_role_may_send_into_one_namespace_and_nothing_else():
    (statement,) = read(FOLDER / "iam/task-role.json")["Statement"]
    assert statement["Action"] == "cloudwatch:PutMetricData"
    assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Chipwatch"}}
    assert statement["Resource"] == "*", "PutMetricData knows no resources"
    for file in FILES:
        assert environment(read(file))["CHIPWATCH_NAMESPACE"] == "Chipwatch"


def test_a_word_that_needs_more_has_a_separate_policy():
    assert list(actions(read(FOLDER / "iam/task-role-autoscaling-group.json"))) == ["ec2:DescribeTags"]
    for file in FILES:
        assert "autoscaling_group" not in environment(read(file))["CHIPWATCH_COMMON_DIMS"]


def test_the_execution_role_pulls_logs_and_reads_its_parameters():
    policy = read(FOLDER / "iam/execution-role.json")
    assert set(actions(policy)) == {
        "ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage",
        "ecr:GetDownloadUrlForLayer", "logs:CreateLogStream", "logs:PutLogEvents", "ssm:GetParameters",
    }  # fmt: skip
    assert [s["Sid"] for s in policy["Statement"] if s["Resource"] == "*"] == ["LogIn"], (
        "that action knows no resources"
    )


@each(POLICIES)
def test_no_policy_has_a_wildcard_for_an_action(file):
    assert not [action for action in actions(read(file)) if "*" in action]


def test_iam_takes_the_roles(client, tmp_path):
    iam = client("iam")
    trust = (FOLDER / "iam/trust.json").read_text()
    iam.create_role(RoleName="chipwatch", AssumeRolePolicyDocument=trust)
    for file in POLICIES:
        if file.stem == "trust":
            continue
        iam.put_role_policy(RoleName="chipwatch", PolicyName=file.stem, PolicyDocument=file.read_text())
        document = iam.get_role_policy(RoleName="chipwatch", PolicyName=file.stem)["PolicyDocument"]
        assert document == read(file)
        wrong = file.read_text().replace('"Allow"', '"Alow"')
        with pytest.raises(ClientError, match="MalformedPolicyDocument"):
            iam.put_role_policy(RoleName="chipwatch", PolicyName="wrong", PolicyDocument=wrong)
    role = {
        "AssumeRolePolicyDocument": read(FOLDER / "iam/trust.json"),
        "Policies": [{"PolicyName": f.stem, "PolicyDocument": read(f)} for f in POLICIES if f.stem != "trust"],
    }
    assert cfn_lint({"role": ("AWS::IAM::Role", role)}, tmp_path) == {}
