"""`chipwatch why`: a running agent with a fake driver and real processes says what holds a job up."""

import json
import signal
import subprocess
import sys

import pytest
from tests.doubles.nvml.driver import machine_with

from chipwatch.commands.answers import why_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fake driver and /proc are Linux's")


@pytest.fixture
def machine(tmp_path):
    """Return the environment of a machine with two GPUs, a process of a job on each, and these processes."""
    driver, env = machine_with(tmp_path, 2)
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    for gpu, child in zip(driver.gpus, children, strict=True):
        gpu |= {"kernels": "1/1", "processes": f"{child.pid}:1000000000"}
    driver.write()
    yield env, children
    for child in children:
        child.kill()
        child.wait()


def test_a_rank_that_is_stopped_is_named_until_it_goes_on(agent, machine, until, tmp_path):
    env, (first, second) = machine
    state = str(tmp_path / "state")
    env |= {"CHIPWATCH_PROCESSORS__JOBS__DOLLARS_PER_HOUR": "2.5", "CHIPWATCH_SINKS__STDOUT__PATH": str(tmp_path / "p")}
    running = agent.start("--collector", "nvidia,jobs,nccl", "--interval", "0.2", "--spool", state, env=env)

    def asked(*words):
        done = agent.run("why", *words, "--spool", state)
        return done.stdout if done.returncode == 0 else ""

    said = f"process {second.pid} on gpu 1 is stopped"
    assert "not known: it was read for" in until(lambda: asked().startswith("job ") and asked())
    second.send_signal(signal.SIGSTOP)
    text = until(lambda: said in asked() and asked())
    assert "About 48 GPU-hours ($120.00) a day." in text
    assert "by: 1 stopped (/proc/PID/stat)" in text

    def stopped():
        (job,) = json.loads(asked("--json"))["jobs"]
        return job["why"]["sentence"] == said and job["why"]["causes"][0]["cause"] == "stopped" and job["job"]

    job = until(stopped)  # a busy machine may have no reading of the last second
    assert asked(job).startswith(f"job {job} (")
    until(lambda: said in agent.run("jobs", "--spool", state).stdout)
    second.send_signal(signal.SIGCONT)
    until(lambda: said not in asked())
    assert first.poll() is None
    done = agent.run("why", "41337", "--spool", state)
    assert done.returncode == 2
    assert "no job 41337 holds an accelerator here; those that do: " in done.stderr
    running.stop()


CAUSE = {"cause": "nfs", "says": "/data does not answer", "do": "Check it.", "evidence": ["a (b)"], "is_most": False}


def test_the_text_ranks_causes_with_their_cost():
    why = {"causes": [CAUSE | {"lost": 8.0}, CAUSE | {"lost": 0.0}, CAUSE | {"lost": 0.1, "is_most": True}],
           "lost": 0.214, "sentence": "x"}  # fmt: skip
    answer = {"jobs": [{"job": "7", "user": "", "why": why}], "dollars_per_hour": None, "missing": {"holders": "why"}}
    head, first, by, do, second, *rest = why_text(answer, None).splitlines()
    assert head == "job 7 loses 21 % of its GPU time here:"
    assert first == "  1  /data does not answer. About 192 GPU-hours a day."
    assert (by, do) == ("     by: a (b)", "     Check it.")
    assert second == "  2  /data does not answer."
    assert "  3  /data does not answer. At most 2.4 GPU-hours a day." in rest
    assert rest[-1] == "holders unknown: why"
    assert why_text({**answer, "jobs": [], "missing": {}}, None) == "no job holds an accelerator"
