"""deploy/stack: the schema of Compose takes the file, and the targets are the ports of the image."""

import json
import re

import yaml
from tests.deploy import tools
from tests.deploy.boot_machine import run

STACK = tools.ROOT / "deploy/stack"


def test_the_schema_of_compose_takes_the_file_and_no_unknown_key(tmp_path):
    wrong = tmp_path / "compose.yml"
    wrong.write_text((STACK / "compose.yml").read_text().replace("depends_on:", "depend_on:"))
    for file, status in ((STACK / "compose.yml", 0), (wrong, 1)):
        done = run(tools.check_jsonschema(), "--builtin-schema", "vendor.compose-spec", file, check=False)
        assert done.returncode == status, done.stdout + done.stderr


def test_prometheus_scrapes_the_ports_that_the_image_of_the_nodes_opens():
    targets = [target for group in json.loads((STACK / "targets.json").read_text()) for target in group["targets"]]
    (opened,) = re.findall(r"(?m)^EXPOSE (.*)$", (tools.ROOT / "ecs-sidecar/Dockerfile").read_text())
    assert ["9090", *(target.rpartition(":")[2] for target in targets)] == opened.split()
    assert {target.partition(":")[0] for target in targets} <= {
        *yaml.safe_load((STACK / "compose.yml").read_text())["services"]
    }
