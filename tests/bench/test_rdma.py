"""A gross loss of speed fails here, as in test_bench."""

from __future__ import annotations

from tests.bench.figure import Effort
from tests.bench.rdma import eight_ports


def test_eight_ports_stay_cheap():
    for figure in eight_ports(Effort(rounds=1, tick_seconds=1, steady_seconds=1, growth_ticks=1, starts=1)):
        assert figure.asked is not None
        assert figure.median <= 5 * figure.asked, f"{figure.name}: {figure.median}"
