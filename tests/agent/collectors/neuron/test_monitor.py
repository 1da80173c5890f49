import errno
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.doubles.program import Clock, gone
from tests.told import identity, reading

from chipwatch.collectors import neuron
from chipwatch.collectors.neuron import NeuronCollector, monitor
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given

FAKE = Path(__file__).parents[3] / "doubles/fake_neuron_monitor.py"
AT = 1_800_000_000_000_000_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="neuron-monitor is there for Linux only")


class Bench:
    """A collector with a monitor that follows a script, both in an accelerated world."""

    def __init__(self, folder):
        self.folder, self.log, self.clock = folder, folder / "log", Clock()
        self.path = folder / "neuron-monitor"
        self.collector = None
        self.ticks = 0

    def script(self, *steps, **env):
        """Write the program, which lives a hundred times as fast."""
        env = {"FAKE_NEURON_STEPS": ",".join(steps), "FAKE_NEURON_SPEED": 100, "FAKE_NEURON_LOG": self.log} | env
        words = " ".join(f"{key}={shlex.quote(str(value))}" for key, value in env.items())
        self.path.write_text(f'#!/bin/sh\n{words} exec {sys.executable} -S -E {FAKE} "$@"\n')
        self.path.chmod(0o755)

    def open(self, *steps, level=Level.ALL, env=None, **config):
        self.script(*steps, **(env or {}))
        config = {"path": self.path, "interval": 1.0, "proc": self.folder, "sys": self.folder} | config
        self.collector = NeuronCollector(NeuronCollector.Config(**config), clock=self.clock)
        self.collector.open(Given(level=level))
        return self

    def tick(self):
        """Return what one tick yields, and what was wrong."""
        self.ticks += 1
        return reading(self.collector, AT + self.ticks * 10**9)

    def names(self):
        return {p.metric.name for p in self.tick()[0]}

    def starts(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []


def test_without_the_program_the_collector_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(neuron, "INSTALLED", tmp_path / "absent")
    with pytest.raises(
        Unavailable, match=r"no neuron-monitor: neither in PATH nor .*/absent; install the package aws-neuronx-tools"
    ):
        NeuronCollector(NeuronCollector.Config()).open(Given())


def test_a_program_that_cannot_be_run_is_unavailable_and_leaves_no_file(bench, monkeypatch):
    monkeypatch.setattr(monitor.tempfile, "tempdir", str(bench.folder))
    bench.path.write_text("no program")
    collector = NeuronCollector(NeuronCollector.Config(path=bench.path))
    with pytest.raises(Unavailable, match="neuron-monitor cannot be started: Permission denied"):
        collector.open(Given())
    assert list(bench.folder.glob("chipwatch-*")) == []


@pytest.mark.parametrize(("interval", "period"), [(0.1, "1s"), (2.9, "2s"), (60.0, "60s")])
def test_the_configuration_names_every_group_and_the_interval_in_whole_seconds_and_limits_memory(
    bench, until, monkeypatch, interval, period
):
    monkeypatch.delenv("GOMEMLIMIT", raising=False)
    bench.open(interval=interval)
    (start,) = until(bench.starts)
    assert start["config"] == {
        "period": period,
        "neuron_runtimes": [
            {
                "tag_filter": ".*",
                "metrics": [
                    {"type": "neuroncore_counters"},
                    {"type": "memory_used"},
                    {"type": "neuron_runtime_vcpu_usage"},
                    {"type": "execution_stats"},
                ],
            }
        ],
        "system_metrics": [{"type": "vcpu_usage"}, {"type": "memory_info"}, {"type": "neuron_hw_counters"}],
    }
    assert start["memory"] == "320MiB"


def test_gomemlimit_of_the_environment_wins(bench, until, monkeypatch):
    monkeypatch.setenv("GOMEMLIMIT", "1GiB")
    bench.open()
    assert until(bench.starts)[0]["memory"] == "1GiB"


def test_records_become_datapoints_tick_after_tick(bench, until):
    bench.open()
    assert until(lambda: "neuron.core.utilization" in bench.names())
    counts = []
    while len(set(counts)) < 4:
        counts += [p.value for p in bench.tick()[0] if p.dims.get("outcome") == "completed"]
    assert counts == sorted(counts)
    assert all(count % 10 == 0 for count in counts)
    assert identity(bench.collector)["instance_id"] == "i-0aaaabbbbccccdddd"
    assert bench.collector.describe() == f"{bench.path} every 1 s, 1 devices"


def test_level_basic_does_not_read_sysfs(bench):
    bench.open(level=Level.BASIC)
    assert bench.collector._devices is None


def test_counters_continue_over_restarts(bench, until):
    bench.open("record", "record", "exit0")
    counts, problems = [], set()
    while len(bench.starts()) < 3:
        points, found = bench.tick()
        problems.update(found)
        counts += [(p.value, p.start_time) for p in points if p.dims.get("outcome") == "completed"]
        if bench.collector._source._process is None:
            bench.clock.now += 1
    assert problems == {"neuron-monitor ended with 0; it is started again later"}
    assert len({start_time for _, start_time in counts}) == 1
    values = [value for value, _ in counts]
    assert values == sorted(values)
    assert values[-1] >= 40


def test_a_monitor_that_hangs_is_restarted(bench, until):
    bench.open("words", "record", "silent")
    assert until(bench.names)
    (first,) = bench.starts()
    bench.clock.now += 2.9
    assert bench.tick()[1] == []
    assert not gone(first["pid"])
    bench.clock.now += 0.1
    problem = "neuron-monitor prints nothing; it is started again later (it said: cannot open /dev/neuronN: permission denied)"
    assert bench.tick()[1] == [problem]
    assert gone(first["pid"])
    bench.clock.now += 2
    assert until(lambda: bench.tick() and len(bench.starts()) == 2)


def test_a_full_disk_is_reported_and_the_start_is_tried_again(bench, until, monkeypatch):
    bench.open("exit0")
    until(lambda: bench.collector._source._process is None or bench.tick()[1])

    def mkstemp(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(monitor.tempfile, "mkstemp", mkstemp)
    bench.clock.now += 3
    assert bench.tick()[1] == ["neuron-monitor cannot be started: No space left on device; it is started again later"]


def test_close_ends_the_monitor_and_deletes_its_configuration(bench, until, monkeypatch):
    monkeypatch.setattr(monitor.tempfile, "tempdir", str(bench.folder))
    bench.open()
    (start,) = until(bench.starts)
    assert list(bench.folder.glob("chipwatch-*"))
    bench.collector.close()
    bench.collector.close()
    assert gone(start["pid"])
    assert list(bench.folder.glob("chipwatch-*")) == []


def test_a_closed_collector_can_be_opened_again(bench, until):
    bench.open()
    until(bench.names)
    bench.collector.close()
    assert bench.tick() == ([], [])
    bench.collector.open(Given())
    assert until(lambda: "neuron.core.utilization" in bench.names())


def test_a_collector_that_was_never_opened_yields_nothing():
    collector = NeuronCollector(NeuronCollector.Config())
    collector.close()
    assert list(collector.collect(7)) == []
    assert identity(collector) == {}
    assert collector.describe() == ", no record yet"


def test_the_monitor_does_not_outlive_an_agent_that_was_killed(bench, until):
    bench.script()
    code = (
        "from chipwatch.collectors.neuron import NeuronCollector; from pathlib import Path; import time;"
        "from chipwatch.contract.plugin import Given;"
        f"c = NeuronCollector(NeuronCollector.Config(path=Path({str(bench.path)!r}), interval=1.0)); c.open(Given());"
        "time.sleep(60)"
    )
    agent = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(bench.folder)})
    (start,) = until(bench.starts)
    assert not gone(start["pid"])
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    assert until(lambda: gone(start["pid"]))
