"""A gross loss of speed fails here, as in test_bench."""

from __future__ import annotations

import pytest
from tests.bench.figure import CannotMeasure, Effort
from tests.bench.prometheus import further_scrapes, scrapes, with_gpus

LEAST = Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)


@pytest.mark.parametrize("measurement", [scrapes, further_scrapes, with_gpus])
def test_the_page_stays_cheap(measurement):
    try:
        figures = measurement(LEAST)
    except CannotMeasure as reason:
        pytest.skip(str(reason))
    for figure in figures:
        assert figure.asked is None or figure.median <= 3 * figure.asked, f"{figure.name}: {figure.median}"
