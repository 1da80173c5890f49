"""A gross loss of speed fails here, as in test_bench; a busy machine takes three times as long as a quiet one."""

from __future__ import annotations

from tests.bench.figure import Effort
from tests.bench.otlp import encoding

LEAST = Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)


def test_encoding_stays_cheap():
    for figure in encoding(LEAST):
        assert figure.asked is None or figure.median <= 6 * figure.asked, f"{figure.name}: {figure.median}"
