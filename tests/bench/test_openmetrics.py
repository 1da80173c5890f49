"""A gross loss of speed fails here, as in test_bench."""

from __future__ import annotations

import pytest
from tests.bench.figure import CannotMeasure, Effort
from tests.bench.openmetrics import large_page

LEAST = Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)


def test_a_large_page_stays_cheap():
    try:
        figures = large_page(LEAST)
    except CannotMeasure as reason:
        pytest.skip(str(reason))
    for figure in figures:
        assert figure.asked is None or figure.median <= 3 * figure.asked, f"{figure.name}: {figure.median}"
