"""A gross loss of speed fails here; the figures themselves are for `make bench`."""

from __future__ import annotations

from tests.bench.figure import Effort
from tests.bench.mlflow import REQUEST, request

LEAST = Effort(rounds=1, tick_seconds=3, steady_seconds=1, growth_ticks=1, starts=1)
SLACK = 5
"""So many times what is asked: other tests run beside this one."""


def test_a_request_of_a_thousand_metrics_stays_cheap():
    (figure,) = request(LEAST)
    assert figure.median <= SLACK * REQUEST
