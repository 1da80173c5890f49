"""wandb, offline, scrapes the flat page of two nodes into one run; its event file has what they printed."""

import json
import os
import subprocess
import urllib.request
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.proof import parts
from tests.proof.scraping import LONG, start

pytestmark = pytest.mark.proof
TRIES = ("4", "10", "30")
"""Run time of wandb in seconds; on a busy machine it needs longer before it writes its first values."""


def flat(port):
    """Return the names and values of the flat page; None while there is no page."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/flat", timeout=LONG) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return None
    return {name: float(value) for name, value in (line.split(" ") for line in lines if not line.startswith("#"))}


def test_the_run_has_the_series_of_both_nodes_with_their_labels_in_the_names(agent, until, tmp_path):
    ports = {"node-0": free_port(), "node-1": free_port()}
    running = [start(agent, port, "--interval", "1", "--level", "all") for port in ports.values()]
    names = until(lambda: all(map(flat, ports.values())) and flat(ports["node-0"]), LONG)
    both = {"memory.total", "disk.used"}
    printed = until(lambda: (now := {p["name"]: p["value"] for p in running[0].points()}).keys() >= both and now, LONG)
    endpoints = [f"{node}=http://127.0.0.1:{port}/flat" for node, port in ports.items()]
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    for seconds in TRIES:
        folder = tmp_path / seconds
        folder.mkdir()
        done = subprocess.run(
            [parts.python("wandb"), Path(__file__).with_name("wandb_run.py"), folder, seconds, *endpoints],
            env=env, cwd=folder, capture_output=True, text=True, timeout=2 * LONG, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        sent = json.loads(done.stdout.splitlines()[-1])
        wanted = {f"openmetrics.{node}.{name}.0" for node in ports for name in names}
        if wanted <= sent.keys():
            break
    assert wanted - sent.keys() == set()
    for node in ports:
        assert sent[f"openmetrics.{node}.memory_total_bytes.0"] == printed["memory.total"]
        assert sent[f"openmetrics.{node}.disk_used_bytes.0"] == pytest.approx(printed["disk.used"], rel=0.03)
        assert not [key for key in sent if key.startswith(f"openmetrics.{node}.") and not key.endswith(".0")]
    assert [one.stop()[0] for one in running] == [0, 0]
