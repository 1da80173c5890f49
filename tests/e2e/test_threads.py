"""The agent has few threads, and wakes up seldom."""

import re
import sys
from pathlib import Path

import pytest
from tests.conftest import no_nvidia

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

TICKS = 10
MOST_THREADS = 5
MOST_SWITCHES = 12
"""Voluntary context switches of all threads in a tick."""
ACCELERATORS = "nvidia,amd,gaudi,intel,ipu,neuron,tpu,hardware,rdma"


def switches(pid):
    """Return the voluntary context switches of each thread of a process by its id."""
    return {
        task.name: int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.MULTILINE)[1])
        for task in Path(f"/proc/{pid}/task").iterdir()
    }


def test_an_agent_without_accelerators_has_five_threads_and_wakes_twelve_times_a_tick(agent, until, tmp_path):
    """Each try counts over some ticks: on a machine that does much else a collector may be late for a while."""
    running = agent.start(
        "--interval", "0.25", "--no-collector", ACCELERATORS, "--sink", "stdout", "--spool", tmp_path, cwd=tmp_path,
        env=no_nvidia(tmp_path),
    )  # fmt: skip

    def ticks():
        return len({point["time"] for point in running.points()})

    def is_light():
        begun, before = ticks(), switches(running.pid)
        until(lambda: ticks() >= begun + TICKS)
        spent, after = ticks() - begun, switches(running.pid)
        counted.append((len(after), sum(after.values()) - sum(before.values()), spent))
        return len(after) <= MOST_THREADS and counted[-1][1] <= MOST_SWITCHES * spent

    counted = []
    until(lambda: ticks() >= 3)
    until(lambda: is_light() or len(counted) == 10)
    assert counted[-1][0] <= MOST_THREADS, [
        path.read_text() for path in Path(f"/proc/{running.pid}/task").glob("*/comm")
    ]
    assert counted[-1][1] <= MOST_SWITCHES * counted[-1][2], counted
    assert running.stop()[0] == 0
