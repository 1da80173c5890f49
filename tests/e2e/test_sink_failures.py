"""A real agent whose sink hangs or ends the program: nothing of the spool is lost, and readiness tells."""

import pytest
from tests.search.properties import LONG, books

SINKS = """
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from chipwatch.engine import delivery
from chipwatch.contract.sink import Limits, Sink

delivery.HANG = 0.5

class Hanging(Sink):
    limits = Limits(max_points=1000, window=0, flush=0)

    @dataclass(frozen=True)
    class Config:
        gate: Path = Path("gate")

    def __init__(self, config):
        self.gate = config.gate

    def write(self, batch):
        while not self.gate.exists():
            threading.Event().wait(0.01)
        return []

class Exiting(Hanging):
    def write(self, batch):
        if not self.gate.exists():
            sys.exit(3)
        return []
"""


@pytest.fixture
def start(agent, plugins_folder, tmp_path):
    """Run with one of these sinks, which works once the file `gate` is there; give also a function that asks if it is ready."""
    plugins_folder.add("odd_sinks", SINKS, sinks=[("hanging", "Hanging"), ("exiting", "Exiting")])
    env = {"PYTHONPATH": plugins_folder.folder}

    def make(name):
        config = tmp_path / "agent.toml"
        config.write_text(f"[sinks.{name}]\ngate = '{tmp_path / 'gate'}'\n")
        words = f"--config {config} --sink {name} --collector memory --interval 0.1 --spool {tmp_path}".split()
        running = agent.start(*words, "--log-level", "info", env=env)
        return running, lambda: agent.run("status", "--health", "--ready", "--spool", tmp_path, env=env)

    return make


def test_a_sink_that_hangs_is_logged_once_is_not_ready_and_answers_again(start, until, tmp_path):
    running, health = start("hanging")
    until(lambda: "hanging: hangs: no answer for" in running.errors(), LONG)
    answer = until(
        lambda: (done := health()).returncode and "is not ready: hanging: hangs" in done.stdout and done, LONG
    )
    assert answer.returncode == 1
    (tmp_path / "gate").touch()
    until(lambda: "hanging: answers again" in running.errors(), LONG)
    until(lambda: health().returncode == 0, LONG)
    assert running.errors().count("hangs: ") == 1
    assert running.stop()[0] == 0


def test_an_agent_whose_sink_hangs_ends_in_time_and_keeps_its_points(start, until, tmp_path):
    running, _ = start("hanging")
    until(lambda: "hangs: no answer for" in running.errors(), LONG)
    code, took = running.stop()
    assert code == 0
    assert took < 20
    assert books(tmp_path / "hanging.db")[1] == books(tmp_path / "hanging.db")[0]["collected"] > 5


def test_a_sink_that_tries_to_end_the_program_counts_as_a_bug_and_recovers(start, until, tmp_path):
    running, health = start("exiting")
    until(lambda: "bug: SystemExit: 3" in running.errors(), LONG)
    until(lambda: health().returncode == 1, LONG)
    assert books(tmp_path / "exiting.db")[0].keys() == {"collected"}
    (tmp_path / "gate").touch()
    until(lambda: books(tmp_path / "exiting.db")[0].get("sent"), LONG)
    until(lambda: health().returncode == 0, LONG)
    assert running.stop()[0] == 0
    ledger = books(tmp_path / "exiting.db")[0]
    assert ledger["sent"] == ledger["collected"]
