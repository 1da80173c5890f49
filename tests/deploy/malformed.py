"""
Malformed inputs of the Terraform modules, by module and by message.

A row: how the message begins, the variable (agent.KEY: a key of it; agent.*: several), and values, each refused with it.
What Terraform itself refuses is not here: another type, and a value that is missing.
"""

from __future__ import annotations

from typing import Any

SHA = "a" * 64
DIGEST = f"chipwatch@sha256:{SHA}"
ACCOUNT = "123456789012"
TOPIC = f"arn:aws:sns:us-east-1:{ACCOUNT}:pager"
PARAMETER = f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/x"
GROUP = "sg-0123456789abcdef0"
RESERVATION = "cr-0123456789abcdef0"
PROVIDER = f"arn:aws:iam::{ACCOUNT}:oidc-provider/oidc.eks.us-east-1.amazonaws.com/id/X"
LONG = "x" * 4096
MANY = {f"k{n}": "x" for n in range(65)}

Row = tuple[Any, ...]

# What several modules have.
_REGION: Row = ("region: the name", "region", "", "us-east1", "US-EAST-1", "us-east-1a", "us-east-1\n")
_SPACE: Row = ("namespace: 1 to", "namespace", "AWS/EC2", ":x", "", "a b", "x" * 256, "a\nb", 'x"y', "$(reboot)")
_LEVEL: Row = ("level: basic", "level", "high", "", "BASIC")
_TAGS: Row = ("tags: at most", "tags", {"": "x"}, {"k" * 129: "x"}, {"k": "v" * 257}, {"aws:x": "y"}, MANY, {"k": None})
_PATH: Row = ("path: begins", "path", "monitoring", "/a", "", "/a b/", f"/{'x' * 512}/")
_LIMIT: Row = ("permissions_boundary: the", "permissions_boundary", "x", f"arn:aws:iam::{ACCOUNT}:policy/a b")
_WORDS = ([], ["instanceid"], [""], ["instance_id", "instance_id"], ["instance_id,hostname"])
_PROJECT: Row = ("project_id: the id", "project_id", "My Project", "123456789012", "", "x" * 31)
_PREFIXES = (
    "chipwatch",
    "custom.googleapis.com/x",
    "compute.googleapis.com/x/",
    'custom.googleapis.com/"/',
    f"custom.googleapis.com/{'a/' * 50}",
)
_LABELS: Row = ("labels: at most", "labels", {"Team": "x"}, {"a": "A b"}, {"": "x"}, {"a": "x" * 64}, MANY)
_TITLE: Row = ("name: 1 to 100", "name", "", " a", "x" * 101, "a\nb", "$(x)")

AWS: dict[str, list[Row]] = {
    "modules/install-script": [
        ("agent: version is", "agent.version", ">=0.1", "latest", "v0.1.0", "0.1.0; rm -rf /", "0.1.0\n", "", "$(id)"),
        ("agent: extras are", "agent.extras", ["aws"], [""], ["cloudwatch]; x"]),
        ("agent: sinks are", "agent.sinks", [], ["cloud watch"], ["Cloudwatch"], ["cloudwatch,google"]),
        ("agent: the sinks cloudwatch", "agent.sinks", ["google"], ["cloudwatch", "google"]),
        ("agent: each of sinks", "agent.sinks", ["cloudwatch", "cloudwach"]),
        ("agent: namespace has", "agent.namespace", *_SPACE[2:]),
        ("agent: region is", "agent.region", "us-east1", "US-EAST-1", "us-east-1a", "us-east-1\n"),
        ("agent: level is", "agent.level", *_LEVEL[2:]),
        ("agent: dimensions are", "agent.dimensions", *_WORDS),
        ("agent: no line", "agent.config", "END_OF_CONFIG\nreboot", "a = 1\nEND_OF_SETTINGS", "a = 1\u0007"),
        ("agent: config sets", "agent.config", 'interval = 10\nlevel = "all"\n', "sink = ['x']", "'namespace' = 'x'\n[x]\na = 1"),
        ("agent: wheelhouse is", "agent.wheelhouse", "s3://Bucket/x", "s3://b/x", "http://x/y", "s3://wheels", "relative/path", "/a b", "s3://wheels/$(reboot)", "s3://wheels/a'b", "/opt/wheels\nversion=9", "gs://wheels/x"),
        ("agent: with a wheelhouse", "agent.index_url", "https://pypi.example.com/simple"),
        ("agent: give wheelhouse", "agent.wheelhouse", "", None),
        ("agent: give wheelhouse", "agent.*", {"wheelhouse": None, "index_url": "https://pypi.example.com/simple"}),
        ("agent: sums_sha256 is", "agent.sums_sha256", "abc", "A" * 64, "a" * 63, "a" * 65, f"sha256:{SHA}"),
        ("agent: sums_sha256 is", "agent.*", {"wheelhouse": "", "constraints": "/c", "wheel_sha256": SHA, "sums_sha256": SHA}),
        ("agent: index_url is", "agent.index_url", "http://x/simple", "https://", "https://user:pw@host/simple", "https://host/a b", "https://host/\nx=y"),
        ("agent: constraints is", "agent.constraints", "ftp://x/y", "constraints.txt", "https://user:pw@host/c.txt", "s3://wheels/", "/a\nb"),
        ("agent: constraints needs", "agent.wheel_sha256", "abc", "A" * 64),
        ("agent: constraints needs", "agent.*", {"wheelhouse": "", "constraints": "/opt/constraints.txt"}),
    ],
    "modules/ssm": [
        _REGION, _TAGS,
        ("name: 3 to 128", "name", "", "ab", "a b", "x" * 129, "aws-agent", "Amazon"),
        ("script: the output", "script", "", "0.1.0", "echo"),
        ("script: neither", "script", "#!/bin/sh\necho '{{ x }}'", "#!/bin/sh\nEND_OF_INSTALLER\nreboot"),
        ("action: install", "action", "remove", "", "--uninstall", "Install"),
        ("target_tags: 1 to", "target_tags", {}, {"app": []}, {f"k{n}": ["x"] for n in range(6)}),
        ("max_concurrency: a number", "max_concurrency", "0", "", "0%", "101%", "-1", "1.5", "10 %", "half"),
        ("max_errors: a number", "max_errors", "", "-1", "101%", "1.5", "few"),
        ("schedule_expression: as", "schedule_expression", "", "daily", "rate(0 days)", "rate(1day)", "cron()", "rate(1 day); x"),
        ("timeout_seconds: a whole", "timeout_seconds", 0, 299, 172801, 300.5),
        ("compliance_severity: UNSPECIFIED", "compliance_severity", "", "high", "NONE"),
        ("output_bucket: the name", "output_bucket", "", "s3://logs", "Logs", "a/b"),
    ],
    "modules/ec2": [
        _REGION, _TAGS,
        ("name: 3 to 99", "name", "", "ab", "chip\nwatch", "x" * 100, "a b", "$(reboot)"),
        ("image_id: an AMI", "image_id", "", "ami-xyz", "ami-012345678", "resolve:ssm:", "ami-0123456789ABCDEF0", "al2023"),
        ("instance_type: as", "instance_type", "trn1", "", "p5.48xlarge ", "p5.48xlarge,p4d.24xlarge"),
        ("instance_profile_arn: the", "instance_profile_arn", "chipwatch", f"arn:aws:iam::{ACCOUNT}:role/x", "arn:aws:iam::1:instance-profile/x", f"arn:aws:iam::{ACCOUNT}:instance-profile/a b"),
        ("key_name: the", "key_name", "", "k" * 256, "a\nb"),
        ("vpc_security_group_ids: ids", "vpc_security_group_ids", ["default"], ["sg-xyz"], [""]),
        ("vpc_security_group_ids: at most", "vpc_security_group_ids", [GROUP, GROUP], [f"sg-{n:017x}" for n in range(17)]),
        ("efa_interfaces: a whole", "efa_interfaces", -1, 33, 1.5),
        ("placement_group: its", "placement_group", "", "x" * 256, "a\nb"),
        ("capacity_reservation: id or", "capacity_reservation", {}, {"is_block": True}, {"id": RESERVATION, "resource_group_arn": "x"}),
        ("capacity_reservation: id is", "capacity_reservation", {"id": "cr-1"}, {"id": 7}),
        ("capacity_reservation: resource_group_arn is", "capacity_reservation", {"resource_group_arn": "gpus"}),
        ("http_put_response_hop_limit: a whole", "http_put_response_hop_limit", 0, 65, 1.5, -1),
        ("block_device_mappings: by device", "block_device_mappings", {"xvda": {}}, {"/dev/": {}}),
        ("block_device_mappings: volume_type", "block_device_mappings", {"/dev/xvda": {"volume_type": "gp9"}}, {"/dev/xvda": {"volume_type": ""}}),
        ("block_device_mappings: volume_size", "block_device_mappings", *({"/dev/xvda": {"volume_size": n}} for n in (0, -5, 1.5, 65537))),
        ("block_device_mappings: iops", "block_device_mappings", {"/dev/xvda": {"iops": -1}}, {"/dev/xvda": {"volume_type": "io2"}}, {"/dev/xvda": {"volume_type": "gp2", "iops": 3000}}),
        ("block_device_mappings: throughput", "block_device_mappings", {"/dev/xvda": {"throughput": 99999}}, {"/dev/xvda": {"volume_type": "io2", "iops": 5000, "throughput": 500}}),
        ("block_device_mappings: kms_key_id", "block_device_mappings", {"/dev/xvda": {"kms_key_id": "a b"}}, {"/dev/xvda": {"encrypted": False, "kms_key_id": "k"}}),
    ],
    "modules/ecs": [
        _REGION, _SPACE, _LEVEL, _TAGS, _PATH, _LIMIT,
        ("name: 1 to 24", "name", "", "a b", "x" * 25, "a/b", "chip\nwatch"),
        ("image: its address", "image", "chipwatch", "chipwatch:latest", "chipwatch@sha256:abc", f"chipwatch@sha256:{'A' * 64}", f"https://ghcr.io/{DIGEST}", f"Upper/{DIGEST}", f"chipwatch@sha512:{SHA}", f"a b@sha256:{SHA}", f"{DIGEST}\n", "", f"$(id)@sha256:{SHA}", f"a//b@sha256:{SHA}"),
        ("repository_arns: ARNs", "repository_arns", ["training"], [""], [f"arn:aws:ecr:us-east-1:{ACCOUNT}:training"]),
        ("accelerator: none,", "accelerator", "gpu", "", "NVIDIA", "amd"),
        ("neuron_devices: a whole", "neuron_devices", 0, -1, 65, 1.5),
        ("cpu_architecture: X86_64", "cpu_architecture", "x86", "arm64", ""),
        ("cpu: a whole", "cpu", 0, -1, 64.5, 20000),
        ("memory: a whole", "memory", 0, 63, 128.5, -1),
        ("memory_reservation: a whole", "memory_reservation", 5, 64.5, -1),
        ("task_role_arn: the ARN", "task_role_arn", "chipwatch", f"arn:aws:iam::{ACCOUNT}:user/x", f"arn:aws:iam::{ACCOUNT}:role/a b"),
        ("execution_role_arn: the ARN", "execution_role_arn", "x"),
        ("cluster_arn: the ARN", "cluster_arn", "train", "", f"arn:aws:ecs:us-east-1:{ACCOUNT}:service/train"),
        ("placement_expression: one line", "placement_expression", "", "x" * 2001, "a\nb"),
        ("daemon_dimensions: at least", "daemon_dimensions", *_WORDS),
        ("sidecar_dimensions: at least", "sidecar_dimensions", *_WORDS),
        ("sidecar_launch_type: FARGATE", "sidecar_launch_type", "fargate", "", "EXTERNAL"),
        ("prometheus_port: a whole", "prometheus_port", 80, 0, -1, 65536, 9400.5),
        ("environment: names", "environment", {"lower": "x"}, {"": "x"}, {"A B": "x"}),
        ("environment: the agent", "environment", {"CHIPWATCH_INTERVALL": "5"}, {"CHIPWATCH_": "x"}, {"CHIPWATCH_COMMON_DIMS": "hostname"}, {"CHIPWATCH_SINK__": "x", "CHIPWATCH_SINKSS__X": "y"}),
        ("environment: a value", "environment", {"A": None}, {"CHIPWATCH_INTERVAL": "fast"}, {"CHIPWATCH_INTERVAL": "-1"}, {"CHIPWATCH_LEVEL": "loud"}, {"CHIPWATCH_LOG_LEVEL": "loud"}, {"CHIPWATCH_NAMES": "dcgmm"}, {"CHIPWATCH_FLUSH": "1 day"}),
        ("secrets: ARNs", "secrets", {"CHIPWATCH_LEVEL": "plain text"}, {"CHIPWATCH_LEVEL": ""}, {"CHIPWATCH_LEVEL": f"{PARAMETER} y"}, {"CHIPWATCH_LEVEL": f"arn:aws:ssm:us-east-1:{ACCOUNT}:document/x"}),
        ("secrets: names", "secrets", {"lower": PARAMETER}, {"": PARAMETER}),
        ("secrets: the agent", "secrets", {"CHIPWATCH_LEVELL": PARAMETER}),
        ("secrets_kms_key_arns: ARNs", "secrets_kms_key_arns", ["alias/x"], [""], [f"arn:aws:kms:us-east-1:{ACCOUNT}:alias/x"]),
        ("log_group_name: 1 to", "log_group_name", "", "a b", "x" * 513, "aws/chipwatch", "a:b", "a*"),
        ("log_retention_days: 0,", "log_retention_days", 31, -1, 1.5),
        ("log_kms_key_arn: the ARN", "log_kms_key_arn", "alias/x", "", f"arn:aws:kms:us-east-1:{ACCOUNT}:key/a b"),
    ],
    "modules/iam": [
        _REGION, _SPACE, _TAGS, _PATH, _LIMIT,
        ("name: 1 to 24", "name", "", "a b", "x" * 25, "a/b"),
        ("dimensions: words", "dimensions", *_WORDS[1:]),
        ("wheelhouses: folders", "wheelhouses", ["s3://wheels"], ["s3://wheels/*"], ["/opt/wheels"], ["s3://wheels/${aws:username}"], ["s3://wheels/a b"], ["gs://wheels/x"]),
        ("s3_objects: files", "s3_objects", ["s3://wheels/"], ["s3://wheels/*.txt"], ["https://x/y"], ["s3://wheels/${aws:username}/c.txt"]),
        ("ec2_policy_arns: at most", "ec2_policy_arns", {"ssm": "AmazonSSMManagedInstanceCore"}, {"ssm": ""}, {"ssm": "arn:aws:iam::aws:policy/a b"}, {f"p{n}": "arn:aws:iam::aws:policy/x" for n in range(21)}),
        ("pod_identity_associations: cluster_name is required", "pod_identity_associations", {"a": {"cluster_name": ""}}, {"a": {"cluster_name": "a cluster"}}),
        ("pod_identity_associations: namespace and", "pod_identity_associations", *({"a": {"cluster_name": "train", "namespace": name}} for name in ("Caps", "*", "x" * 64, "a.b")), {"a": {"cluster_name": "train", "service_account": "*"}}),
        ("pod_identity_associations: a service account", "pod_identity_associations", {"a": {"cluster_name": "train"}, "b": {"cluster_name": "train", "namespace": "chipwatch"}}),
        ("irsa: oidc_provider_arn", "irsa", {"oidc_provider_arn": "x"}, {"oidc_provider_arn": f"arn:aws:iam::{ACCOUNT}:oidc-provider/a b"}),
        ("irsa: service_accounts", "irsa", *({"oidc_provider_arn": PROVIDER, "service_accounts": [name]} for name in ("chipwatch", "*:*", f"{'x' * 64}:a", ""))),
    ],
    "modules/alarms": [
        ("runbooks: a folder", "runbooks", "", "docs runbooks", 'a"b', "${x}", "x" * 401),
        _REGION, _SPACE, _LEVEL, _TAGS,
        ("name: 1 to 200", "name", "", "a b", "x" * 201, "a\nb"),
        ("dimensions: at least", "dimensions", *_WORDS, ["neuron_runtime_tag"], ['a"b']),
        ("own_dimensions: names", "own_dimensions", [""], ["a b"], ['a"b'], ["1a"], ["x" * 256]),
        ("families: at least", "families", [], ["tpu"], ["GPU"], ["host", ""]),
        ("hosts: a whole", "hosts", -1, 501, 1.5, 10000),
        ("autoscaling_groups: at most", "autoscaling_groups", [f"g{n}" for n in range(10)], [""], ["g" * 256], ["g", "g"], ["a\nb"]),
        *((f"{name}: at most", name, [f"{TOPIC}{n}" for n in range(6)], ["pager"], [""], [f"{TOPIC} b"], ["https://hooks.example.com/x"]) for name in ("alarm_actions", "ok_actions", "insufficient_data_actions")),
        ("alarms: there is no", "alarms", {"gpu-idel": {"threshold": 10}}, {"gpu_idle": {}}, {"tpu-idle": {}}),
        ("alarms: treat_missing_data", "alarms", {"gpu-idle": {"treat_missing_data": "maybe"}}, {"gpu-idle": {"treat_missing_data": ""}}),
        ("alarms: evaluation_periods", "alarms", {"gpu-idle": {"evaluation_periods": 0}}, {"gpu-idle": {"evaluation_periods": -1}}, {"gpu-idle": {"evaluation_periods": 1.5}}, {"gpu-idle": {"datapoints_to_alarm": 0}}),
        ("alarms: alarm_actions", "alarms", {"gpu-idle": {"alarm_actions": ["pager"]}}, {"gpu-idle": {"ok_actions": [f"{TOPIC}{n}" for n in range(6)]}}),
        ("alarms: threshold", "alarms", {"gpu-idle": {"threshold": -5}}, {"gpu-idle": {"threshold": 250}}, {"gpu-memory-full-mig": {"threshold": 100.5}}, {"gpu-xid": {"threshold": -1}}),
    ],
    "modules/dashboards": [
        _REGION, _SPACE, _LEVEL,
        ("name: 1 to 255", "name", "", "a b", "x" * 256),
        ("dimensions: at least", "dimensions", *_WORDS, ["neuron_runtime_tag"]),
        ("own_dimensions: names", "own_dimensions", [""], ["a b"], ['a"b'], ["1a"], ["x" * 256]),
        ("families: at least", "families", [], ["tpu"]),
        ("start: a duration", "start", "3h", "-PT3", "PT3H", "-P0D", "", "-PT3h", "-P99999999D"),
    ],
    ".": [
        ("name: 3 to 24", "name", "ab", "x" * 25, "a b"),
        ("dimensions: at least", "dimensions", []),
        ("dimensions: words", "dimensions", ["instanceid"], ["instance_id", "instance_id"]),
        _PATH[:3], _LIMIT[:3], _REGION[:3], _SPACE[:3], _TAGS[:3],
        ("families: at least", "families", ["tpu"]),
        ("hosts: a whole", "hosts", 501, -1),
    ],
}  # fmt: skip

GOOGLE: dict[str, list[Row]] = {
    "modules/install-script": [
        ("agent: version is", "agent.version", ">=0.1", "latest", "", "0.1.0\n", None, "0.1.0\nlevel=all"),
        ("agent: extras needs", "agent.extras", [], ["tpu"]),
        ("agent: extras are", "agent.extras", ["google", "azure"]),
        ("agent: level is", "agent.level", "high", "", "BASIC"),
        ("agent: common_dims are", "agent.common_dims", ["instanceid"], ["hostname", "hostname"], [""], ["host name"]),
        ("agent: keys of dims", "agent.dims", {"a-b": "x"}, {"1a": "x"}, {"": "x"}),
        ("agent: values of dims", "agent.dims", {"team": ""}, {"team": " "}, {"team": "a\u007fb"}, {"team": "a\nb"}),
        ("agent: interval is", "agent.interval", 0, -1, 0.01, 100000),
        ("agent: window is a", "agent.window", 5, 0, -60, 100000),
        ("agent: project is", "agent.project", "My Project", "123456789012", "", 7),
        ("agent: metric_prefix is", "agent.metric_prefix", *_PREFIXES),
        ("agent: resource is", "agent.resource", "gce", "", "global"),
        ("agent: prometheus_port is", "agent.prometheus_port", 80, -1, 70000, 9100.5),
        ("agent: a line", "agent.config", "a = 1\nEND_OF_CONFIG\nreboot"),
        ("agent: config sets", "agent.config", 'level = "all"', 'sink = ["google"]', '"level" = "all"\n[x]\na = 1', "interval = 5\r\nlevel = 'all'\r\n"),
        ("agent: wheelhouse is", "agent.wheelhouse", "gs://Bucket/x", "s3://wheels/x", "http://x", "/a b", "gs://wheels/$(id)", "gs://wheels/x\n"),
        ("agent: give wheelhouse", "agent.wheelhouse", None, ""),
        ("agent: sums_sha256 is", "agent.sums_sha256", "abc", "A" * 64, "a" * 65),
        ("agent: index_url is", "agent.index_url", "http://x", "https://u:p@h/simple", "https://h/ b", "https://", "https://h/\nx"),
        ("agent: constraints is", "agent.constraints", "s3://wheels/c.txt", "c.txt", "https://u:p@h/c.txt"),
        ("agent: constraints needs", "agent.wheel_sha256", "abc", "A" * 64),
        ("agent: constraints needs", "agent.*", {"wheel_sha256": SHA}),
        ("agent: with a wheelhouse", "agent.index_url", "https://pypi.example.com/simple"),
        ("agent: window is below", "agent.*", {"interval": 120, "window": 60}),
        ("agent: config has", "agent.*", {"dims": {"team": "x"}, "config": "[dims]\na = 'b'"}, {"resource": "auto", "config": "[sinks.google]\ntimeout = 5"}, {"prometheus_port": 9400, "config": "[ sinks.prometheus ]"}),
        ("agent: config sets", "agent.*", {"interval": 5, "config": "interval = 7"}, {"project": "some-project", "config": "project = 'x'"}, {"metric_prefix": "custom.googleapis.com/x/", "config": "sinks.google.prefix = 'x'"}),
    ],
    "modules/instance-template": [
        _PROJECT, _LABELS,
        ("region: the name", "region", "us-central1-a", "us-east-1", "", "US-CENTRAL1"),
        ("name: 1 to 36", "name", "", "Caps", "x" * 37, "1a", "a-"),
        ("description: at most", "description", LONG),
        ("machine_type: a type", "machine_type", "", "g2", "trn1.32xlarge", "g2-standard-8 "),
        ("source_image: an image", "source_image", "", "projects/cos-cloud/global/images/family/cos-stable", "cos-121-lts", "debian 12"),
        ("disk: size_gb", "disk", {"size_gb": 5}, {"size_gb": 50.5}, {"size_gb": -1}, {"size_gb": 100000}),
        ("disk: type", "disk", {"type": "ssd"}, {"type": ""}),
        ("disk: kms_key", "disk", {"kms_key": "x"}, {"kms_key": "projects/p/locations/l/keyRings/r"}),
        ("network: nic_type", "network", {"nic_type": "gvnic"}),
        ("network: network and", "network", {"network": ""}, {"subnetwork": ""}, {"subnetwork": "10.0.0.0/24"}, {"subnetwork": "a b"}),
        ("network: network or", "network", {"network": "a", "subnetwork": "b"}),
        ("network: subnetwork_project", "network", {"subnetwork_project": "other-project"}, {"subnetwork": "s", "subnetwork_project": "Bad Project"}),
        ("network_tags: small", "network_tags", ["Caps"], [""], ["x" * 64]),
        ("network_tags: at most", "network_tags", [f"t{n}" for n in range(65)]),
        ("service_account_email: the", "service_account_email", "x", "me@example.com", ""),
        ("scopes: the agent", "scopes", [], ["https://www.googleapis.com/auth/devstorage.read_only"]),
        ("accelerators: type", "accelerators", [{"type": "T4"}], [{"type": None}]),
        ("accelerators: count", "accelerators", *([{"type": "nvidia-tesla-t4", "count": n}] for n in (3, 0, -1))),
        ("on_host_maintenance: MIGRATE", "on_host_maintenance", "migrate", "", "STOP"),
        ("shielded: integrity_monitoring", "shielded", {"vtpm": False}, {"vtpm": False, "integrity_monitoring": True}),
        ("metadata: startup-script", "metadata", {"startup-script": "x"}),
        ("metadata: keys", "metadata", {"": "x"}, {"a b": "x"}, {"x" * 129: "y"}, {"k": None}),
    ],
    "modules/os-policy": [
        _PROJECT,
        ("zones: at least", "zones", [], ["us-central1"], ["us-central1-A"], [""], ["us-east-1a"], ["us-central1-ab"]),
        ("name: 1 to 63", "name", "", "Caps", "x" * 64, "a-"),
        ("package_state: installed", "package_state", "present", "INSTALLED", ""),
        ("mode: ENFORCEMENT", "mode", "enforce", ""),
        ("instance_filter: say", "instance_filter", {}, {"all": False}, {"all": None}, {"all": True, "inclusion_labels": [{"a": "b"}]}),
        ("instance_filter: keys and", "instance_filter", {"inclusion_labels": [{}]}, {"exclusion_labels": [{"Caps": "x"}]}, {"inclusion_labels": [{"a": "B"}]}),
        ("instance_filter: inventories", "instance_filter", *({"inventories": [one]} for one in ({"os_short_name": None}, {"os_short_name": "Debian"}, {"os_short_name": "debian", "os_version": "1*2"}))),
        ("rollout: fixed or", "rollout", {"fixed": 1, "percent": 5}),
        ("rollout: fixed and", "rollout", {"fixed": 0}, {"fixed": -1}, {"fixed": 1.5}, {"percent": 101}, {"percent": 0}),
        ("rollout: min_wait_duration", "rollout", {"min_wait_duration": "5m"}, {"min_wait_duration": "300"}, {"min_wait_duration": ""}, {"min_wait_duration": "-300s"}),
    ],
    "modules/alert-policies": [
        ("runbooks: a folder", "runbooks", "", "docs runbooks", 'a"b', "${x}", "x" * 401),
        _PROJECT, _LABELS, _LEVEL, _TITLE,
        ("families: at least", "families", [], ["npu"]),
        ("metric_prefix: custom", "metric_prefix", *_PREFIXES),
        ("resource_types: one", "resource_types", [], ["gce_instance", "gce_instance"]),
        ("resource_types: gce_instance", "resource_types", ["vm"], ["gce_instance", ""]),
        ("notification_channels: at most", "notification_channels", ["me@example.com"], [""], [f"projects/p/notificationChannels/{n}" for n in range(17)], ["projects/p/notificationChannels/a b"]),
        ("auto_close: seconds", "auto_close", "60s", "1h", "3600", "700000s", "-3600s", "3600.5s", ""),
        ("alarms: there is no", "alarms", {"gpu-idel": {}}, {"gpu-idle-mig": {}}),
        ("alarms: severity", "alarms", {"gpu-idle": {"severity": "HIGH"}}, {"gpu-idle": {"severity": ""}}),
        ("alarms: minutes", "alarms", *({"gpu-idle": {"minutes": n}} for n in (-1, 1.5, 1411))),
        ("alarms: agent-silent", "alarms", {"agent-silent": {"threshold": 1}}, {"fleet-silent": {"minutes": 1}}),
        ("alarms: notification_channels", "alarms", {"gpu-idle": {"notification_channels": ["x"]}}),
        ("alarms: threshold", "alarms", {"gpu-idle": {"threshold": -1}}, {"tpu-memory-full": {"threshold": 101}}),
    ],
    "modules/service-account": [
        _PROJECT,
        ("metrics_project_id: the", "metrics_project_id", "", "X", "123456"),
        ("account_id: 6 to", "account_id", "", "short", "Caps-caps", "x" * 31, "trailing-"),
        ("display_name: at most", "display_name", "x" * 101),
        ("description: at most", "description", "x" * 257),
        ("email: the address", "email", "", "me@example.com"),
        ("workload_identity: namespace and", "workload_identity", {"a": None}, *({"a": {"namespace": name}} for name in ("Caps", "x" * 64, "a.b")), {"a": {"service_account": "*"}}),
        ("workload_identity: project_id", "workload_identity", {"a": {"project_id": "X"}}),
        ("principals: project_number", "principals", {"a": {"project_number": "some-project"}}, {"a": {"project_number": -5}}, {"a": {"project_number": None}}),
        ("principals: namespace and", "principals", {"a": {"project_number": "123456789012", "namespace": "A"}}),
        ("principals: project_id", "principals", {"a": {"project_number": "123456789012", "project_id": "A"}}),
        ("wheelhouses: folders", "wheelhouses", ["s3://wheels/x"], ["gs://W/x"], ["/opt"], [""], ['gs://wheels/x") || ("']),
    ],
    "modules/dashboards": [_PROJECT, _LEVEL, _TITLE, ("families: at least", "families", [], ["x"]), ("metric_prefix: custom", "metric_prefix", *_PREFIXES)],
    ".": [
        _PROJECT[:3], _LABELS[:3],
        ("name: 2 to 30", "name", "", "X", "x", "x" * 31),
        ("agent: give wheelhouse", "agent.wheelhouse", None),
    ],
}  # fmt: skip
