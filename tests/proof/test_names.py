"""`chipwatch --names` sends the keys that wandb and MLflow send of this machine, with similar values."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.proof import parts

pytestmark = pytest.mark.proof
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
def ours(profile, agent, tmp_path):
    """Run the agent beside the other tool; return a function that ends it and returns the values of each name."""
    path = tmp_path / "ours.jsonl"
    words = ("--names", profile, "--level", "all", "--interval", "1", "--pid", os.getpid())
    running = agent.start(*words, env={"CHIPWATCH_SINKS__STDOUT__PATH": path})

    def end():
        assert running.stop()[0] == 0, running.errors()
        values = {}
        for point in map(json.loads, path.read_text().splitlines()):
            values.setdefault(point["name"], []).append(point["value"])
        return values

    return end


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


def test_each_key_of_the_other_tool_is_ours_and_means_the_same(profile, ours, theirs):
    assert STEADY[profile].keys() <= theirs.keys()
    values = ours()
    assert not theirs.keys() - values.keys()
    for key, share in STEADY[profile].items():  # other tests take and free memory meanwhile
        assert min(values[key]) * (1 - share) <= theirs[key] <= max(values[key]) * (1 + share), key
