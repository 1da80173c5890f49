"""
The plans of terraform/google by the real Terraform on a stand-in for hashicorp/google, as Google's client, bash and checkov take them.

What each example plans is kept in golden/terraform/google; `UPDATE_GOLDEN=1 pytest tests/deploy/test_terraform_google.py`
renews it.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
from tests.agent.advisor.dashboard.strict import check_google
from tests.deploy import boot, tools
from tests.deploy import terraform as tf
from tests.deploy.test_user_data import FAKE, Play
from tools.dashboards import terraform_google

from chipwatch.advisor.dashboard.make import make
from chipwatch.advisor.dashboard.options import BoardOptions as Options
from chipwatch.config.convert import ConfigError
from chipwatch.config.load import load
from chipwatch_sinks.google import GoogleSink

FOLDER = tf.ROOT / "terraform/google"
LONG = 300.0

PROJECT = "some-project"
CHANNEL = f"projects/{PROJECT}/notificationChannels/1"
GIVEN = {
    "gce-fleet": {
        "project_id": PROJECT,
        "source_image": f"projects/{PROJECT}/global/images/family/training",
        "subnetwork": f"projects/{PROJECT}/regions/us-central1/subnetworks/training",
        "agent_version": "0.1.0",
        "wheelhouse": "gs://wheels/chipwatch/0.1.0",
        "sums_sha256": "a" * 64,
        "notification_channels": [CHANNEL],
    },
    "os-policy-fleet": {
        "project_id": PROJECT,
        "service_account_emails": [f"training@{PROJECT}.iam.gserviceaccount.com"],
        "agent_version": "0.1.0",
        "constraints": "gs://wheels/chipwatch/0.1.0/constraints.txt",
        "wheel_sha256": "b" * 64,
    },
    "gke-workload-identity": {"project_id": PROJECT, "cluster_name": "train"},
    "dashboards-and-alarms": {"project_id": PROJECT, "email": "pager@example.com"},
}
"""Variables of the examples."""


def outputs(plan):
    return {name: one.get("value") for name, one in plan["planned_values"]["outputs"].items()}


# -- plans -------------------------------------------------------------------------------------------------------


def test_the_alarms_that_can_be_changed_all_exist():
    text = tf.blocks(FOLDER / "modules/alert-policies")["variable"]["alarms"]
    known = set(re.findall(r'"([a-z-]+)"', re.search(r"keys\(var\.alarms\), \[(.*?)\]", text)[1]))
    names = re.findall(r'"displayName": "\$\{prefix\}-([a-z-]+)"', "".join(terraform_google().values()))
    assert known == set(names)
    assert known == set(re.findall(r"[a-z]+(?:-[a-z]+)+", text.split("There are ")[1].split('"')[0]))


def readable(value):
    """Return a planned value without what nobody knows yet, and without texts that others hold."""
    if isinstance(value, dict):
        shown = {key: readable(one) for key, one in value.items() if one != tf.LATER or key in {"member", "email"}}
        for key in {"startup-script", "script"} & shown.keys():
            shown[key] = shown[key].splitlines()[1]
        shown.pop("documentation", None)
        if "dashboard_json" in shown:
            tiles = json.loads(shown["dashboard_json"])["mosaicLayout"]["tiles"]
            shown["dashboard_json"] = [f"{tile['xPos']},{tile['yPos']} {title(tile['widget'])}" for tile in tiles]
        return {key: one for key, one in shown.items() if one != {}}
    return [readable(one) for one in value] if isinstance(value, list) else value


def title(widget):
    return widget.get("title") or widget["text"]["content"]


@pytest.mark.parametrize("name", GIVEN)
def test_an_example_plans_what_it_planned(planned, name):
    plan = planned(name)
    shown = {address: readable(values) for address, values in tf.resources(plan).items()}
    tf.check_golden(tf.GOLDEN / f"google/{name}.json", tf.as_rows(shown, outputs(plan)))


# -- who may do what ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GIVEN)
def test_metrics_may_be_written_and_nothing_else(planned, name):
    plan = planned(name)
    roles = {
        address: values["role"]
        for kind in (
            "google_project_iam_member",
            "google_service_account_iam_member",
            "google_storage_bucket_iam_member",
        )
        for address, values in tf.of_type(plan, kind).items()
    }
    of_project = {role for address, role in roles.items() if "google_project_iam_member" in address}
    assert of_project <= {"roles/monitoring.metricWriter"}
    assert set(roles.values()) - of_project == {
        "gce-fleet": {"roles/storage.objectViewer"},
        "os-policy-fleet": {"roles/storage.objectViewer"},
        "gke-workload-identity": {"roles/iam.workloadIdentityUser"},
    }.get(name, set())


def test_the_chart_takes_the_values_for_workload_identity(terraform, tmp_path):
    module = FOLDER / "examples/gke-workload-identity"
    plan = terraform.plan(module, GIVEN["gke-workload-identity"] | {"direct": True, "project_number": "123456789012"})
    (file := tmp_path / "values.yaml").write_text(outputs(plan)["helm_values"])
    command = [tools.helm(), "template", "chipwatch", tf.ROOT / "helm/chipwatch", "--values", file]
    command += ["--set", "image.repository=team/chipwatch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    assert f'project = "{PROJECT}"' in done.stdout
    [member] = [one["member"] for one in tf.of_type(plan, "google_project_iam_member").values()]
    assert member.endswith("/subject/ns/chipwatch/sa/chipwatch")
    assert not tf.of_type(plan, "google_service_account")


# -- dashboards and alert policies ---------------------------------------------------------------------------------

SAME = {
    "gce-fleet": (("host", "gpu", "health"), "basic", ("gce_instance",)),
    "dashboards-and-alarms": (("host", "gpu", "tpu"), "detailed", ("gce_instance", "k8s_node")),
}


def said_by_the_generator(name, *, alarms):
    families, level, resources = SAME[name]
    wishes = Options(cloud="google", families=families, alarms=alarms, resources=resources if alarms else ())
    return json.loads(make(load(None, {"level": level}, {}), wishes).text)


def graphs(board):
    return {title(tile["widget"]): tile["widget"] for tile in board["mosaicLayout"]["tiles"]}


@pytest.mark.parametrize("name", SAME)
def test_the_planned_dashboard_is_the_generators(planned, name):
    dashboard = tf.only(tf.of_type(planned(name), "google_monitoring_dashboard"))
    board, generated = json.loads(dashboard["dashboard_json"]), said_by_the_generator(name, alarms=False)
    assert sorted(check_google(board)) == sorted(check_google(generated))
    assert graphs(board) == graphs(generated)
    assert board["mosaicLayout"]["columns"] == generated["mosaicLayout"]["columns"]


def of_api(value):
    """Return a planned block as the API has it: without lists around single blocks, without unset values."""
    once = {"condition_threshold", "condition_absent", "documentation", "alert_strategy", "trigger"}
    return {
        key: of_api(one[0]) if key in once else [of_api(each) if isinstance(each, dict) else each for each in one]
        if isinstance(one, list) else one
        for key, one in value.items()
        if one not in (None, [], tf.LATER)
    }  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_google_takes_the_planned_alert_policies_and_they_are_the_generators(planned, name):
    json_format = pytest.importorskip("google.protobuf.json_format", reason="the extra google has it")
    monitoring = pytest.importorskip("google.cloud.monitoring_v3", reason="the extra google has it")

    def taken(policy):
        return json_format.ParseDict(policy, monitoring.AlertPolicy.pb(monitoring.AlertPolicy()))

    generated = {policy["displayName"]: policy for policy in said_by_the_generator(name, alarms=True)}
    found = {}
    for policy in tf.of_type(planned(name), "google_monitoring_alert_policy").values():
        told = {key: value for key, value in policy.items() if key not in {"project", "id", "deletion_policy"}}
        found[policy["display_name"]] = taken(of_api(told))
        with pytest.raises(json_format.ParseError):
            taken({**of_api(told), "combinator": "OR"})
    prefix = {"gce-fleet": "training", "dashboards-and-alarms": "chipwatch"}[name]
    assert {key.replace(prefix, "chipwatch", 1) for key in found} == set(generated)
    otherwise = {"gce-fleet": {"gpu-idle"}, "dashboards-and-alarms": {"gpu-idle", "gpu-memory-full", "agent-silent"}}[
        name
    ]
    for key, policy in found.items():
        alarm = key.removeprefix(f"{prefix}-")
        wanted = taken(generated[f"chipwatch-{alarm}"])
        for field in ("notification_channels", "user_labels"):
            policy.ClearField(field)
            wanted.ClearField(field)
        policy.display_name = wanted.display_name
        assert (policy == wanted) == (alarm not in otherwise), alarm


@pytest.mark.parametrize("name", ["gce-fleet", "dashboards-and-alarms"])
def test_every_metric_that_a_policy_names_is_made_before_it(planned, name):
    plan = planned(name)
    made = {one["type"] for one in tf.of_type(plan, "google_monitoring_metric_descriptor").values()}
    policies = json.dumps(list(tf.of_type(plan, "google_monitoring_alert_policy").values()))
    assert made >= set(re.findall(r'metric\.type = \\"(custom[^\\]*)\\"', policies))


@pytest.mark.parametrize(
    ("machine_type", "maintenance"),
    [
        *((kind, "TERMINATE") for kind in ("g2-standard-8", "a3-highgpu-8g", "a4x-highgpu-4g", "ct5lp-hightpu-4t", "g4-standard-48")),
        *((kind, "MIGRATE") for kind in ("n2-standard-8", "c4a-standard-4", "t2d-standard-1")),
    ],
)  # fmt: skip
def test_a_machine_with_accelerators_is_stopped_for_maintenance(terraform, machine_type, maintenance):
    given = {
        "project_id": PROJECT, "machine_type": machine_type, "service_account_email": f"a@{PROJECT}.iam.gserviceaccount.com",
        "agent": {"version": "0.1.0", "wheelhouse": "gs://wheels/chipwatch/0.1.0"},
    }  # fmt: skip
    plan = terraform.plan(FOLDER / "modules/instance-template", given)
    (template,) = tf.of_type(plan, "google_compute_instance_template").values()
    assert template["scheduling"][0]["on_host_maintenance"] == maintenance


def test_another_prefix_gives_what_the_generator_says_of_it(terraform):
    pytest.importorskip("google.cloud.monitoring_v3", reason="the extra google has it")
    ours = "workload.googleapis.com/ours/"
    variables = {"project_id": PROJECT, "families": ["host"], "metric_prefix": ours}
    plan = terraform.plan(FOLDER / "modules/dashboards", variables)
    config = load(None, {"sinks": {"google": {"prefix": ours}}}, {})
    try:
        generated = json.loads(make(config, Options(cloud="google", families=("host",))).text)
    except ConfigError as problem:
        pytest.skip(f"the sink google is not installed here: {problem}")
    assert json.loads(outputs(plan)["json"]) == generated
    assert GoogleSink.Config().prefix not in outputs(plan)["json"]


# -- the scripts -------------------------------------------------------------------------------------------------


def startup_script(plan):
    return tf.only(tf.of_type(plan, "google_compute_instance_template"))["metadata"]["startup-script"]


def policy_of(plan):
    """Return the one resource of the OS policy of a plan, which is the same in all zones."""
    found = [one["os_policies"] for one in tf.of_type(plan, "google_os_config_os_policy_assignment").values()]
    assert found == found[:1] * len(found)
    ((policy,), *_) = found
    (group,) = policy["resource_groups"]
    (resource,) = group["resources"]
    return policy, resource


def settings_of(script):
    lines = script.split("END_OF_SETTINGS")[1].strip("'\n").splitlines()
    return {key: value for key, value in (line.split("=", 1) for line in lines) if value}


def config_of(script):
    return script.split("END_OF_CONFIG")[1].strip("'\n")


def shell(script):
    done = subprocess.run(
        [tools.shellcheck(), "-"], input=script, capture_output=True, text=True, timeout=LONG, check=False
    )
    return done.returncode, done.stdout


def test_the_start_up_script_installs_what_the_variables_name(planned):
    script = startup_script(planned("gce-fleet"))
    assert settings_of(script) == {
        "version": "0.1.0", "extras": "google", "sink": "google", "level": "basic", "common_dims": "hostname,instance_type",
        "wheelhouse": "gs://wheels/chipwatch/0.1.0", "sums_sha256": "a" * 64,
    }  # fmt: skip
    assert tomllib.loads(config_of(script)) == {
        "dims": {"team": "vision"},
        "sinks": {"google": {"statistic": {"gpu.temperature": "max"}}},
    }
    for file in (boot.UNIT, boot.UNINSTALL):
        assert file.read_text().strip() in script
    assert shell(script) == (0, "")


def test_the_policy_is_as_vm_manager_wants_it(planned):
    _, resource = policy_of(planned("os-policy-fleet"))
    (run,) = resource["exec"]
    for stage in ("validate", "enforce"):
        (one,) = run[stage]
        assert one["interpreter"] == "NONE"
        assert one["script"].startswith("#!/bin/sh\n"), "without an interpreter the first line names it"
        assert len(one["script"]) <= 32 * 1024
        assert shell(one["script"]) == (0, "")
    assert settings_of(run["enforce"][0]["script"])["constraints"].startswith("gs://")


POLICY = {
    "project_id": PROJECT,
    "zones": ["us-central1-a"],
    "instance_filter": {"all": True},
    "agent": {"version": "0.1.0", "wheelhouse": "/wheels"},
}
GCLOUD = (
    ('"aws s3 cp --recursive"*) cp -r "$play/bucket" "$last" ;;', '"gcloud storage rsync"*) cp -r "$play/bucket/." "$last" ;;'),
    ('"aws s3 cp"*)', '"gcloud storage cp"*)'),
)  # fmt: skip


class Machine(Play):
    """A folder that plays a machine of Compute Engine."""

    def __init__(self, folder):
        super().__init__(folder)
        for name in ("head", "tail", "sha256sum"):
            (self.bin / name).unlink(missing_ok=True)
            (self.bin / name).symlink_to(shutil.which(name))

    def add(self, *names):
        super().add(*names)
        for name in names:
            text = (self.bin / name).read_text()
            for theirs, ours in GCLOUD:
                assert theirs in FAKE
                text = text.replace(theirs, ours)
            (self.bin / name).write_text(text)


@pytest.fixture
def machine(tmp_path):
    if sys.platform != "linux":
        pytest.skip("the scripts run on Linux alone")
    return Machine(tmp_path)


@pytest.fixture
def stages(terraform, tmp_path):
    """Plan the module os-policy; return the scripts of its two stages."""

    def plan(**given):
        given = POLICY | given
        given["agent"] = given["agent"] | {"wheelhouse": str(tmp_path)}
        _, resource = policy_of(terraform.plan(FOLDER / "modules/os-policy", given))
        (run,) = resource["exec"]
        return run["validate"][0]["script"], run["enforce"][0]["script"]

    return plan


def test_a_machine_installs_from_cloud_storage(machine, planned):
    machine.add("gcloud")
    (machine.folder / "bucket/wheelhouse").mkdir(parents=True)
    (machine.folder / "bucket/wheelhouse/chipwatch-0.1.0-py3-none-any.whl").write_bytes(b"wheel")
    script = startup_script(planned("gce-fleet")).replace(f"sums_sha256={'a' * 64}", "sums_sha256=")
    done = machine.run(script)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"^gcloud storage rsync --recursive --no-user-output-enabled gs://wheels/chipwatch/0\.1\.0 \S+/wheelhouse$",
        machine.calls(), re.MULTILINE,
    )  # fmt: skip
    assert re.search(r"pip install .*--no-index --find-links \S+ .*chipwatch\[google\]==0\.1\.0", machine.calls())
    assert (machine.root / "etc/systemd/system/chipwatch.service").read_text() == boot.UNIT.read_text()
    refused = machine.run(startup_script(planned("gce-fleet")))
    assert refused.returncode == 1
    assert "sums_sha256: not that of SHA256SUMS" in refused.stderr


def test_the_agent_takes_the_configuration_that_is_written(machine, stages, tmp_path):
    said = {
        "version": "0.1.0", "common_dims": ["hostname"], "dims": {"team": 'a "b" \\ c'}, "interval": 2.5, "window": 30,
        "project": "other-project", "metric_prefix": "custom.googleapis.com/ours/", "resource": "generic_node",
        "config": 'log_level = "info"\n\n[collectors.disk]\npaths = ["/data"]\n',
    }  # fmt: skip
    _, enforce = stages(agent=said)
    assert machine.run(enforce).returncode == 100
    file = machine.root / "etc/chipwatch/chipwatch.toml"
    assert tomllib.loads(file.read_text()) == {
        "sink": ["google"], "common_dims": ["hostname"], "level": "basic", "project": "other-project", "interval": 2.5,
        "window": 30, "dims": {"team": 'a "b" \\ c'}, "log_level": "info", "collectors": {"disk": {"paths": ["/data"]}},
        "sinks": {"google": {"prefix": "custom.googleapis.com/ours/", "resource": "generic_node"}},
    }  # fmt: skip
    config = load(file, {}, {})
    assert (config.interval, config.window, config.project) == (2.5, 30.0, "other-project")
    if (options := config.sinks.get("google")) is not None:
        assert options["resource"] == "generic_node"


def test_the_policy_installs_once_and_mends_what_was_changed(machine, stages):
    validate, enforce = stages()
    assert machine.run(validate).returncode == 101
    done = machine.run(enforce)
    assert done.returncode == 100, done.stderr
    assert machine.run(validate).returncode == 100

    config = machine.root / "etc/chipwatch/chipwatch.toml"
    config.write_text(config.read_text() + 'namespace = "x"\n')
    assert machine.run(validate).returncode == 101
    assert machine.run(enforce).returncode == 100
    assert "namespace" not in config.read_text()
    assert machine.run(validate).returncode == 100

    machine.ends("systemctl is-active", 3)
    assert machine.run(validate).returncode == 101


def test_the_policy_sees_that_another_version_or_configuration_is_wanted(machine, stages):
    validate, enforce = stages()
    assert machine.run(enforce).returncode == 100
    for agent in ({"version": "0.2.0", "wheelhouse": "/wheels"}, POLICY["agent"] | {"level": "all"}):
        later, install = stages(agent=agent)
        assert machine.run(later).returncode == 101
        assert machine.run(install).returncode == 100
        assert machine.run(later).returncode == 100
        assert machine.run(validate).returncode == 101
    assert (machine.root / "opt/chipwatch/current").resolve().name.startswith("0.1.0-")


def test_an_installation_that_fails_is_a_failure_to_the_policy(machine, stages):
    validate, enforce = stages()
    machine.ends("systemctl restart chipwatch.service", 1)
    done = machine.run(enforce)
    assert done.returncode not in {0, 100, 101}
    assert machine.run(validate).returncode == 101


def test_the_policy_removes_what_is_there_and_sees_that_it_is_gone(machine, stages):
    _, install = stages()
    validate, enforce = stages(package_state="removed")
    assert machine.run(validate).returncode == 100
    assert machine.run(install).returncode == 100
    assert machine.run(validate).returncode == 101
    done = machine.run(enforce)
    assert done.returncode == 100, done.stderr
    assert machine.run(validate).returncode == 100
    assert [path for path in machine.root.rglob("*") if not path.is_dir()] == []


# -- checkov -----------------------------------------------------------------------------------------------------

NOT_ASKED = {
    "terraform": {
        "CKV_GCP_40": "a public address is there only if network.public_ip says so; checkov does not see what a dynamic block repeats",
    },
    "terraform_plan": {
        "CKV_GCP_30": "the service account is one of its own; its address is not known before it is made",
        "CKV_GCP_31": "the same",
    },
}
"""Findings of checkov that do not apply, by its input, with the reason."""


def faults(framework, *words):
    command = [tools.checkov(), *words, "--framework", framework, "--compact", "--skip-download", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["passed"] > 15, report["summary"]
    assert report["summary"]["parsing_errors"] == 0
    return {one["check_id"]: (one["resource"], one["check_name"]) for one in report["results"]["failed_checks"]}


@pytest.mark.proof
def test_checkov_finds_nothing_in_the_modules():
    found = faults("terraform", "--directory", FOLDER)
    assert found.keys() == NOT_ASKED["terraform"].keys(), found


@pytest.mark.proof
def test_checkov_finds_nothing_in_the_plans(planned, tmp_path):
    words = []
    for name in GIVEN:
        (file := tmp_path / f"{name}.json").write_text(json.dumps(planned(name)))
        words += ["--file", file]
    found = faults("terraform_plan", *words)
    assert found.keys() == NOT_ASKED["terraform_plan"].keys(), found
