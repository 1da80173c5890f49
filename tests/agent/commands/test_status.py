"""`chipwatch status` asks the agent that runs here."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import urllib.request

import pytest

from chipwatch.commands.answers import status_text
from chipwatch.show.top.delivery import parts_of


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
    until(lambda: "last error: 127.0.0.1:" in agent.run("status", "--spool", str(tmp_path)).stdout)
    text = agent.run("status", "--spool", str(tmp_path)).stdout
    assert "nothing delivered yet" in text
    assert text.startswith("chipwatch ")


def test_the_start_is_not_a_share_of_a_core(agent, running, until, tmp_path):
    until(lambda: " s of CPU to start" in agent.run("status", "--spool", str(tmp_path)).stdout)


def test_without_an_agent_it_ends_with_1_and_says_where_it_looked(agent, tmp_path):
    done = agent.run("status", "--spool", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"no agent answers at {tmp_path / 'status.sock'}: no agent has made it; start one, ask as its user, or give its --spool;"
        in done.stderr
    )


def test_the_last_line_judges_and_what_the_machine_lacks_is_one_line(agent, running, until, tmp_path):
    words = ("status", "--spool", str(tmp_path))
    until(lambda: agent.run(*words).stdout.endswith("\nnot fine: cloudwatch cannot send\n"))
    answer = json.loads(agent.run(*words, "--json").stdout)
    answer["sinks"]["cloudwatch"] |= {"last_error": None, "seconds_since_delivery": 2.0}
    answer["collectors"]["amd"] = {"state": "absent", "points": 0, "seconds": 0.0, "error": "no card"}
    answer["collectors"]["rdma"] = {"state": "absent", "points": 0, "seconds": 0.0, "error": "cannot be read"}
    answer["not_ready"] = None
    lines = status_text(answer).splitlines()
    assert lines[-1] == "fine: 2 collectors read, 1 sink delivered"
    assert lines[-2].startswith("absent here: amd")
    assert "rdma         absent, 0 points: cannot be read" in lines
    assert "amd          absent, 0 points: no card" in status_text(answer, verbose=True)


def test_one_point_is_not_called_points(agent, running, until, tmp_path):
    until(lambda: "cpu          ok, 1 point, " in agent.run("status", "--spool", str(tmp_path)).stdout)


def test_a_sink_that_is_scraped_says_how_many_series_it_has_and_who_scraped_it(agent, until, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    words = ("--sink", "prometheus", "--collector", "memory", "--interval", "0.1", "--spool", tmp_path)
    agent.start(*words, env={"CHIPWATCH_SINKS__PROMETHEUS__LISTEN": address})

    def line(pattern):
        return re.search(f"(?m)^prometheus   {pattern}$", agent.run("status", "--spool", tmp_path).stdout)

    until(lambda: line(r"[1-9]\d* series, not scraped yet"))
    urllib.request.urlopen(f"http://{address}/", timeout=10).close()
    assert line(r"\d+ series, not scraped yet")
    urllib.request.urlopen(f"http://{address}/metrics", timeout=10).close()
    assert line(r"\d+ series, scraped \d+ s ago by 127\.0\.0\.1")
    told = json.loads(agent.run("status", "--json", "--spool", tmp_path).stdout)
    assert ("scraped" in "".join(text for text, _ in parts_of(told)[0])) is True


def test_a_run_that_prints_answers_on_a_terminal_and_not_in_a_pipe(agent, until, tmp_path):
    words = ("--collector", "memory", "--interval", "0.1", "--spool", tmp_path)
    piped = agent.start(*words)
    until(piped.points)
    assert agent.run("status", "--spool", tmp_path).returncode == 1
    assert [*tmp_path.glob("alive")] == []
    piped.stop()
    ours, theirs = pty.openpty()
    words = (*agent.command, *words[:2], "--spool", str(tmp_path))
    shown = subprocess.Popen(words, env=agent.env(), stdout=theirs)
    os.close(theirs)
    try:
        until(lambda: agent.run("status", "--spool", tmp_path).returncode == 0)
    finally:
        os.close(ours)  # closing the terminal ends the run
        shown.terminate()
        shown.wait(30)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("status")] == []
