"""`chipwatch --names` sends the keys that wandb and MLflow send of this machine, with similar values."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.proof import parts

pytestmark = pytest.mark.proof
SECONDS = "4"
TRIES = ("4", "10", "30")
"""Run time of the other tool in seconds; on a busy machine it needs longer before it writes its first values."""
LONG = 120.0
STEADY = {
    "wandb": {"memory_percent": 0.5, "proc.memory.availableMB": 0.3, "disk./.usagePercent": 0.03, "disk./.usageGB": 0.03},
    "mlflow": {
        "system/system_memory_usage_percentage": 0.5, "system/system_memory_usage_megabytes": 0.5,
        "system/disk_usage_percentage": 0.03, "system/disk_usage_megabytes": 0.03, "system/disk_available_megabytes": 0.03,
    },
}  # fmt: skip
"""Keys whose values change little between two moments, and by which share at most, so that a wrong unit is seen."""


@pytest.fixture(params=["wandb", "mlflow"])
def profile(request):
    return request.param


@pytest.fixture
def theirs(profile, tmp_path):
    """Run the other tool, longer each time, until it has sent what is compared; return what it sent."""
    program = Path(__file__).with_name(f"{profile}_run.py")
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "MLFLOW_ALLOW_FILE_STORE": "true"}
    sent = {}
    for seconds in TRIES:
        folder = tmp_path / seconds
        folder.mkdir()
        command = [parts.python(profile), program, folder, seconds]
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=LONG, check=False)
        assert done.returncode == 0, done.stderr
        sent = json.loads(done.stdout.splitlines()[-1])
        if STEADY[profile].keys() <= sent.keys():
            break
    return sent


@pytest.fixture
def ours(profile, agent):
    """Run the agent; return the last value of each name."""
    words = ("--names", profile, "--level", "all", "--interval", "1", "--duration", SECONDS)
    done = agent.run(*words, "--pid", os.getpid())
    assert done.returncode == 0, done.stderr
    return {point["name"]: point["value"] for point in map(json.loads, done.stdout.splitlines())}


def test_each_key_of_the_other_tool_is_ours_and_means_the_same(profile, theirs, ours):
    assert STEADY[profile].keys() <= theirs.keys()
    assert not theirs.keys() - ours.keys()
    for key, share in STEADY[profile].items():
        assert ours[key] == pytest.approx(theirs[key], rel=share), key
