"""
The plans of terraform/aws by the real Terraform on a stand-in for hashicorp/aws, as botocore, moto and checkov take them.

What each example plans is kept in golden/terraform/aws; `UPDATE_GOLDEN=1 pytest tests/deploy/test_terraform_aws.py`
renews it.
"""

import json
import re
import subprocess

import pytest
import yaml
from botocore.exceptions import ClientError
from tests.deploy import terraform as tf
from tests.deploy import tools
from tests.deploy.test_ecs import actions
from tests.deploy.test_ecs import agent_of as container_of
from tools.dashboards import without_jobs

from chipwatch.advisor.dashboard.make import make
from chipwatch.advisor.dashboard.options import BoardOptions as Options
from chipwatch.config.convert import options_of
from chipwatch.config.load import load
from chipwatch.config.naming.profiles import PROFILES
from chipwatch.config.options import TABLES, Config

FOLDER = tf.ROOT / "terraform/aws"
FILES = FOLDER.parent.parent / "ecs-sidecar/task-definitions"
LONG = 300.0

ACCOUNT = "123456789012"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/chipwatch@sha256:{'0' * 64}"
TOPIC = f"arn:aws:sns:us-east-1:{ACCOUNT}:pager"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/some-role"
GIVEN = {
    "ec2-fleet": {
        "subnet_ids": ["subnet-0123456789abcdef0"],
        "security_group_ids": ["sg-0123456789abcdef0"],
        "image_id": "ami-00000000000000640",
        "agent_version": "0.1.0",
        "wheelhouse": "s3://wheels/chipwatch/0.1.0",
        "sums_sha256": "a" * 64,
        "alarm_actions": [TOPIC],
    },
    "ecs-cluster": {
        "image": IMAGE,
        "subnet_ids": ["subnet-0123456789abcdef0"],
        "security_group_ids": ["sg-0123456789abcdef0"],
        "alarm_actions": [TOPIC],
    },
    "ecs-daemon": {
        "image": IMAGE,
        "cluster_arn": f"arn:aws:ecs:us-east-1:{ACCOUNT}:cluster/train",
        "alarm_actions": [TOPIC],
    },
    "ecs-sidecar": {
        "image": IMAGE,
        "training_image": f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/training:1",
        "training_repository_arns": [f"arn:aws:ecr:us-east-1:{ACCOUNT}:repository/training"],
    },
    "eks-pod-identity": {
        "cluster_name": "train",
        "oidc_provider_arn": f"arn:aws:iam::{ACCOUNT}:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/ABC",
    },
    "dashboards-and-alarms": {},
    "managed-collector": {
        "vpc_id": "vpc-0123456789abcdef0",
        "subnet_ids": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
        "agents_security_group_id": "sg-0123456789abcdef0",
        "agents_dns_name": "agents.chipwatch.internal",
    },
}
"""Variables of the examples."""


# -- plans -------------------------------------------------------------------------------------------------------


def test_the_settings_are_those_that_the_agent_knows():
    known = {"CONFIG", *(name.upper() for name in options_of(Config))} - {"COMMON_DIMS", *map(str.upper, TABLES)}
    variables = tf.blocks(FOLDER / "modules/ecs")["variable"]
    for name in ("environment", "secrets"):
        assert set(re.search(r"CHIPWATCH_\(\(([A-Z_|]+)\)", variables[name])[1].split("|")) == known
    names = re.search(r'NAMES = "\^\(\|([^)]+)\)\(,\(([^)]+)\)\)\*', variables["environment"])
    first, later = (set(part.replace("[.]", ".").split("|")) for part in names.groups())
    assert (first, later) == ({*PROFILES}, {*PROFILES} - {"native"})


@pytest.mark.parametrize("name", GIVEN)
def test_an_example_plans_what_it_planned(planned, name):
    tf.check_golden(tf.GOLDEN / f"aws/{name}.json", tf.document(planned(name)))


# -- what is planned, taken by others ----------------------------------------------------------------------------


def test_the_launch_template_installs_what_the_variables_name(planned):
    template = tf.only(tf.of_type(planned("ec2-fleet"), "aws_launch_template"))
    script = tf.unpacked(template["user_data"])
    settings = dict(line.split("=", 1) for line in script.split("END_OF_SETTINGS")[1].strip("'\n").splitlines())
    assert {key: value for key, value in settings.items() if value} == {
        "version": "0.1.0", "extras": "cloudwatch", "sink": "cloudwatch", "namespace": "Chipwatch", "level": "basic",
        "common_dims": "instance_id,instance_type,autoscaling_group", "wheelhouse": "s3://wheels/chipwatch/0.1.0",
        "sums_sha256": "a" * 64,
    }  # fmt: skip
    for name in ("chipwatch.service", "uninstall.sh"):
        assert (FOLDER / "files" / name).read_text().strip() in script
    assert len(template["user_data"]) * 3 / 4 < 16 * 1024
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=LONG, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert template["metadata_options"][0]["http_tokens"] == "required"


@pytest.mark.parametrize(
    ("instance_type", "alarm"),
    [("p5.48xlarge", "gpu-idle"), ("g5g.xlarge", "gpu-idle"), ("p6e-gb200.36xlarge", "gpu-idle"), ("trn2.48xlarge", "neuron-core-busy"), ("inf2.xlarge", "neuron-core-busy"), ("c7gn.large", None)],
)  # fmt: skip
def test_the_fleets_image_is_the_given_one_and_its_alarms_watch_the_types_chips(terraform, instance_type, alarm):
    plan = terraform.plan(FOLDER / "examples/ec2-fleet", GIVEN["ec2-fleet"] | {"instance_type": instance_type})
    assert tf.only(tf.of_type(plan, "aws_launch_template"))["image_id"] == "ami-00000000000000640"
    alarms = {one["alarm_name"].split("-", 1)[1] for one in tf.of_type(plan, "aws_cloudwatch_metric_alarm").values()}
    assert alarms & {"gpu-idle", "neuron-core-busy"} == ({alarm} if alarm else set())
    roles = tf.of_type(plan, "aws_iam_role_policy_attachment").values()
    assert [one["policy_arn"].rpartition("/")[2] for one in roles] == ["AmazonSSMManagedInstanceCore"]


P5 = {"instance_type": "p5.48xlarge", "efa_interfaces": 32, "placement_group": "train", "capacity_reservation": {"id": "cr-0123456789abcdef0", "is_block": True}}  # fmt: skip
UPDATE = {"agent_version": "0.2.0", "wheelhouse": "s3://wheels/chipwatch/0.2.0", "sums_sha256": "b" * 64}


def test_an_update_of_the_agent_changes_no_instance_of_a_p5_fleet(terraform):
    given = GIVEN["ec2-fleet"] | P5
    plan = terraform.change(FOLDER / "examples/ec2-fleet", given, given | UPDATE)
    changed = {
        one["address"]: one["change"] for one in plan["resource_changes"] if one["change"]["actions"] != ["no-op"]
    }
    assert {tuple(change["actions"]) for change in changed.values()} == {("update",)}, "nothing is replaced"
    assert {re.sub(r"module\.\w+(\[\d\])?\.|\[.*", "", address) for address in changed} == {
        "aws_ssm_document.this", "aws_launch_template.this", "aws_iam_role_policy.install",
    }  # fmt: skip
    group = tf.only(tf.of_type(plan, "aws_autoscaling_group"))
    assert "instance_refresh" not in group
    template = next(change for address, change in changed.items() if "aws_launch_template" in address)
    differs = {key for key, value in template["after"].items() if template["before"][key] != value}
    assert differs <= {"user_data", "description"}, "image, type and network interfaces stay"
    assert len(template["after"]["network_interfaces"]) == 32
    document = next(change for address, change in changed.items() if "aws_ssm_document" in address)
    assert "version=0.1.0" in document["before"]["content"]
    assert "version=0.2.0" in document["after"]["content"]


REGISTRIES = {
    "dkr.ecr.us-east-1.amazonaws.com": "us-east-1",
    "dkr.ecr-fips.us-gov-west-1.amazonaws.com": "us-gov-west-1",
    "dkr-ecr.us-east-1.on.aws": "us-east-1",
    "dkr-ecr-fips.us-east-2.on.aws": "us-east-2",
    "dkr.ecr.cn-north-1.amazonaws.com.cn": "cn-north-1",
}
"""The addresses of ECR: https://docs.aws.amazon.com/general/latest/gr/ecr.html."""


@pytest.mark.parametrize("host", REGISTRIES)
def test_whatever_address_of_ecr_an_image_has_it_may_be_pulled(terraform, host):
    given = {"image": f"{ACCOUNT}.{host}/team/chipwatch@sha256:{'0' * 64}", "create_daemon": False}
    plan = terraform.plan(FOLDER / "modules/ecs", given)
    statements = json.loads(tf.only(tf.of_type(plan, "aws_iam_role_policy"))["policy"])["Statement"]
    (pull,) = [one for one in statements if one["Sid"] == "PullImage"]
    assert pull["Resource"].split(":")[3:] == [REGISTRIES[host], ACCOUNT, "repository/team/chipwatch"]


def task(planned):
    """Return what a planned task definition and a file say alike, as ECS gets it."""
    volumes = []
    for volume in planned["volume"]:
        host = {"host": {"sourcePath": volume["host_path"]}} if volume.get("host_path") else {}
        (docker,) = volume.get("docker_volume_configuration") or [None]
        volumes.append({"name": volume["name"], **host, **({"dockerVolumeConfiguration": docker} if docker else {})})
    (platform,) = planned["runtime_platform"]
    told = {
        "requiresCompatibilities": planned["requires_compatibilities"], "networkMode": planned["network_mode"],
        "pidMode": planned.get("pid_mode"), "cpu": planned.get("cpu"), "memory": planned.get("memory"), "volumes": volumes,
        "runtimePlatform": {"cpuArchitecture": platform["cpu_architecture"], "operatingSystemFamily": platform["operating_system_family"]},
        "containerDefinitions": json.loads(planned["container_definitions"]),
        "tags": [{"key": key, "value": value} for key, value in planned["tags"].items()],
    }  # fmt: skip
    return {key: value for key, value in told.items() if value is not None}


@pytest.fixture
def of_module(terraform):
    """Plan the module ecs as a file of ecs-sidecar has it."""

    def plan(kind, **given):
        file = json.loads((FILES / f"{kind}.json").read_text())
        agent = container_of(file)
        secrets = {pair["name"]: pair["valueFrom"] for pair in agent.get("secrets", [])}
        variables = {
            "image": agent["image"],
            "accelerator": kind.split("-")[1] if kind.endswith(("nvidia", "neuron")) else "none",
            "task_role_arn": file["taskRoleArn"],
            "execution_role_arn": file["executionRoleArn"],
            "create_execution_role": False,
            "cluster_arn": f"arn:aws:ecs:us-east-1:{ACCOUNT}:cluster/train",
            "secrets": secrets,
            "tags": {pair["key"]: pair["value"] for pair in file["tags"]},
        }
        return file, terraform.plan(FOLDER / "modules/ecs", variables | given)

    return plan


def in_order(value):
    """Return the same with lists of named things sorted, and without an order that says nothing."""
    if isinstance(value, dict):
        return {key: in_order(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted(map(in_order, value), key=lambda one: json.dumps(one, sort_keys=True))
    return value


@pytest.mark.parametrize("kind", ["daemon-ec2", "daemon-nvidia", "daemon-neuron"])
def test_the_daemon_is_that_of_the_file(of_module, kind):
    file, plan = of_module(kind)
    found = tf.only(tf.of_type(plan, "aws_ecs_task_definition"))
    later = {"family", "taskRoleArn", "executionRoleArn"}
    assert in_order(task(found)) == in_order({key: value for key, value in file.items() if key not in later})


@pytest.mark.parametrize("kind", ["sidecar-fargate", "sidecar-ec2", "sidecar-nvidia", "sidecar-neuron"])
def test_the_sidecar_is_that_of_the_file(of_module, kind):
    launch = "FARGATE" if kind.endswith("fargate") else "EC2"
    file, plan = of_module(kind, create_daemon=False, sidecar_launch_type=launch)
    outputs = {name: one["value"] for name, one in plan["planned_values"]["outputs"].items() if "value" in one}
    assert in_order(outputs["sidecar_container_definition"]) == in_order(container_of(file))
    assert json.loads(outputs["sidecar_container_definition_json"]) == outputs["sidecar_container_definition"]
    volume = outputs["sidecar_volume"]
    docker = volume["docker_volume_configuration"]
    assert [{"name": volume["name"]} | ({"dockerVolumeConfiguration": docker} if docker else {})] == file["volumes"]
    assert outputs.get("sidecar_pid_mode") == file.get("pidMode")


@pytest.mark.parametrize("name", GIVEN)
def test_iam_takes_the_planned_roles_and_they_are_the_least(planned, client, name):
    iam, plan = client("iam"), planned(name)
    allowed = {
        "SendMetrics": {"cloudwatch:PutMetricData"},
        "FindAutoScalingGroup": {"ec2:DescribeTags"},
        "ReadFiles": {"s3:GetObject"},
        "ListWheels": {"s3:ListBucket"},
        "LogIn": {"ecr:GetAuthorizationToken"},
        "PullImage": {"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"},
        "WriteLogs": {"logs:CreateLogStream", "logs:PutLogEvents"},
    }
    roles, policies = tf.of_type(plan, "aws_iam_role"), tf.of_type(plan, "aws_iam_role_policy")
    for n, role in enumerate(roles.values()):
        iam.create_role(RoleName=f"{name}-{n}", AssumeRolePolicyDocument=role["assume_role_policy"])
        assert "*" not in role["assume_role_policy"].replace(f":{ACCOUNT}:*", "")
    for n, policy in enumerate(policies.values()):
        said = json.loads(policy["policy"])
        for statement in said["Statement"]:
            assert set(actions({"Statement": [statement]})) == allowed[statement["Sid"]]
            unbound = statement["Resource"] == "*"
            assert unbound == (statement["Sid"] in {"SendMetrics", "FindAutoScalingGroup", "LogIn"})
            if statement["Sid"] == "SendMetrics":
                assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Chipwatch"}}
        iam.create_policy(PolicyName=f"{name}-{n}", PolicyDocument=policy["policy"])
        with pytest.raises(ClientError, match="MalformedPolicyDocument"):
            iam.create_policy(PolicyName="wrong", PolicyDocument=policy["policy"].replace('"Allow"', '"Alow"'))
    by_api = any("ec2:DescribeTags" in policy["policy"] for policy in policies.values())
    assert by_api == (name == "ec2-fleet"), "only where autoscaling_group is among the dimensions"


def said_by_the_generator(name, *, alarms):
    families, dims, level = SAME[name]
    flags = {"level": level, "common_dims": dims, "region": "us-east-1", "namespace": "Chipwatch"}
    wishes = Options(cloud="cloudwatch", families=families, alarms=alarms, **EXPECTED.get(name, {}))
    config = load(None, flags, {})
    return json.loads(make(config if alarms or "gpu" in families else without_jobs(config, ""), wishes).text)


def query(expression):
    """Return a search or a query with the dimensions that it names as a set: their order says nothing."""
    words = re.findall(r'"[^"]*"|[^",]+', expression)
    return sorted(word.strip() for word in words if word.strip())


SAME = {
    "ec2-fleet": (("host", "neuron", "health"), ["instance_id", "instance_type", "autoscaling_group"], "basic"),
    "ecs-daemon": (("host", "gpu"), ["instance_id", "instance_type", "ecs_cluster"], "detailed"),
    "ecs-sidecar": (("host",), ["ecs_cluster", "ecs_task_family", "ecs_task"], "basic"),
    "dashboards-and-alarms": (
        ("host", "gpu", "neuron", "health", "fabric"),
        ["instance_id", "neuron_runtime_tag"],
        "detailed",
    ),
}
EXPECTED = {"ec2-fleet": {"groups": (tf.LATER,)}, "dashboards-and-alarms": {"hosts": 12}}


@pytest.mark.parametrize("name", SAME)
def test_cloudwatch_takes_the_planned_dashboard_and_it_is_the_generators(planned, client, name):
    dashboard = tf.only(tf.of_type(planned(name), "aws_cloudwatch_dashboard"))
    cloudwatch = client("cloudwatch")
    cloudwatch.put_dashboard(DashboardName=dashboard["dashboard_name"], DashboardBody=dashboard["dashboard_body"])

    def graphs(widgets):
        found = [one["properties"] for one in widgets if one["type"] == "metric"]
        return {one["title"]: [query(line[0]["expression"]) for line in one["metrics"]] for one in found}

    widgets = json.loads(dashboard["dashboard_body"])["widgets"]
    generated = said_by_the_generator(name, alarms=False)["widgets"]
    assert graphs(widgets) == graphs(generated)
    assert {one["properties"]["region"] for one in widgets if one["type"] == "metric"} == {"us-east-1"}
    taken = [
        (x, y) for w in widgets for x in range(w["x"], w["x"] + w["width"]) for y in range(w["y"], w["y"] + w["height"])
    ]
    assert len(taken) == len(set(taken)), "no graph lies on another"
    assert max(x for x, _ in taken) < 24


@pytest.mark.parametrize("name", [name for name in SAME if name != "ecs-sidecar"])
def test_cloudwatch_takes_the_planned_alarms_and_they_are_the_generators(planned, client, name):
    cloudwatch, plan = client("cloudwatch"), planned(name)
    generated = {alarm["AlarmName"]: alarm for alarm in said_by_the_generator(name, alarms=True)}
    found = {}
    for alarm in tf.of_type(plan, "aws_cloudwatch_metric_alarm").values():
        actions = [TOPIC] if alarm.get("alarm_actions") else []
        told = {**tf.alarm(alarm), "ActionsEnabled": alarm["actions_enabled"], "AlarmActions": actions, "OKActions": []}
        cloudwatch.put_metric_alarm(**told)
        if alarm["alarm_name"].endswith("-install-failed"):  # the user-data's own, of which the agent knows nothing
            continue
        found[told["AlarmName"].split("-", 1)[1]] = told
    assert found.keys() <= {key.removeprefix("chipwatch-") for key in generated}
    otherwise = {"gpu-idle", "gpu-memory-full", "neuron-core-idle"} if name == "dashboards-and-alarms" else set()
    left_out = {"neuron-core-busy"} if name == "dashboards-and-alarms" else set()
    assert {key.removeprefix("chipwatch-") for key in generated} - found.keys() == left_out
    for key, told in found.items():
        wanted = generated[f"chipwatch-{key}"]
        (first, *others), (theirs, *more) = told["Metrics"], wanted["Metrics"]
        assert query(first.pop("Expression")) == query(theirs.pop("Expression"))
        assert [first, *sorted(others, key=str)] == [theirs, *sorted(more, key=str)]
        if key not in otherwise:
            for word in ("Threshold", "EvaluationPeriods", "DatapointsToAlarm", "TreatMissingData", "AlarmDescription"):
                assert told[word] == wanted[word], (key, word)


def test_the_collector_reaches_the_page_alone_and_finds_it_by_its_name(planned):
    plan = planned("managed-collector")
    rules = [tf.only(tf.of_type(plan, f"aws_vpc_security_group_{way}_rule")) for way in ("egress", "ingress")]
    assert [(rule["ip_protocol"], rule["from_port"], rule["to_port"]) for rule in rules] == [("tcp", 9465, 9465)] * 2
    assert all({"cidr_ipv4", "cidr_ipv6"}.isdisjoint(rule) for rule in rules)
    assert not any(name.startswith("aws_iam") for name in tf.resources(plan)), "nobody needs a permission"
    group = tf.only(tf.of_type(plan, "aws_security_group"))
    for text in (group["description"], *(rule["description"] for rule in rules)):
        assert re.fullmatch(r"[a-zA-Z0-9 ._:/()#,@\[\]+=&;{}!$*-]+", text), "EC2 takes no other characters"
    scraper = tf.only(tf.of_type(plan, "aws_prometheus_scraper"))
    (destination,) = scraper["destination"][0]["cloudwatch"]
    assert destination["dataset_arn"] == f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:dataset/default"
    (job,) = yaml.safe_load(scraper["scrape_configuration"])["scrape_configs"]
    assert job["dns_sd_configs"] == [{"names": ["agents.chipwatch.internal"], "type": "A", "port": 9465}]


# -- checkov -----------------------------------------------------------------------------------------------------

LEFT = {
    ("CKV_AWS_65", "aws_ecs_cluster.this"): "Container Insights bills a second set of metrics for the same hosts",
    ("CKV_AWS_26", "aws_sns_topic.pager"): "the key is the example's variable: AWS's own does not let alarms publish",
    ("CKV2_AWS_5", "aws_security_group.collector"): "the scraper has it, a resource that checkov does not know",
    ("CKV_AWS_158", "aws_cloudwatch_log_group.this"): "AWS's key does, unless log_kms_key_arn names another",
    ("CKV_AWS_336", "aws_ecs_task_definition.training"): "the training writes to its own root; the agent does not",
    ("CKV_AWS_338", "aws_cloudwatch_log_group.this"): "an agent's log is of no use after a month; log_retention_days",
}
"""Findings of checkov that do not apply, with place and reason."""


def faults(*words):
    """Return what checkov finds fault with: check and resource."""
    command = [tools.checkov(), *words, "--quiet", "--compact", "--skip-download", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 100, report["summary"]
    assert report["summary"]["parsing_errors"] == 0
    found = [(one["check_id"], one["resource"]) for one in report["results"]["failed_checks"]]
    return {(check, re.sub(r"^(module\.[^.]+\.)*|\[[^]]*\]", "", resource)) for check, resource in found}


@pytest.mark.proof
def test_checkov_finds_nothing_new_in_the_modules():
    words = ["--directory", FOLDER, "--skip-path", "examples"]  # these are in the plans
    assert faults(*words, "--framework", "terraform") <= LEFT.keys()


@pytest.mark.proof
def test_checkov_finds_nothing_new_in_the_plans(planned, tmp_path):
    words = ["--framework", "terraform_plan"]
    for name in GIVEN:
        (file := tmp_path / f"{name}.json").write_text(json.dumps(planned(name)))
        words += ["--file", file]
    assert faults(*words) == LEFT.keys(), "or a reason is of use no more"
