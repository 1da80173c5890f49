from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from chipwatch.host.pace import SLACK, Backoff, Pace

MS = 10**6


@given(
    start=st.integers(0, 2**62),
    interval=st.sampled_from((1.0, 5.0, 11.0, 15.0)),
    steps=st.lists(st.integers(-20_000, 20_000) | st.integers(900, 1100), max_size=60),
)
def test_a_reading_is_due_in_two_ticks_then_the_interval_after_the_last_and_when_the_clock_is_set_back(
    start, interval, steps
):
    pace, readings = Pace(interval), list[int]()
    for at in accumulate(steps, lambda at, step: at + step * MS, initial=start):
        since = (at - readings[-1]) / 1e9 if readings else 0.0
        is_due = len(readings) < 2 or since < 0 or since >= interval - SLACK
        assert pace.is_due(at) is is_due
        readings += [at] * is_due


def test_a_delay_doubles_up_to_an_hour():
    backoff, now = Backoff(), 0.0
    assert backoff.allows(now)
    assert [backoff.fail(now) for _ in range(8)] == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert not backoff.allows(3599)
    assert backoff.allows(3600)


def test_success_shortens_the_next_delay():
    backoff = Backoff()
    backoff.fail(0)
    backoff.fail(0)
    backoff.succeed()
    assert backoff.fail(1000) == 60


def test_the_third_reading_is_earlier_by_the_shift_and_the_interval_stays():
    pace = Pace(30, shift=20)
    assert [now for now in range(0, 121, 10) if pace.is_due(now * 1000 * MS)] == [0, 10, 20, 50, 80, 110]
