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
PARTS = {part.__name__.rpartition(".")[2]: part.run for part in (configurations, corruptions, deliveries, inputs)}
TRIALS = [line for line in KEPT if line.partition(" ")[0] in PARTS]


def searched(part, trials, seed=1, first=0):
    """Run trials of a part of the search, in which nothing may fail; return the figures."""
    figures = Figures(part, int(seed), trials, QUICK, first=int(first))
    PARTS[part](figures)
    assert figures.failures == []
    return figures.counts


@pytest.mark.skipif(sys.platform != "linux", reason="the files that a process writes are known by /proc")
@pytest.mark.parametrize("seed", [line for line in KEPT if line not in TRIALS])
def test_lives_that_broke_a_property_once_break_none(seed):
    assert run(plan_of(seed)).failures == {}


@pytest.mark.parametrize("line", TRIALS)
def test_a_trial_that_broke_a_property_once_breaks_none(line):
    part, seed, trial = line.split()
    searched(part, 1, seed, trial)


def test_a_plan_without_a_part_is_the_same_in_all_others_and_is_written_as_a_line():
    plan = plan_of("7")
    first, *_, last = plan.parts()
    less = left_out(left_out(plan, last), first)
    assert plan_of(str(less)) == less
    assert less.lives[0].seconds == 0
    assert less.options == plan.options
    assert less.lives[-1].events[:-1] == plan.lives[-1].events[:-1]


def test_a_spool_that_rots_delivers_no_altered_value():
    assert searched("corruptions", 60)["delivered"] > 1000


def test_a_delivery_that_goes_wrong_in_any_way_loses_and_doubles_nothing():
    assert searched("deliveries", 40)["delivered"] > 1000


def test_changed_captures_raise_nothing_that_is_not_documented():
    searched("inputs", 6_000)


def test_any_configuration_is_valid_or_gives_one_line():
    assert searched("configurations", 60).keys() == {"config", "line"}


def test_a_trial_can_be_repeated_alone():
    def drawn(figures):
        return [dice.random() for dice in figures.trials()]

    assert drawn(Figures("a part", 5, 10, QUICK))[7:] == drawn(Figures("a part", 5, 3, QUICK, first=7))
    assert Mutator([b"a 1"]).mutant(Random(3)) == Mutator([b"a 1"]).mutant(Random(3))
