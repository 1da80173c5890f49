"""`chipwatch status` asks the agent that runs here."""

import json
import os
import pty
import re
import socket
import subprocess
import urllib.request
from types import SimpleNamespace

import pytest
from tests.conftest import Agent

from chipwatch.commands.answers import status_text
from chipwatch.show.top.program import parts_of


@pytest.fixture(scope="module")
def running(agent_command, tmp_path_factory):
    """An agent whose service is away: it keeps its points; `folder` has its spool."""
    agent = Agent(agent_command, tmp_path_factory.mktemp("away"))
    started = agent.start(
        "--sink", "cloudwatch", "--region", "eu-west-1", "--endpoint-url", "http://127.0.0.1:9", "--interval", "0.1",
        "--window", "0.2", "--flush", "0.1", "--collector", "cpu", "--collector", "memory", "--spool", agent.folder,
        env={"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
    )  # fmt: skip
    yield SimpleNamespace(pid=started.pid, folder=agent.folder)
    started.process.kill()
    started.process.wait()


@pytest.fixture
def asked(here, running):
    """Ask the agent that runs; return what the command prints."""
    return lambda *words: here("status", *words, env={"CHIPWATCH_SPOOL": str(running.folder)}).stdout


def test_it_tells_what_is_collected_sent_and_kept(asked, running, until):
    until(lambda: (text := asked("--json")) and json.loads(text)["sinks"]["cloudwatch"]["kept"] > 0)
    told = json.loads(asked("--json"))
    assert told["collectors"]["memory"]["state"] == "ok"
    assert told["pid"] == running.pid
    assert told["sinks"]["cloudwatch"]["sent"] == 0
    until(lambda: "last error: 127.0.0.1:" in asked())
    text = asked()
    assert "nothing delivered yet" in text
    assert text.startswith("chipwatch ")
    until(lambda: " s of CPU to start" in asked())  # it is not a share of a core
    until(lambda: "cpu          ok, 1 point, " in asked())  # not points


def test_without_an_agent_it_ends_with_1_and_says_where_it_looked(here, tmp_path):
    done = here("status", "--spool", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    where = f"no agent answers at {tmp_path / 'status.sock'}: no agent has made it"
    assert f"{where}; start `chipwatch`, ask as its user, or give its --spool;" in done.stderr


def test_the_last_line_judges_and_what_the_machine_lacks_is_one_line(asked, until):
    until(lambda: asked().endswith("\nnot fine: cloudwatch cannot send\n"))
    answer = json.loads(asked("--json"))
    answer["sinks"]["cloudwatch"] |= {"last_error": None, "seconds_since_delivery": 2.0}
    answer["collectors"]["amd"] = {"state": "absent", "points": 0, "seconds": 0.0, "error": "no card"}
    answer["collectors"]["rdma"] = {"state": "absent", "points": 0, "seconds": 0.0, "error": "\x1b[2J cannot be read"}
    answer["not_ready"] = None
    assert "left out" not in status_text(answer)
    answer["sinks"]["cloudwatch"]["series_left_out"] = 4518
    assert "             4,518 series are left out: exclude metrics, or raise max_series\n" in status_text(answer)
    lines = status_text(answer).splitlines()
    assert lines[-1] == "fine: 2 collectors read, 1 sink delivered"
    assert lines[-2].startswith("absent here: amd")
    assert r"rdma         absent, 0 points: \x1b[2J cannot be read" in lines
    assert "amd          absent, 0 points: no card" in status_text(answer, verbose=True)


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
