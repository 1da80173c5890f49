"""The document and association of Systems Manager, as Terraform plans them, on a hundred nodes."""

import json
import subprocess
import sys

import botocore.session
import pytest
from botocore.validate import ParamValidator
from tests.deploy import terraform as tf
from tests.deploy.test_user_data import Play
from tests.doubles import ssm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the installer runs on Linux alone")
SSM, SCRIPT = tf.ROOT / "terraform/aws/modules/ssm", tf.ROOT / "terraform/aws/modules/install-script"
BROKEN = ("node-004", "node-017", "node-023", "node-061", "node-088")
NODES = {f"node-{n:03}": {"chipwatch": "yes"} for n in range(100)}
INSTALLER = f"""#!/bin/sh
case $NODE in {" | ".join(BROKEN)}) echo "chipwatch: 0.2.0 does not start; 0.1.0 is back with its configuration" >&2; exit 3 ;; esac
echo "chipwatch: 0.2.0 runs $*"
"""


@pytest.fixture
def planned(terraform):
    def plan(script, **given):
        resources = tf.resources(terraform.plan(SSM, {"script": script, **given}))
        return resources["aws_ssm_document.this[0]"], resources["aws_ssm_association.this[0]"]

    return plan


def on(node, command):
    done = subprocess.run(["sh", "-c", command], env={"NODE": node, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def by_status(found):
    return {status: [node for node, (its, _) in found.items() if its == status] for status in ("Success", "Failed", "Terminated")}  # fmt: skip


def test_an_update_stops_at_max_errors_and_says_which_machines_failed(planned):
    document, association = planned(INSTALLER, max_concurrency="10%", max_errors="2")
    found = ssm.begin(document["content"], association, NODES | {"other": {"app": "web"}}, on)
    seen = by_status(found)
    assert seen["Failed"] == ["node-004", "node-017", "node-023"], "the third failure is more than 2"
    assert seen["Terminated"] == [f"node-{n:03}" for n in range(33, 100)], "nine others were under way"
    assert len(seen["Success"]) == 30
    assert {found[node][1] for node in seen["Failed"]} == {
        "chipwatch: 0.2.0 does not start; 0.1.0 is back with its configuration\n"
    }
    assert "other" not in found


def test_by_default_the_second_failure_in_a_hundred_stops_it(planned):
    document, association = planned(INSTALLER)
    seen = by_status(ssm.begin(document["content"], association, NODES, on))
    assert (seen["Failed"], len(seen["Terminated"])) == (["node-004", "node-017", "node-023"], 73)


@pytest.mark.parametrize("action", ["rollback", "uninstall"])
def test_the_same_document_takes_an_update_back_and_the_agent_off(planned, action):
    document, association = planned(INSTALLER, action=action)
    found = ssm.begin(document["content"], association, {"node-000": {"chipwatch": "yes"}}, on)
    assert found == {"node-000": ("Success", f"chipwatch: 0.2.0 runs --{action}\n")}


def test_systems_manager_knows_every_word_of_document_and_association(planned):
    document, association = planned(
        INSTALLER, output_bucket="logs", target_tags={"app": ["training"], "stage": ["prod"]}
    )
    model = botocore.session.get_session().get_service_model("ssm")
    asked = {
        "CreateDocument": {
            "Name": document["name"], "Content": document["content"], "DocumentType": document["document_type"],
            "DocumentFormat": document["document_format"], "TargetType": document["target_type"],
        },
        "CreateAssociation": {
            "Name": association["name"], "AssociationName": association["association_name"],
            "Parameters": {key: [value] for key, value in association["parameters"].items()},
            "Targets": [{"Key": one["key"], "Values": one["values"]} for one in association["targets"]],
            "ScheduleExpression": association["schedule_expression"], "MaxErrors": association["max_errors"],
            "MaxConcurrency": association["max_concurrency"], "ComplianceSeverity": association["compliance_severity"],
            "OutputLocation": {"S3Location": {
                "OutputS3BucketName": association["output_location"][0]["s3_bucket_name"],
                "OutputS3KeyPrefix": association["output_location"][0]["s3_key_prefix"],
            }},
        },
    }  # fmt: skip
    for operation, words in asked.items():
        report = ParamValidator().validate(words, model.operation_model(operation).input_shape)
        assert not report.has_errors(), report.generate_report()
    severities = model.shape_for("AssociationComplianceSeverity").enum
    assert association["compliance_severity"] in severities


def test_the_document_installs_updates_takes_back_and_removes_with_the_one_installer(terraform, planned, tmp_path):
    play = Play(tmp_path)
    play.wheels.mkdir()

    def apply(version, action="install"):
        agent = {"version": version, "wheelhouse": str(play.wheels), "sinks": ["stdout"], "extras": []}
        outputs = terraform.plan(SCRIPT, {"agent": agent})["planned_values"]["outputs"]
        document, association = planned(outputs["script"]["value"], action=action)
        return play.run(ssm.command_of(json.loads(document["content"]), association["parameters"]))

    def current():
        return (play.root / "opt/chipwatch/current").resolve().name.partition("-")[0]

    for version in ("1.0", "2.0"):
        done = apply(version)
        assert (done.returncode, current()) == (0, version), done.stderr
    assert "2.0 runs already" in apply("2.0").stdout
    assert apply("2.0", "rollback").returncode == 0
    assert current() == "1.0"
    play.ends("systemctl restart chipwatch.service", 1)
    assert apply("3.0").returncode == 4
    (play.folder / "systemctl restart chipwatch.service").unlink()
    assert apply("2.0", "uninstall").returncode == 0
    assert not (play.root / "opt/chipwatch").exists()
