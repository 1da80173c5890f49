"""What wandb and MLflow send of this machine, and what `agent --names` sends of it: the same keys, and like values."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.proof import parts

pytestmark = pytest.mark.proof
SECONDS = "4"
LONG = 120.0
WITHOUT_COUNTERPART = {"wandb": {"network.tcpRetransmits"}, "mlflow": set()}
STEADY = {
    "wandb": ("memory_percent", "proc.memory.availableMB", "disk./.usagePercent", "disk./.usageGB"),
    "mlflow": (
        "system/system_memory_usage_percentage", "system/system_memory_usage_megabytes",
        "system/disk_usage_percentage", "system/disk_usage_megabytes", "system/disk_available_megabytes",
    ),
}  # fmt: skip
"""What differs by no more than a tenth from one moment to the next, so that a wrong unit is seen."""


@pytest.fixture(params=["wandb", "mlflow"])
def profile(request):
    return request.param


@pytest.fixture
def theirs(profile, tmp_path):
    """Run the other tool; return what it sent."""
    program = Path(__file__).with_name(f"{profile}_run.py")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "MLFLOW_ALLOW_FILE_STORE": "true"}
    command = [parts.python(profile), program, tmp_path, SECONDS]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def ours(profile, agent):
    """Run the agent; return the last value of each name."""
    words = ("--names", profile, "--level", "all", "--interval", "1", "--duration", SECONDS)
    done = agent.run(*words, "--pid", os.getpid())
    assert done.returncode == 0, done.stderr
    return {point["name"]: point["value"] for point in map(json.loads, done.stdout.splitlines())}


def test_each_key_of_the_other_tool_is_ours_and_means_the_same(profile, theirs, ours):
    assert set(STEADY[profile]) <= theirs.keys()
    assert theirs.keys() - ours.keys() == WITHOUT_COUNTERPART[profile] & theirs.keys()
    for key in STEADY[profile]:
        assert ours[key] == pytest.approx(theirs[key], rel=0.1, abs=2), key
