"""A gross loss of speed fails here; the figures themselves are for `make bench`."""

from __future__ import annotations

from tests.bench.cloudwatch import cost, dead, environ, pace
from tests.bench.figure import Effort
from tests.doubles import cloudwatch as service

from chipwatch_sinks.common.aws_session import CONNECT_TIMEOUT

LEAST = Effort(rounds=1, tick_seconds=3, steady_seconds=1, growth_ticks=1, starts=1)
SLACK = 5
"""So many times what is asked: other tests run beside this one."""


def test_a_thousand_datums_stay_cheap_and_cheaper_than_by_boto3():
    with environ(service.environment()):
        figures = {figure.name: figure for figure in cost(LEAST)}

    assert figures["CloudWatch, CPU of 1000 datums"].median <= SLACK * 4
    assert figures["CloudWatch, the same as a share of plain boto3"].median <= 0.5


def test_a_thousand_series_are_one_request_a_minute():
    with environ(service.environment()):
        assert pace(3).median <= 1.5


def test_no_tick_waits_for_a_dead_endpoint():
    with environ(service.environment()):
        _, worst = dead(LEAST)

    assert max(worst.values) < 1000 * CONNECT_TIMEOUT / 2
