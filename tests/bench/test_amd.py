"""A gross loss of speed fails here, as in test_bench."""

from __future__ import annotations

from tests.bench.amd import eight_cards
from tests.bench.figure import Effort


def test_eight_cards_stay_cheap():
    for figure in eight_cards(Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)):
        assert figure.asked is not None
        assert figure.median <= 5 * figure.asked, f"{figure.name}: {figure.median}"
