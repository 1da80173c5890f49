"""A few seconds of each part of the campaign, with seeds that stay; `make faults` has the rest."""

import subprocess
import sys
from random import Random

import pytest
from tests.faults import configurations, corruptions, inputs, kills, soak
from tests.faults.figures import Figures, table
from tests.faults.mutants import Mutator

QUICK = 60.0


@pytest.mark.parametrize("trial", [kills.cloudwatch, kills.google])
def test_agents_killed_during_any_answers_lose_no_finished_window(trial, tmp_path):
    counts, failures = trial(Random(2), tmp_path, kills=3, most=0.7)
    assert not failures, failures
    assert counts["points"] > 0


def test_a_spool_that_rots_delivers_no_altered_value():
    figures = Figures("corruptions", 1, 60, QUICK)
    corruptions.run(figures)
    assert figures.failures == []
    assert figures.counts["delivered"] > 1000


def test_changed_captures_raise_nothing_that_is_not_documented():
    figures = Figures("inputs", 1, 6_000, QUICK)
    inputs.run(figures)
    assert figures.failures == []


def test_any_configuration_is_valid_or_gives_one_line():
    figures = Figures("configurations", 1, 60, QUICK)
    configurations.run(figures)
    assert figures.failures == []
    assert figures.counts.keys() == {"config", "line"}


def test_a_soak_with_a_server_that_comes_and_goes_leaves_nothing_behind():
    figures = Figures("soak", 1, 1_000, QUICK)
    soak.run(figures)
    assert figures.failures == []


def test_a_trial_can_be_repeated_alone():
    def drawn(figures):
        return [dice.random() for dice in figures.trials()]

    assert drawn(Figures("a part", 5, 10, QUICK))[7:] == drawn(Figures("a part", 5, 3, QUICK, first=7))
    assert Mutator([b"a 1"]).mutant(Random(3)) == Mutator([b"a 1"]).mutant(Random(3))


def test_a_part_ends_when_its_time_is_over_and_tells_how_far_it_came():
    figures = Figures("a part", 5, 1_000, 0.0)
    for _ in figures.trials():
        figures.fail("it is wrong")
    assert figures.failures == ["SEED=5 AT=0 PARTS=a part: it is wrong"]
    assert "| a part | 1 of 1,000 |  | 1 | 5 | 0 |" in table([figures])


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["kills"], 2)])
def test_a_word_after_the_command_runs_no_campaign(words, code):
    command = [sys.executable, "-m", "tests.faults", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert "usage: python -m tests.faults [-h]" in done.stdout + done.stderr
    assert "SEED=" not in done.stderr
