"""Requested hardware that is missing, by the real command."""

import pytest
from tests.conftest import ROOT, no_nvidia

NEURON = ROOT / "tests/fixtures/neuron/synthetic_trn2_v3d.jsonl"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--once", "--collector", "nvidia"], "no NVIDIA driver"),
        (["--duration", "60", "--collector", "nvidia"], "no NVIDIA driver"),
        (["--once", "--collector", "cpu", "--collector", "neuron"], "no neuron-monitor"),
    ],
)
def test_a_collector_that_was_asked_for_and_is_not_there_is_one_line_and_exit_code_1(here, tmp_path, words, cause):
    done = here(*words, env={**no_nvidia(tmp_path), "PATH": tmp_path})
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert cause in line


def test_a_required_collector_that_is_not_there_ends_a_run_that_goes_on(here, tmp_path):
    env = {**no_nvidia(tmp_path), "CHIPWATCH_COLLECTORS__NVIDIA__REQUIRED": "true"}
    done = here("--interval", "1", env=env)
    assert done.returncode == 1
    assert "no NVIDIA driver" in done.stderr


@pytest.mark.parametrize(
    ("words", "option"),
    [(["--pid", "99999999"], "--pid"), (["--proc", "{}"], "--proc"), (["--sys", "{}"], "--sys"),
     (["--sys", "{}/no"], "--sys"), (["--root", "{}/no"], "--root")],
)  # fmt: skip
@pytest.mark.parametrize("command", [["--duration", "0"], ["--once"], ["check"]])
def test_a_process_or_a_place_that_is_not_there_is_wrong_usage(here, tmp_path, command, words, option):
    done = here(*command, *(word.format(tmp_path) for word in words))
    assert done.returncode == 2
    assert f"chipwatch: {option} " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_standard_input_without_a_record_is_an_error(agent):
    done = agent.run("--stdin", "neuron", "--once", stdin=None, input="")
    assert done.returncode == 1
    assert "before its first record" in done.stderr


def test_a_run_that_delivered_nothing_says_why_and_ends_with_1(agent):
    done = agent.run("--once", env={"CHIPWATCH_SINKS__STDOUT__INCLUDE": "gpu.utilization"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "stdout: nothing was delivered" in done.stderr


BROKEN = """
from optionless import *

VALUE = gauge("broken.value", "1", "Never read.")

class Broken(Optionless, Collector):
    metrics = (VALUE,)

    def collect(self, at):
        raise OSError("the bus is gone")
"""


def test_a_run_whose_collector_failed_in_every_reading_names_it_and_its_trouble(agent, plugins_folder):
    plugins_folder.add("theirs", BROKEN, collectors=[("broken", "Broken")])
    done = agent.run("--once", "--collector", "broken", env={"PYTHONPATH": plugins_folder.folder})
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.endswith("stdout: nothing was delivered: collectors failed: broken: OSError: the bus is gone")
