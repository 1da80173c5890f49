import pytest
from tests.doubles.frame import Clock

from chipwatch.contract.trusted_clock import MAX_DRIFT, PROBATION, TrustedClock

DAY = 86_400.0
LONG = PROBATION / 1e9


class Clocks:
    """A wall clock, and a monotonic one that no step moves."""

    def __init__(self):
        self.wall, self.monotonic = Clock(), Clock(7)
        self.steady = TrustedClock(self.wall, self.monotonic)

    def run(self, seconds):
        self.wall.forward(seconds)
        self.monotonic.forward(seconds)
        return self.steady()

    def run_for_long(self):
        """Let ten minutes pass, looked at now and then."""
        for _ in range(10):
            found = self.run(LONG / 10)
        return found


@pytest.fixture
def clocks():
    return Clocks()


def test_a_clock_is_not_trusted_before_it_has_kept_pace_for_ten_minutes(clocks):
    assert clocks.steady() is None
    assert clocks.run(LONG - 1) is None
    assert clocks.run(1) == clocks.wall.now


@pytest.mark.parametrize("step", [20 * DAY, -20 * DAY])
def test_a_clock_that_jumps_for_a_moment_is_not_trusted_while_it_is_wrong(clocks, step):
    assert clocks.run_for_long()
    clocks.wall.forward(step)
    assert clocks.steady() is None
    assert clocks.run(4) is None
    clocks.wall.forward(-step)
    assert clocks.steady() is None
    assert clocks.run(LONG - 1) is None
    assert clocks.run(1) == clocks.wall.now


def test_a_clock_that_was_set_right_for_good_is_trusted_again(clocks):
    clocks.run_for_long()
    clocks.wall.forward(-20 * DAY)
    assert clocks.steady() is None
    assert clocks.run_for_long() == clocks.wall.now


def test_slow_corrections_cost_no_trust(clocks):
    clocks.run_for_long()
    for _ in range(500):
        clocks.wall.forward(1.0)
        assert clocks.run(60) == clocks.wall.now


def test_a_clock_that_a_service_agrees_with_is_trusted_at_once(clocks):
    clocks.steady.compare(clocks.wall.now + MAX_DRIFT // 2)
    assert clocks.steady() == clocks.wall.now


def test_a_clock_that_a_service_contradicts_is_not_trusted_however_steady_until_it_is_set(clocks):
    clocks.run_for_long()
    clocks.steady.compare(clocks.wall.now - int(20 * DAY) * 10**9)
    assert clocks.run_for_long() is None
    assert clocks.run_for_long() is None
    clocks.wall.forward(-20 * DAY)
    assert clocks.steady() is None
    assert clocks.run_for_long() == clocks.wall.now
