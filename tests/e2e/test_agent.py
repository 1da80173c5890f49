"""A real agent prints true values of this machine."""

import json
import os
import subprocess
import sys
import time
from datetime import datetime

import psutil
import pytest
from tests.load import seconds_since

LONG = 60.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="psutil itself is the source elsewhere")


def read(done):
    """Return the points by name and dimensions."""
    assert (done.returncode, done.stderr) == (0, "")
    return {(p["name"], *p["dims"].values()): p for p in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def once(agent_command):
    """One reading of everything, with what psutil said before and after."""

    def look():
        return {
            "memory": psutil.virtual_memory(),
            "swap": psutil.swap_memory(),
            "disk": psutil.disk_usage("/"),
            "network": psutil.net_io_counters(pernic=True, nowrap=False),
            "boot": psutil.boot_time(),
        }

    before = look()
    done = subprocess.run(
        [*agent_command, "--once", "--interval", "0.3", "--level", "all", "--format", "json"],
        capture_output=True, text=True, timeout=LONG, check=False, stdin=subprocess.DEVNULL,
        env={k: v for k, v in os.environ.items() if not k.startswith("CHIPWATCH_")},
    )  # fmt: skip
    return before, read(done), look()


def between(value, one, other, slack=0.0):
    low, high = sorted((one, other))
    assert low - slack <= value <= high + slack


def test_memory_is_what_psutil_says(once):
    before, points, after = once
    total = before["memory"].total
    assert points["memory.total",]["value"] == total
    used, available = points["memory.used",]["value"], points["memory.available",]["value"]
    assert used + available == total
    between(available, before["memory"].available, after["memory"].available, slack=0.05 * total)
    assert points["memory.utilization",]["value"] == pytest.approx(100 * used / total)


def test_swap_is_what_psutil_says_and_absent_where_there_is_none(once):
    before, points, after = once
    if not before["swap"].total:
        assert ("swap.used",) not in points
        return
    between(points["swap.used",]["value"], before["swap"].used, after["swap"].used, slack=0.02 * before["swap"].total)


def test_a_file_system_is_what_psutil_says(once):
    before, points, after = once
    slack = 0.02 * before["disk"].total
    between(points["disk.used", "/"]["value"], before["disk"].used, after["disk"].used, slack)
    between(points["disk.available", "/"]["value"], before["disk"].free, after["disk"].free, slack)
    between(points["disk.utilization", "/"]["value"], before["disk"].percent, after["disk"].percent, 2)


def test_counters_of_an_interface_count_since_the_boot_and_their_sum_since_the_first_reading(once):
    before, points, _ = once
    starts = {
        name: datetime.fromisoformat(point["start_time"]).timestamp()
        for (name, *_), point in points.items()
        if name in {"network.interface.sent", "network.sent"}
    }
    if not starts:
        pytest.skip("no interface but the loopback")
    assert starts["network.interface.sent"] == pytest.approx(before["boot"], abs=2)
    assert starts["network.sent"] > psutil.Process().create_time()


def test_every_share_is_between_0_and_100_and_every_counter_has_a_start(once):
    _, points, _ = once
    for key, point in points.items():
        if point["unit"] == "%" and key[0] != "process.memory.utilization":
            assert 0 <= point["value"] <= 100, key
        if point["kind"] == "counter":
            assert point["increase"] >= 0, key
            assert point["start_time"] <= point["time"], key


def test_the_points_of_one_reading_have_the_same_order_each_time(agent):
    words = ("--once", "--interval", "100ms", "--collector", "cpu,memory,disk,network", "--format", "json")
    first, second = (
        [(p["kind"] == "counter", p["name"], [*p["dims"].items()]) for p in map(json.loads, done.stdout.splitlines())]
        for done in (agent.run(*words), agent.run(*words))
    )
    assert first == second == sorted(first)
    assert len(first) > 5


@pytest.fixture
def load():
    """Keep one CPU busy."""
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield spinning
    spinning.kill()
    spinning.wait(LONG)


def used(process: psutil.Process) -> float:
    """Return the CPU seconds of a process."""
    return sum(process.cpu_times()[:2])


def test_a_busy_process_shows_as_such(agent, load):
    busy, cpus = psutil.Process(load.pid), len(os.sched_getaffinity(load.pid))
    begun, before = time.monotonic(), used(busy)
    words = f"--duration 1.5 --interval 0.5 --collector cpu --collector process --pid {load.pid}".split()
    done = agent.run(*words, "--format", "json")
    truth = 100 * (used(busy) - before) / (time.monotonic() - begun) / cpus

    points = [json.loads(line) for line in done.stdout.splitlines()]
    own, machine, threads, rss = (
        [p["value"] for p in points if p["name"] == name]
        for name in ("process.cpu.utilization", "cpu.utilization", "process.threads", "process.memory.rss")
    )
    assert min(own) >= 0
    assert max(own) <= 100
    assert truth / 3 <= sum(own) / len(own) <= truth * 3  # a machine that runs tests has more to do, now and then
    assert max(machine) >= 50 / os.cpu_count()
    assert set(threads) == {1}
    assert rss[-1] == pytest.approx(busy.memory_info().rss, rel=0.3)


def test_the_first_datapoint_comes_soon(agent, until):
    begun = time.monotonic()
    running = agent.start("--format", "json")
    until(running.points)
    assert seconds_since(begun) < 3
    running.stop()


def test_the_agent_tells_of_itself_on_request_and_stays_small(agent):
    words = ["--duration", "1", "--interval", "0.2", "--level", "detailed", "--format", "json"]
    done = agent.run(*words, stdin=subprocess.DEVNULL)  # forked, it would have this process's memory
    points = [json.loads(line) for line in done.stdout.splitlines()]
    rss = [p["value"] for p in points if p["name"] == "agent.memory.rss"]
    assert 5e6 < max(rss) < 40e6
    ok = {p["dims"]["collector"]: p["value"] for p in points if p["name"] == "agent.collector.ok"}
    assert ok["cpu"] == ok["memory"] == ok["disk"] == ok["agent"] == 1
    sent = [p["value"] for p in points if p["name"] == "agent.sink.sent"]
    assert sent == sorted(sent)
    assert sent[-1] > 0
    assert not [p for p in map(json.loads, agent.run("--once", "--interval", "0.1").stdout.splitlines())
                if p["name"].startswith("agent.")]  # fmt: skip
