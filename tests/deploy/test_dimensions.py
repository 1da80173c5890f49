"""Agents that are configured as shipped send the series that Terraform's dashboards look for; by real runs."""

import json
import re
import textwrap
import tomllib

import pytest
from tests.agent.advisor.dashboard.strict import check_cloudwatch
from tests.deploy import terraform as tf
from tests.deploy.test_ecs import FOLDER, environment, read
from tests.deploy.test_helm import pod_of, render, toml_of
from tests.doubles import cloudwatch
from tests.doubles.ecs import Ecs
from tests.doubles.imds import Imds

from chipwatch.config.identity.platforms import ENDPOINT, VARIABLE

AWS = tf.ROOT / "terraform/aws"
ROOTS = {"CHIPWATCH_PROC", "CHIPWATCH_SYS", "CHIPWATCH_ROOT", "CHIPWATCH_SPOOL"}
"""Where a container has what this machine has elsewhere."""


def of_root():
    """Return the dimensions that the root module takes unless told, by who sends."""
    found = re.findall(r"^    (\w+) += (\[.*\])$", (AWS / "main.tf").read_text(), re.MULTILINE)
    return {who: json.loads(words) for who, words in found}


def by_chart(tmp_path):
    found = render({})
    (file := tmp_path / "chipwatch.toml").write_text(
        re.sub(r"^(proc|sys|root) = .*\n", "", toml_of(found), flags=re.MULTILINE)
    )
    env = {one["name"]: one.get("value", one["name"].lower()) for one in pod_of(found)["containers"][0]["env"]}
    return env | {"CHIPWATCH_CONFIG": str(file)}


def by_task(name):
    settings = environment(read(FOLDER / f"task-definitions/{name}.json"))
    return {key: value for key, value in settings.items() if key not in ROOTS}


def by_cloud_init(tmp_path):
    text = (AWS / "cloud-init.yaml").read_text()
    lines = re.search(r"chipwatch\.toml\n content: \|\n((?:  .*\n)+)", text)[1]
    (file := tmp_path / "chipwatch.toml").write_text(textwrap.dedent(lines))
    return {"CHIPWATCH_CONFIG": str(file)}


SENDERS = {
    "eks": by_chart,
    "daemon": lambda _: by_task("daemon-ec2"),
    "sidecar": lambda _: by_task("sidecar-fargate"),
    "ec2": by_cloud_init,
}


@pytest.mark.parametrize("who", SENDERS)
def test_the_dashboard_of_the_host_finds_all_that_is_sent(who, agent, tmp_path):
    (dmi := tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    for name, text in {"sys_vendor": "Amazon EC2", "board_asset_tag": "i-1234567890abcdef0"}.items():
        (dmi / name).write_text(f"{text}\n")
    platform = "fargate" if who == "sidecar" else "ec2"
    with cloudwatch.CloudwatchDouble() as service, Imds() as imds, Ecs(platform) as ecs:
        env = SENDERS[who](tmp_path) | {ENDPOINT: imds.url, "AWS_EC2_METADATA_DISABLED": "false"}
        env |= {VARIABLE: ecs.url} if who in {"daemon", "sidecar"} else {}
        words = ("--sys", tmp_path / "sys", "--spool", tmp_path / "spool", "--region", "us-east-1")
        collectors = [word for name in ("cpu", "memory", "disk", "network") for word in ("--collector", name)]
        done = agent.run(
            "--once", *words, *collectors, "--endpoint-url", service.url, env={**cloudwatch.environment(), **env}
        )
        assert done.returncode == 0, done.stderr
        sent = {(datum.namespace, datum.name, tuple(sorted(key for key, _ in datum.dims))) for datum in service.datums}
    assert {name for _, name, _ in sent} >= {"cpu.utilization", "memory.utilization", "disk.utilization"}
    dims = ",".join(f'\\"{word}\\"' for word in of_root()[who])
    template = (AWS / "modules/dashboards/generated/basic/host.json.tftpl").read_text()
    for name, value in {"region": "us-east-1", "namespace": "Chipwatch", "dims": dims}.items():
        template = template.replace(f"${{{name}}}", value)
    assert sent <= {series[:3] for series in check_cloudwatch(json.loads(template))}


def test_the_resource_that_the_chart_names_may_have_alarms():
    found = tomllib.loads(toml_of(render({"sinks": ["google"]})))
    known = tf.blocks(tf.ROOT / "terraform/google/modules/alert-policies")["variable"]["resource_types"]
    assert f'"{found["sinks"]["google"]["resource"]}"' in known
