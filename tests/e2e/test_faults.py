"""A real agent goes on without a plugin that hangs, raises or gives wrong values, counts it, and ends in time."""

import json
import re
import signal
import sys
import time

import pytest
from tests.conftest import LONG, Agent, Plugins

from chipwatch.engine.spool.queue import Spool

IN_TIME = 2.0
"""Seconds that an end may take: one is promised, and a machine that runs tests is busy."""

COLLECTORS = """
import threading
from optionless import *
from chipwatch.contract.facts import Device

VALUE = gauge("stub.value", "1", "A value.")

class Stub(Optionless, Collector):
    metrics = (VALUE,)
    readings = 0

class Raising(Stub):
    def collect(self, at):
        self.readings += 1
        raise RuntimeError(f"reading {self.readings} failed")

class Hanging(Stub):
    def collect(self, at):
        threading.Event().wait()
        yield

class HangingToOpen(Stub):
    def open(self, given):
        threading.Event().wait()

    def collect(self, at):
        return ()

class Lying(Stub):
    def collect(self, at):
        yield VALUE.point(at, float("nan"))
        yield VALUE.point(at, float("inf"))

class NotClosing(Stub):
    def collect(self, at):
        yield VALUE.point(at, 1.0)

    def close(self):
        threading.Event().wait()

class Exiting(Stub):
    def collect(self, at):
        raise SystemExit(3)

class Malformed(Stub):
    def collect(self, at):
        good = VALUE.point(at, 1.0)
        yield good
        yield good._replace(dims={"a": "b"})
        yield good._replace(at=2**63)
        yield good._replace(start_time=0.5)
        yield VALUE.point(at, 2.0, Dimensions({"a": 1}))
        yield VALUE.point(at, 3.0, Dimensions(a="c"))

class Wordless(Exception):
    def __str__(self):
        raise ValueError

class Voiceless(Stub):
    def collect(self, at):
        yield VALUE.point(at, 1.0)

    knows = (Device,)

    def facts(self):
        raise Wordless

    def close(self):
        raise Wordless

class Undescribed(NotClosing):
    def describe(self):
        raise Wordless

    def close(self):
        raise Wordless

class Endless(Stub):
    def collect(self, at):
        while True:
            yield VALUE.point(at, 1.0)

class Breaking(Stub):
    # it breaks the agent itself

    def __init__(self, config):
        super().__init__(config)
        from chipwatch.engine.clock import Pipeline

        Pipeline.start = None

    def collect(self, at):
        return ()
"""
STUCK_STATVFS = """
import os
import re, threading
real = os.statvfs
def statvfs(path):
    if str(path).endswith("stuck"):
        threading.Event().wait()
    return real(path)
os.statvfs = statvfs
"""
SINK = """
from optionless import *

class Stub(Optionless, Sink):
    limits = Limits(max_points=1000, durable=False, window=0, flush=0)

class Raising(Stub):
    def write(self, batch):
        raise RuntimeError("odd batch")
"""
STUBS = {"raising": "Raising", "hanging": "Hanging", "opening": "HangingToOpen", "lying": "Lying", "closing": "NotClosing",
         "exiting": "Exiting", "malformed": "Malformed", "voiceless": "Voiceless", "undescribed": "Undescribed", "endless": "Endless",
         "breaking": "Breaking"}  # fmt: skip


@pytest.fixture
def start(agent, plugins_folder):
    """Run with stubs on the path, one reading each tenth of a second."""
    plugins_folder.add("fault_stubs", COLLECTORS, collectors=list(STUBS.items()))
    plugins_folder.add("fault_sinks", SINK, sinks=[("raising", "Raising")])

    def make(*stubs, words=(), others=("memory",)):
        chosen = [word for name in (*stubs, *others) for word in ("--collector", name)]
        return agent.start(
            "--interval", "0.1", "--level", "detailed", "--format", "json", *chosen, *words,
            env={"PYTHONPATH": plugins_folder.folder},
        )  # fmt: skip

    return make


def ticks(running, name="memory.used"):
    return len([p for p in running.points() if p["name"] == name])


def count(running, name, of, key="collector"):
    found = [p["value"] for p in running.points() if p["name"] == f"agent.{name}" and p["dims"].get(key) == of]
    return found[-1] if found else None


def ends_in_time(running):
    before = ticks(running)
    code, took = running.stop(signal.SIGTERM)
    assert code == 0
    assert took < IN_TIME
    assert ticks(running) > before  # the last moment counts, too


@pytest.fixture(scope="module")
def troubled(agent_command, tmp_path_factory):
    """A run of many collectors in trouble and three that are well, after it has ended; each was read eight times."""
    folder, plugins = tmp_path_factory.mktemp("troubled"), Plugins(tmp_path_factory.mktemp("plugins"))
    plugins.add("fault_stubs", COLLECTORS, collectors=list(STUBS.items()))
    chosen = "raising,hanging,opening,lying,closing,exiting,malformed,memory,cpu,disk"
    words = ("--interval", "0.1", "--level", "detailed", "--format", "json", "--collector", chosen)
    running = Agent(agent_command, folder).start(*words, env={"PYTHONPATH": plugins.folder})
    wanted = [("failed", "raising"), ("failed", "exiting"), ("skipped", "hanging"), ("skipped", "opening"),
              ("not_finite", "lying")]  # fmt: skip
    try:
        deadline = time.monotonic() + LONG
        while not all((count(running, f"collector.{name}", of) or 0) >= 8 for name, of in wanted):
            assert time.monotonic() < deadline, wanted
            time.sleep(0.05)
        ends_in_time(running)
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait(LONG)
    return running


def test_collectors_in_trouble_cost_the_others_nothing(troubled):
    assert all(ticks(troubled, name) >= 8 for name in ("memory.used", "stub.value"))
    assert ticks(troubled, "disk.used") >= 2  # read each five seconds
    assert ticks(troubled, "cpu.utilization") >= 3
    well = ("memory", "cpu", "disk", "malformed", "closing")
    assert {count(troubled, "collector.ok", of) for of in well} == {1}


def test_a_collector_that_raises_each_time_is_counted_and_told_once(troubled):
    assert count(troubled, "collector.ok", "raising") == 0
    assert troubled.errors().count("collector raising: failed: reading 1 failed") == 1
    assert troubled.errors().count("Traceback") == 2  # its own, and that of the one that wants to end the process


@pytest.mark.parametrize("stub", ["hanging", "opening"])
def test_a_collector_that_hangs_for_ever_is_passed_over_and_counted(troubled, stub):
    assert count(troubled, "collector.ok", stub) == 0
    assert troubled.errors().count(f"collector {stub}: the last reading has not returned") == 1


def test_invalid_numbers_are_left_out_and_counted(troubled):
    """Those that are there are of the collectors that are malformed or do not close."""
    assert "NaN" not in troubled.out.read_text()
    assert "Infinity" not in troubled.out.read_text()


def test_a_collector_that_wants_to_end_the_process_ends_only_itself(troubled):
    assert count(troubled, "collector.ok", "exiting") == 0
    late = count(troubled, "collector.skipped", "exiting") or 0  # none, but on a busy machine
    assert late < count(troubled, "collector.failed", "exiting")


def test_malformed_points_cost_themselves_and_are_counted_by_what_is_wrong(troubled):
    found = {(p["value"], *p["dims"].values()) for p in troubled.points() if p["name"] == "stub.value"}
    assert found == {(1.0,), (3.0, "c")}
    at, dims, start = (count(troubled, "collector.malformed", part, "part") for part in ("at", "dims", "start_time"))
    assert at == start == dims / 2 >= 8
    assert troubled.errors().count("collector malformed: malformed points are left out: stub.value: ") == 3


def test_malformed_points_do_not_reach_the_spool(start, until, plugins_folder, agent, tmp_path):
    """A later run reads the spool: a window that it cannot read would be lost for all collectors."""
    words = f"--sink google --project some-project --spool {tmp_path} --window 10 --duration 0.5".split()
    env = {"CHIPWATCH_SINKS__GOOGLE__ENDPOINT": "127.0.0.1:9", "CHIPWATCH_SINKS__GOOGLE__INSECURE": "true"}
    env |= {"PYTHONPATH": plugins_folder.folder, "NO_GCE_CHECK": "true", "AWS_EC2_METADATA_DISABLED": "true"}
    chosen = ("--collector", "memory", "--collector", "malformed", "--interval", "0.1", "--dim", "host=test")
    agent.run(*words, *chosen, env=env)
    spool = Spool("google", tmp_path / "google.db")
    ((points, _),) = spool.take(1000)
    spool.close()
    assert {point.dims.get("a") for point in points if point.metric.name == "stub.value"} == {None, "c"}
    assert "memory.used" in {point.metric.name for point in points}
    assert not spool.ledger.dropped


def test_check_says_what_is_wrong_with_points_and_what_a_plugin_raises(agent, start, plugins_folder):
    chosen = ("--collector", "malformed", "--collector", "voiceless", "--collector", "endless", "--collector", "memory")
    chosen += ("--collector", "undescribed")
    done = agent.run("check", *chosen, env={"PYTHONPATH": plugins_folder.folder})
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("collector")}
    assert (
        "; in part: malformed points are left out: stub.value: dims: expected Dimensions, got dict; "
        in lines["malformed"]
    )
    assert " IN PART  1 series; in part: its facts are missing" in lines["voiceless"]
    assert "in part: more than 20000 points in one reading; the rest is left out" in lines["endless"]
    assert " ok " in lines["memory"]
    assert "FAILED   collectors.undescribed: describe fails: Wordless: its __str__ raises" in lines["undescribed"]
    assert "Traceback" not in done.stdout


def test_whatever_a_plugin_does_to_the_agent_the_command_is_waited_for_and_gets_its_signals(
    agent, until, start, plugins_folder, tmp_path
):
    ready = tmp_path / "ready"
    program = (
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "for _ in range(3000):  # one long sleep would miss a signal that comes just before it\n"
        "    time.sleep(0.02)\n"
    )
    running = agent.start("--collector", "breaking", "--", sys.executable, "-c", program,
                          env={"PYTHONPATH": plugins_folder.folder, "STATE_DIRECTORY": tmp_path})  # fmt: skip
    log = tmp_path / "command.log"
    until(lambda: ready.exists() and log.exists() and "goes on without metrics" in log.read_text())
    assert running.process.poll() is None
    assert running.errors() == ""
    code, _ = running.stop(signal.SIGTERM)
    assert code == 7
    assert running.errors().splitlines()[-1] == f"chipwatch: 1 error logged in {log}"
    assert " ended with 7 after " in running.errors()


def test_statvfs_that_never_returns_costs_its_own_path_and_is_counted(start, until, plugins_folder, tmp_path):
    (plugins_folder.folder / "sitecustomize.py").write_text(STUCK_STATVFS)
    (tmp_path / "stuck").mkdir()
    file = tmp_path / "agent.toml"
    file.write_text(f"[collectors.disk]\npaths = {json.dumps(['/', str(tmp_path / 'stuck')])}\n")
    running = start(words=("--config", file), others=("disk", "memory"))
    until(lambda: (count(running, "collector.partial", "disk") or 0) >= 5)
    used = [p for p in running.points() if p["name"] == "disk.used"]
    assert {p["dims"]["path"] for p in used} == {"/"}
    assert len(used) >= 2  # read each five seconds
    assert ticks(running) >= 5
    assert running.errors().count("does not return") == 1
    ends_in_time(running)


def test_a_sink_that_fails_on_every_point_loses_none_and_costs_the_others_nothing(start, until):
    running = start(words=("--sink", "raising", "--sink", "stdout"))
    until(lambda: ticks(running) >= 8)
    assert count(running, "sink.sent", "stdout", "sink") > 0
    assert not count(running, "sink.dropped", "raising", "sink")
    assert running.errors().count("Traceback") == 1
    assert re.search(r"raising: cannot send, \d+ points? kept, .*: bug: RuntimeError: odd batch", running.errors())
    ends_in_time(running)
