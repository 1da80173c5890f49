"""`agent status` asks the agent that runs here."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def running(agent, tmp_path):
    """An agent whose service is away: it keeps its points."""
    return agent.start(
        "--sink", "cloudwatch", "--region", "eu-west-1", "--endpoint-url", "http://127.0.0.1:9", "--interval", "0.1",
        "--window", "0.2", "--flush", "0.1", "--collector", "cpu", "--collector", "memory", "--spool", str(tmp_path),
        env={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
    )  # fmt: skip


def test_it_tells_what_is_collected_sent_and_kept(agent, running, until, tmp_path):
    def kept():
        done = agent.run("status", "--json", "--spool", str(tmp_path))
        return done.returncode == 0 and json.loads(done.stdout)["sinks"]["cloudwatch"]["kept"] > 0

    until(kept)
    told = json.loads(agent.run("status", "--json", "--spool", str(tmp_path)).stdout)
    assert told["collectors"]["memory"]["state"] == "ok"
    assert told["pid"] == running.process.pid
    assert told["sinks"]["cloudwatch"]["sent"] == 0
    until(lambda: "last error: Could not connect" in agent.run("status", "--spool", str(tmp_path)).stdout)
    text = agent.run("status", "--spool", str(tmp_path)).stdout
    assert "nothing delivered yet" in text
    assert text.startswith("chipwatch ")


def test_without_an_agent_it_ends_with_1_and_says_where_it_looked(agent, tmp_path):
    done = agent.run("status", "--spool", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"no agent answers at {tmp_path / 'status.sock'}: No such file or directory; only an agent with a spool does: ask as"
        in done.stderr
    )


def test_one_point_is_not_called_points(agent, running, until, tmp_path):
    until(lambda: "cpu          ok, 1 point, " in agent.run("status", "--spool", str(tmp_path)).stdout)
