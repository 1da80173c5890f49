"""Tests of what a job feels: the figures of known steps, and a short real round."""

import os
import sys

import pytest
from tests.bench.figure import CannotMeasure
from tests.peers.programs import Program
from tests.perturb.__main__ import ALONE, OURS, Felt, felt, loop, picture, rounds, table


def test_quantiles_and_rate_of_known_steps():
    steps = [100_000.0] * 9_989 + [200_000.0] * 10 + [2_000_000.0]
    assert felt(steps) == Felt((100.0, 100.0, 200.0, 200.0, 2000.0), pytest.approx(10_000 / 1.0029))
    assert felt([1000.0]).times == (1.0,) * 5


def test_a_table_gives_medians_beside_the_loop_alone():
    alone, ours = (
        Felt((100.0, 100.0, 110.0, 120.0, 130.0), 10_000.0),
        Felt((100.0, 101.0, 111.0, 1240.0, 2000.0), 9_900.0),
    )
    results = {ALONE: [alone] * 3, OURS[0].title: [ours, ours, ours._replace(rate=1.0)]}
    *_, row, _, left_out = table(results, {"telegraf": "it is not installed"}).splitlines()
    assert row == "| **chipwatch: JSON lines, each second** | 100 | 101 | 111 | 1,240 | 2,000 | 99.00 % |"
    assert left_out == "Left out: telegraf: it is not installed."
    assert ">1240<" in picture(results)


@pytest.mark.skipif(sys.platform != "linux", reason="a loop is pinned to a core on Linux only")
def test_a_real_loop_runs_beside_a_real_program_and_one_that_cannot_run_is_named(tmp_path):
    core = max(os.sched_getaffinity(0))
    try:
        job = loop(core, 0.1, tmp_path)
    except CannotMeasure as reason:
        pytest.skip(str(reason))
    broken = Program("broken", "a broken one", lambda place: [sys.executable, "-c", "raise SystemExit('it is broken')"])
    endless = Program("endless", "an endless one", lambda place: [sys.executable, "-c", "import time; time.sleep(600)"])
    results, absent = rounds((None, endless, broken), 1, {core}, 1.0, job)
    assert {name: len(found) for name, found in results.items()} == {ALONE: 1, endless.title: 1}
    assert absent == {broken.title: "it ended with 1: it is broken"}
    for (one,) in results.values():
        assert 0 < one.times[0] <= one.times[-1]
        assert one.rate > 0
