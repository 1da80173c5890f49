"""A gross loss of speed fails here, as in test_bench."""

from __future__ import annotations

import pytest
from tests.bench.figure import CannotMeasure, Effort
from tests.bench.jobs import eight_gpus_with_jobs
from tests.bench.nvidia import eight_gpus, gpu_memory

LEAST = Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)


@pytest.mark.parametrize(("measure", "slack"), [(eight_gpus, 5), (gpu_memory, 2), (eight_gpus_with_jobs, 5)])
def test_eight_gpus_stay_cheap_in_time_and_memory(measure, slack):
    try:
        figures = measure(LEAST)
    except CannotMeasure as reason:
        pytest.skip(str(reason))
    for figure in figures:
        assert figure.asked is None or figure.median <= slack * figure.asked, f"{figure.name}: {figure.median}"
