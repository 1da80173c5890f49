"""Every malformed input is refused by name before anything is planned, and what is legal is planned; by the real Terraform."""

import json
import re

import pytest
from tests.deploy import terraform as tf
from tests.deploy import test_terraform_aws as aws
from tests.deploy import test_terraform_google as google
from tests.deploy.malformed import ACCOUNT, AWS, DIGEST, GOOGLE, PARAMETER, PROVIDER, SHA, TOPIC

PROJECT = google.PROJECT
EMAIL = f"training@{PROJECT}.iam.gserviceaccount.com"
AGENT = {"version": "0.1.0", "wheelhouse": "gs://wheels/chipwatch/0.1.0", "sums_sha256": SHA}
INDEX = {"wheelhouse": None, "sums_sha256": None, "constraints": "/constraints.txt", "wheel_sha256": SHA}
CLUSTER = f"arn:aws:ecs:us-east-1:{ACCOUNT}:cluster/train"
EC2 = {"image_id": "ami-0123456789abcdef0", "agent_version": "0.1.0", "wheelhouse": "s3://wheels/chipwatch/0.1.0"}
GIVEN = {
    "aws/modules/ec2": EC2 | {"instance_profile_arn": f"arn:aws:iam::{ACCOUNT}:instance-profile/chipwatch"},
    "aws/modules/install-script": {"agent": {"version": "0.1.0", "wheelhouse": "s3://wheels/chipwatch/0.1.0"}},
    "aws/modules/ssm": {"script": "#!/bin/sh\n"},
    "aws/modules/ecs": {"image": DIGEST, "task_role_arn": aws.ROLE, "cluster_arn": CLUSTER},
    "google": {"project_id": PROJECT, "agent": AGENT},
    "google/modules/install-script": {"agent": AGENT},
    "google/modules/instance-template": {"project_id": PROJECT, "machine_type": "n1-standard-8", "service_account_email": EMAIL, "agent": AGENT},
    "google/modules/os-policy": {"project_id": PROJECT, "zones": ["us-central1-a"], "instance_filter": {"all": True}, "agent": AGENT},
    **{f"google/modules/{name}": {"project_id": PROJECT} for name in ("alert-policies", "dashboards", "service-account")},
}  # fmt: skip
"""A plan without a mistake."""
MALFORMED = {f"{cloud}/{name}".removesuffix("/."): rows for cloud, of in (("aws", AWS), ("google", GOOGLE)) for name, rows in of.items()}  # fmt: skip


@pytest.fixture
def plan(terraform, tmp_path):
    """Plan a module with further inputs; return the exit status and the output, in one line."""

    def run(module, given):
        terraform.init(tf.ROOT / "terraform" / module)
        (file := tmp_path / "given.tfvars.json").write_text(json.dumps(GIVEN.get(module, {}) | given))
        done = terraform(tf.ROOT / "terraform" / module, "plan", *tf.QUIET, f"-var-file={file}")
        return done.returncode, re.sub(r"[\s│╷╵]+", " ", done.stderr)

    return run


def packed(module):
    """
    Put the values into few plans, since Terraform says all that is wrong: in each a variable and a message once.

    Where a module calls others a value has a separate plan: after an error Terraform does not read the modules that a module calls.
    """
    plans: list[dict] = []
    for said, path, *values in MALFORMED[module]:
        for value in values:
            for one in plans if "/modules/" in module else ():
                if said not in one.values() and not any(clash(path, other) for other, _ in one):
                    break
            else:
                plans.append(one := {})
            one[path, json.dumps(value)] = said
    return plans


def clash(one, other):
    """Return whether two paths cannot stand in one plan: the same, or a variable and a key of it."""
    (name, _, key), (variable, _, part) = one.partition("."), other.partition(".")
    return name == variable and (key == part or not {"", "*"}.isdisjoint((key, part)))


def merged(module, items):
    given = {}
    for path, text in items:
        name, _, key = path.partition(".")
        if key:
            keys = json.loads(text) if key == "*" else {key: json.loads(text)}
            given[name] = GIVEN[module][name] | given.get(name, {}) | keys
        else:
            given[name] = json.loads(text)
    return given


@pytest.mark.parametrize("module", MALFORMED)
def test_what_is_malformed_is_refused_by_name(plan, module):
    for items in packed(module):
        status, said = plan(module, merged(module, items))
        assert status == 1, items
        for item, message in items.items():
            assert f" {message}" in said, (item, said)


def test_every_rule_is_broken_and_its_message_names_the_variable():
    for folder in tf.has_files(tf.ROOT / "terraform"):
        module = str(folder.relative_to(tf.ROOT / "terraform"))
        if "/examples/" in module:  # a module that it calls has the same rules
            continue
        said = {row[0] for row in MALFORMED.get(module, [])}
        for name, text in tf.blocks(folder)["variable"].items():
            messages = re.findall(r'error_message\s*= "(.*)"', text)
            assert len(messages) == text.count("validation {"), (module, name)
            for message in messages:
                assert message.startswith(f"{name}: "), (module, message)
                assert any(message.startswith(begin) for begin in said), (module, message)


@pytest.mark.parametrize("cloud", ["aws", "google"])
def test_no_variable_takes_anything(cloud):
    variables = [
        text
        for folder in tf.has_files(tf.ROOT / "terraform" / cloud)
        for text in tf.blocks(folder)["variable"].values()
    ]
    assert len(variables) > 100
    assert [
        text
        for text in variables
        if re.search(r"(?m)^  type\s*=.*\bany\b", text) or not re.search(r"(?m)^  type\s*=", text)
    ] == []


LEGAL = {
    "a training instance": ("aws/modules/ec2", {
        "instance_type": "p5.48xlarge", "efa_interfaces": 32, "vpc_security_group_ids": ["sg-0123456789abcdef0", "sg-01234567"], "placement_group": "my cluster",
        "capacity_reservation": {"id": "cr-0123456789abcdef0", "resource_group_arn": None, "is_block": True}, "key_name": "my key",
        "block_device_mappings": {"/dev/sda1": {"volume_size": "500", "iops": 6000, "throughput": 500}, "/dev/sdb": {"volume_type": "io2", "iops": 20000}, "/dev/sdc": {"volume_type": "gp2", "iops": None, "encrypted": None}},
    }),
    "null keys": ("aws/modules/ec2", {"capacity_reservation": {"resource_group_arn": f"arn:aws:resource-groups:us-east-1:{ACCOUNT}:group/ml", "is_block": None}}),
    "GovCloud": ("aws/modules/ec2", {"region": "us-gov-west-1", "instance_profile_arn": f"arn:aws-us-gov:iam::{ACCOUNT}:instance-profile/team/x"}),
    "a new region": ("aws/modules/ec2", {"region": "eusc-de-east-1", "agent_version": "1.0.0rc1.dev3"}),
    "all sinks": ("aws/modules/ec2", {"sinks": ["cloudwatch", "prometheus", "otlp", "stdout", "inside"], "config": '# level = all is dear\ninterval = 10 # namespace = x\n[sinks.inside]\ntype = "otlp"\nlevel = "all"\nnamespace = "x"\n'}),
    "its own region in config": ("aws/modules/ec2", {"config": 'region = "us-west-2"\ndims = { level = "x" }'}),
    "an index": ("aws/modules/ec2", INDEX | {"constraints": "https://mirror.example.com/c.txt?x=1", "index_url": "https://mirror.example.com:8443/simple/"}),
    "tags": ("aws/modules/ec2", {"instance_metadata_tags": False, "tags": {"kubernetes.io/cluster/x": "owned", "empty": "", "team": "ML & research ü"}}),
    "settings": ("aws/modules/ecs", {"prometheus_port": 9400, "placement_expression": "attribute:ecs.instance-type =~ p5.*", "environment": {"CHIPWATCH_INTERVAL": "500ms", "CHIPWATCH_LEVEL": "", "CHIPWATCH_COLLECTOR": "gpu,cpu", "CHIPWATCH_SINKS__OTLP__ENDPOINT": "http://c:4318", "CHIPWATCH_DIMS__TEAM": "ml", "HTTPS_PROXY": "http://p:3128", "TZ": ""}}),
    "secrets": ("aws/modules/ecs", {"secrets": {"CHIPWATCH_LEVEL": PARAMETER, "OTEL_EXPORTER_OTLP_HEADERS": f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:otlp-AbCdEf:headers::"}}),
    "a Neuron sidecar": ("aws/modules/ecs", {"create_daemon": False, "accelerator": "neuron", "neuron_devices": 16, "sidecar_launch_type": "EC2"}),
    "a tag and a digest": ("aws/modules/ecs", {"image": f"ghcr.io:443/team/chip_watch-x:0.1.0@sha256:{SHA}"}),
    "a role that is there": ("aws/modules/ecs", {"create_execution_role": False, "execution_role_arn": f"arn:aws:iam::{ACCOUNT}:role/service-role/mine", "path": "/team/ml/"}),
    "pods": ("aws/modules/iam", {"create_pod_identity": True, "create_irsa": True, "wheelhouses": ["s3://my.bucket-1/a/b_c/0.1.0/"], "pod_identity_associations": {"a": {"cluster_name": "train"}, "b": {"cluster_name": "train", "namespace": "ml", "service_account": None}}, "irsa": {"oidc_provider_arn": PROVIDER, "service_accounts": None}}),
    "tuned alarms": ("aws/modules/alarms", {"hosts": 500, "user_data": True, "autoscaling_groups": ["train-a", "train b/c"], "ok_actions": [TOPIC], "alarms": {"gpu-idle": {"threshold": 10, "evaluation_periods": "6", "treat_missing_data": None}, "gpu-xid": {"alarm_actions": [], "actions_enabled": False, "threshold": 0}, "install-failed": {"alarm_actions": []}, "agent-silent": {"threshold": -0.5}, "disk-full": {"create": False}}}),
    "alarms of another family": ("aws/modules/alarms", {"families": ["host"], "alarms": {"gpu-idle": {"threshold": 10}}}),
    "a week": ("aws/modules/dashboards", {"start": "-P7D", "dimensions": ["k8s_cluster", "k8s_node"]}),
    "nothing": ("aws", {}),
    "all": ("aws", {"ec2": EC2 | {"key_name": None, "capacity_reservation": {"id": "cr-0123456789abcdef0"}, "policy_arns": {"x": "arn:aws:iam::aws:policy/ReadOnlyAccess"}}, "ecs": {"image": DIGEST, "cluster_arn": CLUSTER, "environment": {"CHIPWATCH_INTERVAL": "10"}}, "irsa": {"oidc_provider_arn": PROVIDER}, "alarms": {"install-failed": {"create": False}}}),
    "all of the agent": ("google/modules/install-script", {"agent": AGENT | {"extras": ["google", "prometheus"], "level": "detailed", "common_dims": ["hostname"], "dims": {"team": 'a "b" $x'}, "interval": "0.5", "window": 60, "project": "example.com:my-project", "metric_prefix": "workload.googleapis.com/ml/", "resource": "generic_node", "prometheus_port": "9400", "config": 'names = "native"\n[sinks.google.statistic]\n"gpu.temperature" = "max"\n[x]\nlevel = 1\n'}}),
    "nulls of the agent": ("google/modules/install-script", {"agent": dict.fromkeys(("extras", "level", "common_dims", "dims", "interval", "config", "index_url"), None) | INDEX | {"version": 1}}),
    "a template": ("google/modules/instance-template", {"source_image": "debian-cloud/debian-12", "disk": {"size_gb": "200", "type": "hyperdisk-balanced", "kms_key": None}, "network": {"subnetwork": "train", "subnetwork_project": "host-project", "public_ip": None}, "accelerators": [{"type": "nvidia-tesla-t4"}, {"type": "nvidia-tesla-t4", "count": "4"}], "scopes": ["cloud-platform"], "metadata": {"my_key": "x\ny"}}),
    "no shielded VM": ("google/modules/instance-template", {"shielded": {"secure_boot": False, "vtpm": False, "integrity_monitoring": False}, "service_account_email": f"{ACCOUNT}-compute@developer.gserviceaccount.com"}),
    "an AI zone": ("google/modules/os-policy", {"zones": ["us-central1-ai1a"], "rollout": {"fixed": None, "percent": None, "min_wait_duration": None}}),
    "a filter": ("google/modules/os-policy", {"instance_filter": {"all": None, "inclusion_labels": [{"env": "prod", "team": "ml"}, {"env": "dev"}], "exclusion_labels": [{"goog-gke-node": ""}], "inventories": [{"os_short_name": "debian", "os_version": "12*"}, {"os_short_name": "rhel"}]}}),
    "tuned policies": ("google/modules/alert-policies", {"families": ["host", "gpu"], "alarms": {"gpu-idle": {"threshold": "10", "minutes": 30}, "agent-silent": {"minutes": 5, "threshold": None}, "disk-full": {"create": False}, "tpu-idle": {"notification_channels": []}}, "auto_close": "86400s"}),
    "accounts": ("google/modules/service-account", {"workload_identity": {"a": {}, "b": {"project_id": "other-project", "namespace": "ml", "service_account": "agent.v1"}}, "principals": {"a": {"project_number": 123456789012}}, "wheelhouses": ["gs://wheels", "gs://wheels_1.x/a/b/"]}),
    "a whole fleet": ("google", {"families": ["host", "gpu"], "instance_template": {"machine_type": "g2-standard-8", "disk": {"size_gb": 100}, "network": None}, "os_policy": {"zones": ["us-central1-a"], "instance_filter": {"all": True}, "rollout": {"percent": 5}}, "alarms": {"gpu-idle": {"threshold": 10}}}),
}  # fmt: skip
"""Inputs that look odd, and must not be refused."""


@pytest.mark.parametrize("case", LEGAL)
def test_what_is_legal_is_planned(plan, case):
    module, given = LEGAL[case]
    status, said = plan(module, given)
    assert status == 0, said
