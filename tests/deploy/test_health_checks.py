"""The scripts that ask for a verdict: Slurm's health check, and the plugin of node-problem-detector."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.deploy import tools

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "slurm/healthcheck.sh"
EXAMPLE = ROOT / "helm/chipwatch/examples/node-problem-detector.yaml"
IDLE = "NodeName=node-7 Arch=x86_64 State=IDLE ThreadsPerCore=2"
pytestmark = pytest.mark.skipif(not Path("/bin/sh").exists(), reason="a script of the shell")


@pytest.fixture
def node(tmp_path):
    """A node with an agent that prints given answers, and a scontrol that notes its arguments."""

    def run(output, code, node=IDLE, **env):
        programs = {
            "chipwatch": f"printf '%s\\n' \"$@\" > '{tmp_path}/words'\nprintf '%s\\n' '{output}'\nexit {code}",
            "scontrol": f"[ \"$1\" = show ] && echo '{node}' && exit 0\nprintf '%s\\n' \"$@\" >> '{tmp_path}/asked'",
        }
        for name, text in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        done = subprocess.run(
            ["sh", SCRIPT], capture_output=True, text=True, check=False,
            env={"PATH": os.defpath, "CHIPWATCH_PATH": str(tmp_path), "SLURMD_NODENAME": "node-7", **env},
        )  # fmt: skip
        asked = tmp_path / "asked"
        return done, asked.read_text().splitlines() if asked.exists() else [], (tmp_path / "words").read_text().split()

    return run


def test_a_node_that_is_not_fit_is_drained_with_the_reason(node):
    done, asked, words = node("NOT FIT: gpu 6: had Xid 79 at 10:41:02. Drain this node.", 1, CHIPWATCH_EXPECT="gpus=8")
    assert words == ["verdict", "--for", "slurm", "--expect", "gpus=8"]
    assert asked == [
        "update", "NodeName=node-7", "State=DRAIN", "Reason=chipwatch: gpu 6: had Xid 79 at 10:41:02. Drain this node."
    ]  # fmt: skip
    assert done.returncode == 0


def test_a_long_reason_is_cut(node):
    _, asked, _ = node(f"NOT FIT: {'x' * 900}", 1)
    assert asked[3] == f"Reason=chipwatch: {'x' * 200}"


@pytest.mark.parametrize(
    ("output", "code"),
    [("FIT: 8 GPUs", 0), ("DEGRADED: mlx5_3: link went down", 0), ("UNKNOWN: nvidia: no answer", 0), ("", 1), ("", 2),
     ("", 137), ("Traceback (most recent call last):", 1), ("chipwatch: --expekt: no such option", 2)],
)  # fmt: skip
def test_nothing_else_drains_a_node(node, output, code):
    done, asked, _ = node(output, code)
    assert (asked, done.returncode) == ([], 0)


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DRAINING", "DOWN*", "MIXED+DRAIN"])
def test_the_reason_of_somebody_else_is_not_replaced(node, state):
    assert node("NOT FIT: gpu 6: is lost.", 1, node=IDLE.replace("IDLE", state))[1] == []


def test_without_scontrol_or_an_agent_nothing_happens():
    done = subprocess.run(
        ["sh", SCRIPT], capture_output=True, text=True, check=False, env={"PATH": os.defpath, "CHIPWATCH_PATH": "/none"}
    )
    assert (done.returncode, done.stdout) == (0, "")


# -- node-problem-detector ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "code", "expected"),
    [("FIT: 8 GPUs", 0, 0), ("DEGRADED: mlx5_3: link went down", 0, 0), ("NOT FIT: gpu 6: is lost.", 1, 1),
     ("UNKNOWN: nvidia: no answer", 2, 2), ("Traceback (most recent call last):", 1, 2), ("", 137, 2), (None, 0, 2)],
)  # fmt: skip
def test_the_plugin_ends_with_a_code_that_the_detector_knows(tmp_path, output, code, expected):
    script, agent = tmp_path / "verdict.sh", tmp_path / "agent"
    script.write_text(yaml.safe_load(EXAMPLE.read_text())["data"]["verdict.sh"])
    if output is not None:
        agent.write_text(f"#!/bin/sh\necho '{output}'\nexit {code}\n")
        agent.chmod(0o755)
    env = {"PATH": os.defpath, "NPD_ROOT": "/", "NPD_AGENT": str(agent)}
    done = subprocess.run(["sh", script], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == expected
    assert done.stdout.count("\n") == 1


def test_the_plugins_rule_has_a_condition_and_times_that_fit():
    config = json.loads(yaml.safe_load(EXAMPLE.read_text())["data"]["hardware.json"])
    (condition,), (rule,) = config["conditions"], config["rules"]
    assert rule["condition"] == condition["type"]
    assert rule["path"].endswith("/verdict.sh")
    seconds = [int(text.rstrip("s")) for text in (rule["timeout"], config["pluginConfig"]["timeout"])]
    assert 5 < seconds[0] <= seconds[1] < int(config["pluginConfig"]["invoke_interval"].rstrip("s"))


def test_the_plugins_script_is_sound(tmp_path):
    script = tmp_path / "verdict.sh"
    script.write_text(yaml.safe_load(EXAMPLE.read_text())["data"]["verdict.sh"])
    done = subprocess.run([tools.shellcheck(), script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
