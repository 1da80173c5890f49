"""Plugins that hang, fork, set alarms or answer nonsense lose only their own work, and the stop takes 8 s at most."""

import re
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

IN_TIME = 8.5
"""Seconds that a stop may take where something hangs; a machine that runs tests is busy."""

PROCESSORS = """
import os, signal, sys, threading, time
from chipwatch import Needs
from optionless import *

VALUE = gauge("stub.derived", "1", "A value.")

class Stub(Optionless, Processor):
    metrics = (VALUE,)
    needs = Needs(state=True)

    def derive(self, tick, at, facts):
        yield VALUE.point(at, 1.0)

    def saved(self):
        return None

    def restore(self, saved):
        pass

class Well(Stub):
    pass

class RaisingInRestore(Stub):
    def restore(self, saved):
        raise KeyError("no luck")

class RaisingInSaved(Stub):
    def saved(self):
        raise SystemExit("no luck")

class TextInSaved(Stub):
    def saved(self):
        return "no bytes"

class Forking(Stub):
    def derive(self, tick, at, facts):
        pid = os.fork()
        if pid:
            open("children", "a").write(f"{pid}\\n")
        elif os.environ.get("ENDS"):
            open("ended", "a").write("x")
            os._exit(0)
        yield VALUE.point(at, 1.0)

class Late:
    def __del__(self, alarm=signal.setitimer, timer=signal.ITIMER_REAL, wait=time.sleep):
        alarm(timer, 0.01)
        wait(0.5)

class AlarmingAtExit(Stub):
    def derive(self, tick, at, facts):
        sys.late = Late()  # Python deletes it at its exit, after its handlers of signals
        yield VALUE.point(at, 1.0)

class Alarming(Stub):
    def derive(self, tick, at, facts):
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        yield VALUE.point(at, 1.0)
"""
OTHERS = """
import os, threading
from optionless import *

class Lost(Optionless, Sink):
    limits = Limits(max_points=100, window=0, flush=0)

    def write(self, batch):
        return []

class Number(Lost):
    def destination(self):
        return 42

class Numbers(Lost):
    def destination(self):
        return {"port": 42}

class Raises(Lost):
    def destination(self):
        raise SystemExit("no luck")

class Left(Optionless, Collector):
    metrics = (gauge("stub.left", "1", "A value."),)

    def open(self, given):
        if os.environ.get("MANY"):
            return
        threading.Thread(target=threading.Event().wait, name="left behind", daemon=False).start()

    def collect(self, at):
        for n in range(int(os.environ.get("MANY", 1))):
            yield self.metrics[0].point(at, n + 0.5, Dimensions(n=str(n)))
"""

FILES = """
import os, signal, threading, time
from optionless import *

class Stub(Optionless, Collector):
    metrics = (gauge("stub.files", "1", "A value."),)
    can_wait = False
    readings = 0

    def waits(self):
        return self.can_wait

    def collect(self, at):
        self.readings += 1
        self.act()
        yield self.metrics[0].point(at, self.readings)

class Hanging(Stub):
    can_wait = True

    def act(self):
        if self.readings == 3:
            threading.Event().wait()

class HangingInOpen(Stub):
    can_wait = True

    def open(self, given):
        threading.Event().wait()

class HangingInClose(Stub):
    can_wait = True

    def act(self):
        pass

    def close(self):
        threading.Event().wait()

class Slow(Stub):
    def act(self):
        time.sleep(0.3)

class Raising(Stub):
    def act(self):
        raise BaseException("no luck")

class Ending(Stub):
    def act(self):
        raise SystemExit(3)

class Threads(Stub):
    def act(self):
        threading.Thread(target=time.sleep, args=(0.05,), daemon=True).start()

class Signals(Stub):
    can_wait = True

    def act(self):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

class Masks(Stub):
    def act(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

class Forking(Stub):
    def act(self):
        os.fork()

class Well(Stub):
    def act(self):
        pass
"""
OWN = """
from optionless import *

class Own(Optionless):
    def __init__(self, config):
        self._mine = {name: {"a": 1} for name in "NAMES".split()}
        vars(self).update(self._mine)

    def points(self, at):
        are_mine = all(getattr(self, name) is value for name, value in self._mine.items())
        yield self.metrics[0].point(at, 73.5 if are_mine else 0.0)

class OwnCollector(Own, Collector):
    metrics = (gauge("own.collected", "1", "A value."),)

    def collect(self, at):
        return self.points(at)

class OwnProcessor(Own, Processor):
    metrics = (gauge("own.derived", "1", "A value."),)

    def derive(self, tick, at, facts):
        return self.points(at)
"""


@pytest.fixture
def start(agent, plugins_folder, tmp_path):
    """Start an agent with a plugin of each kind that is named, beside one that is well; its spool is `tmp_path`."""

    def begin(*words, processors=(), sink=None, collector=None, **env):
        others = {"sinks": [("odd", f"{sink}")]} if sink else {}
        others |= {"collectors": [("odd", f"{collector}")]} if collector else {}
        plugins_folder.add("others", OTHERS, **others)
        named = [("odd" if len(processors) == 1 else f"odd{kind}", kind) for kind in processors]
        plugins_folder.add("processors", PROCESSORS, processors=[*named, ("well", "Well")])
        more = ("--sink", "odd") if sink else ()
        return agent.start(
            "--interval", "0.2", "--collector", ",".join(filter(None, ("memory", collector and "odd"))), "--sink", "stdout",
            *more, "--spool", tmp_path / "state", *words,
            env={"PYTHONPATH": plugins_folder.folder, **env}, cwd=tmp_path,
        )  # fmt: skip

    return begin


def ticks(running):
    """Return the number of ticks of which the collector and the processor that is well gave points."""
    points = running.points()
    times = ({p["time"] for p in points if p["name"] == name} for name in ("memory.used", "stub.derived"))
    return len(set.intersection(*times))


def test_processors_that_raise_lose_their_own_work_and_are_named(start, until, tmp_path):
    said = {
        "RaisingInRestore": "cannot take its state from",
        "RaisingInSaved": "cannot save its state: no luck",
        "TextInSaved": "cannot save its state: expected bytes, got str",
    }
    (tmp_path / "state").mkdir()
    for kind in said:
        (tmp_path / f"state/odd{kind}.json").write_text("{}")
    running = start("--sink", "otlp", "--endpoint-url", "http://127.0.0.1:9", processors=said)
    until(lambda: ticks(running) >= 3)
    code, took = running.stop()
    assert code == 0
    assert took < IN_TIME
    errors = running.errors()
    assert {kind: errors.count(f"processor odd{kind}: {why}") for kind, why in said.items()} == dict.fromkeys(said, 1)
    assert "KeyError" in errors


MAY_HANG = ("Hanging", "HangingInOpen", "HangingInClose", "Signals")
DO_NOT = ("Slow", "Raising", "Ending", "Threads", "Masks", "Forking")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kinds", [MAY_HANG, DO_NOT], ids=["may hang", "do not"])
def test_collectors_in_trouble_cost_the_others_no_tick_if_what_may_hang_has_its_thread(
    agent, plugins_folder, until, kinds
):
    names = [f"aaa{kind}" for kind in kinds]  # they are read before the others
    plugins_folder.add("files", FILES, collectors=zip(names, kinds, strict=True))
    running = agent.start(
        "--interval", "0.5", "--collector", ",".join([*names, "memory", "network"]), "--sink", "stdout",
        env={"PYTHONPATH": plugins_folder.folder},
    )  # fmt: skip

    def times(name):
        return [datetime.fromisoformat(point["time"]) for point in running.points() if point["name"] == name]

    def in_both():
        return {*times("memory.used")} & {*times("network.sent")}

    until(lambda: len(in_both()) >= 5)
    running.process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    running.process.send_signal(signal.SIGCONT)
    before = len(in_both())
    until(lambda: len(in_both()) >= before + 3)
    code, took = running.stop()
    assert code == 0
    assert took < IN_TIME
    memory, network = times("memory.used"), times("network.sent")
    assert (memory, network) == (sorted(memory), sorted(network))  # a late tick and the next may come in a millisecond
    # The stop may come between the two, and a busy machine may be too late for a tick of one.
    assert len(in_both()) > 2 * len({*memory} ^ {*network})
    said = re.findall(r"collector aaa(\w+): the last reading has not returned; skipped until it does", running.errors())
    assert sorted(said) == sorted({"Hanging", "HangingInOpen"} & {*kinds})


NAMES = (
    "level state zeros events facts note append always dynamic never_waits needs knows devices processes activity identity "
    "evidence"
)


def test_a_plugin_may_have_attributes_of_any_such_name_and_sends_its_own_values(agent, plugins_folder, until):
    plugins = {"collectors": [("own", "OwnCollector")], "processors": [("own", "OwnProcessor")]}
    plugins_folder.add("own_names", OWN.replace("NAMES", NAMES), **plugins)
    running = agent.start(
        "--interval", "0.2", "--collector", "own", "--sink", "stdout,prometheus",
        env={"PYTHONPATH": plugins_folder.folder, "STATE_DIRECTORY": plugins_folder.folder / "state",
             "CHIPWATCH_SINKS__PROMETHEUS__LISTEN": "127.0.0.1:0"},
    )  # fmt: skip

    def sent():
        points = [point for point in running.points() if point["name"].startswith("own.")]
        return {point["name"]: point["value"] for point in points} if len(points) >= 6 else None

    assert until(sent) == {"own.collected": 73.5, "own.derived": 73.5}
    assert running.stop()[0] == 0


def test_a_sink_that_cannot_tell_its_destination_is_left_out_and_the_others_go_on(start, until):
    running = start(sink="Raises")
    until(lambda: ticks(running) >= 3)
    assert running.stop()[0] == 0
    assert "sinks.odd: it is left out, since destination fails: SystemExit: no luck" in running.errors()


@pytest.mark.parametrize(("sink", "given"), [("Number", "42"), ("Numbers", "{'port': 42}")])
def test_a_run_whose_only_sink_cannot_tell_its_destination_does_not_start(here, others, sink, given):
    others.add("others", OTHERS, sinks=[("odd", sink)])
    done = here("--duration", "1", "--sink", "odd")
    assert done.returncode == 2
    why = f"TypeError: destination: expected a mapping of str to str, got {given}"
    assert f"sinks.odd: it is left out, since destination fails: {why}" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_copy_of_the_agent_that_a_plugin_forks_ends_and_is_logged_once(start, until, tmp_path):
    running = start(processors=["Forking"])
    until(lambda: ticks(running) >= 4)
    until(running.errors)

    def left():
        children = [int(line) for line in (tmp_path / "children").read_text().split()]
        return [pid for pid in children[:-2] if Path(f"/proc/{pid}").exists()]

    until(lambda: len((tmp_path / "children").read_text().split()) >= 4 and not left())
    assert running.stop()[0] == 0
    assert running.errors().count("processor odd: forked a copy of the agent, which was ended") == 1
    times = [point["time"] for point in running.points() if point["name"] == "memory.used"]
    assert len(times) == len({*times})


def test_a_child_that_ends_in_the_plugin_is_not_touched(start, until, tmp_path):
    running = start(processors=["Forking"], ENDS="1")
    until(lambda: ticks(running) >= 3)
    until((tmp_path / "ended").exists)
    assert running.stop()[0] == 0
    assert "forked" not in running.errors()


@pytest.mark.parametrize("processor", ["Alarming", "AlarmingAtExit"])
def test_an_alarm_that_a_plugin_sets_does_not_end_the_agent(start, until, processor):
    running = start(processors=[processor])
    until(lambda: ticks(running) >= 3)
    time.sleep(0.1)  # the last alarm rings
    assert running.process.poll() is None
    assert running.stop()[0] == 0


def test_a_thread_that_a_plugin_leaves_behind_does_not_hold_the_stop_up_and_is_named(start, until):
    running = start(collector="Left")
    until(lambda: ticks(running) >= 2)
    code, took = running.stop()
    assert code == 1
    assert took < IN_TIME
    assert "the stop takes over 7.5 s and is cut short; still running: " in running.errors()
    assert "left behind" in running.errors()


def test_a_thread_that_a_plugin_leaves_behind_does_not_hide_the_code_of_the_command(agent, plugins_folder):
    plugins_folder.add("others", OTHERS, collectors=[("odd", "Left")])
    done = agent.run(
        "--collector", "odd", "--interval", "0.2", "--sink", "otlp", "--endpoint-url", "http://127.0.0.1:9",
        "--", sys.executable, "-c", "import time; time.sleep(1); raise SystemExit(7)",
        env={"PYTHONPATH": plugins_folder.folder},
    )  # fmt: skip
    assert done.returncode == 7


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("sink", ["stdout", "prometheus"])
def test_a_million_points_of_a_plugin_cost_60_mb_at_most(agent, plugins_folder, until, sink):
    plugins_folder.add("others", OTHERS, collectors=[("odd", "Left")])
    env = {"PYTHONPATH": plugins_folder.folder, "MANY": 1_000_000, "CHIPWATCH_SINKS__PROMETHEUS__LISTEN": "127.0.0.1:0"}
    few, many = (
        agent.start(
            "--interval", "0.5", "--collector", collector, "--sink", sink,
            env=env | {"STATE_DIRECTORY": plugins_folder.folder / collector},
        )
        for collector in ("memory", "memory,odd")
    )  # fmt: skip
    until(lambda: "more than 20000 points" in many.errors())
    peaks = {}
    for running in (few, many):
        (peak,) = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{running.pid}/status").read_text())
        peaks[running] = int(peak) / 1024
        running.stop()
    assert peaks[few] < peaks[many] < peaks[few] + 60


def test_a_program_that_the_agent_starts_has_the_systems_alarm(agent):
    program = "import signal; raise SystemExit(signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL)"
    words = ("--collector", "memory", "--sink", "otlp", "--endpoint-url", "http://127.0.0.1:9")
    assert agent.run(*words, "--", sys.executable, "-c", program).returncode == 0
