"""A real agent whose sink fails in every way: nothing of the spool is lost, no traceback for an answer, readiness tells."""

import json
import time
from contextlib import closing

import pytest
from tests.doubles.cloudwatch import isolate
from tests.doubles.raw import BODIES, OK, STATUSES, WRECKS, RawServer, http
from tests.search.properties import LONG, books

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch.engine.spool.queue import Spool

POINTS = 20_000
LOAD = gauge("cpu.load", "1", "The load.", dims=("n",))


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch):
    isolate(monkeypatch)


def hurried(folder):
    """Return the environment of an agent that tries again after 2 ms, whatever a service asks; it needs `folder`."""
    (folder / "sitecustomize.py").write_text(
        "from chipwatch.engine import delivery_log\n"
        "from chipwatch.engine.delivery import Pauses, SinkDelivery\n"
        "delivery_log.MAX_AFTER = 0.002\n"
        "before = SinkDelivery.__init__.__defaults__\n"
        "SinkDelivery.__init__.__defaults__ = (*before[:-1], Pauses(0.001, 0.002, 0.001, 0.002))\n"
    )
    return {"PYTHONPATH": folder}


ANSWERS = [
    *(http(status, body) for status in (200, 407, 503) for body in BODIES.values()),
    *(http(413, BODIES["page"]) for _ in range(5)),
    *(http(status, BODIES["page"], "Location: http://127.0.0.1:9/") for status in STATUSES),
    *WRECKS.values(),
    *(http(400, json.dumps({"__type": code}).encode()) for code in ("ValidationException", "SerializationException")),
    http(400, b'{"__type": "ExpiredToken"}'),
]


def test_no_answer_empties_the_spool_or_prints_a_traceback(agent, until, plugins_folder, tmp_path):
    with closing(Spool("cloudwatch", tmp_path / "cloudwatch.db")) as spool:
        now = time.time_ns()
        for n in range(0, POINTS, 1000):
            spool.append([LOAD.point(now, float(n + k), Dimensions(n=str(n + k))) for k in range(1000)])
    asked = []

    def failing(body):
        asked.append(body)
        return ANSWERS[len(asked) % len(ANSWERS)] if len(asked) < 2 * len(ANSWERS) else OK

    words = ("--sink", "cloudwatch", "--collector", "memory", "--interval", "60", "--flush", "0", "--dim", "host=test")
    with RawServer([failing]) as server:
        running = agent.start(*words, "--region", "eu-west-1", "--endpoint-url", server.url, "--spool", tmp_path,
                              env=hurried(plugins_folder.folder))  # fmt: skip
        until(lambda: len(asked) >= 3 * len(ANSWERS) // 2, LONG)
        assert books(tmp_path / "cloudwatch.db")[1] >= POINTS
        until(lambda: books(tmp_path / "cloudwatch.db")[1] == 0, LONG)
        code, _ = running.stop()
    assert code == 0, running.errors()
    ledger = books(tmp_path / "cloudwatch.db")[0]
    assert ledger == {"collected": ledger["sent"], "sent": ledger["collected"]}
    assert ledger["sent"] > POINTS
    assert "Traceback" not in running.errors()
    assert len(running.errors()) < 20_000


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
