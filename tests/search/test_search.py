"""The seeds that have found a bug find none now, and a few seconds of each other part; `make search` has the rest."""

import sys
from pathlib import Path
from random import Random

import pytest
from tests.search import configurations, corruptions, deliveries, inputs
from tests.search.figures import Figures
from tests.search.mutants import Mutator
from tests.search.plan import left_out, plan_of
from tests.search.run import run

QUICK = 60.0
KEPT = [line.partition("#")[0].strip() for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()]
OTHERS = {"corruptions": corruptions.run, "deliveries": deliveries.run}
TRIALS = [line for line in KEPT if line.partition(" ")[0] in OTHERS]


@pytest.mark.skipif(sys.platform != "linux", reason="the files that a process writes are known by /proc")
@pytest.mark.parametrize("seed", [line for line in KEPT if line not in TRIALS])
def test_lives_that_broke_a_property_once_break_none(seed):
    assert run(plan_of(seed)).failures == {}


@pytest.mark.parametrize("line", TRIALS)
def test_a_trial_that_broke_a_property_once_breaks_none(line):
    part, seed, trial = line.split()
    figures = Figures(part, int(seed), 1, QUICK, first=int(trial))
    OTHERS[part](figures)
    assert figures.failures == []


def test_a_plan_without_a_part_is_the_same_in_all_others_and_is_written_as_a_line():
    plan = plan_of("7")
    first, *_, last = plan.parts()
    less = left_out(left_out(plan, last), first)
    assert plan_of(str(less)) == less
    assert less.lives[0].seconds == 0
    assert less.options == plan.options
    assert less.lives[-1].events[:-1] == plan.lives[-1].events[:-1]


def test_a_spool_that_rots_delivers_no_altered_value():
    figures = Figures("corruptions", 1, 60, QUICK)
    corruptions.run(figures)
    assert figures.failures == []
    assert figures.counts["delivered"] > 1000


def test_a_delivery_that_goes_wrong_in_any_way_loses_and_doubles_nothing():
    figures = Figures("deliveries", 1, 40, QUICK)
    deliveries.run(figures)
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


def test_a_trial_can_be_repeated_alone():
    def drawn(figures):
        return [dice.random() for dice in figures.trials()]

    assert drawn(Figures("a part", 5, 10, QUICK))[7:] == drawn(Figures("a part", 5, 3, QUICK, first=7))
    assert Mutator([b"a 1"]).mutant(Random(3)) == Mutator([b"a 1"]).mutant(Random(3))
