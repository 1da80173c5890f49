from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from chipwatch.host.pace import SLACK, Backoff, Pace

MS = 10**6


@given(
    interval=st.sampled_from((5.0, 11.0, 30.0)),
    shift=st.sampled_from((0.0, 3.0)),
    steps=st.lists(st.integers(-20_000, 20_000) | st.integers(900, 1100), max_size=60),
)
def test_two_ticks_are_due_then_one_at_the_interval_or_sooner_by_the_shift_or_if_the_clock_is_set_back(
    interval, shift, steps
):
    pace, readings = Pace(interval, shift=shift), list[int]()
    for at in accumulate(steps, lambda at, step: at + step * MS, initial=10**18):
        since = (at - readings[-1]) / 1e9 if readings else 0.0
        least = interval - SLACK - shift * (len(readings) == 2)
        is_due = len(readings) < 2 or since < 0 or since >= least
        assert pace.is_due(at) is is_due
        readings += [at] * is_due


def test_a_delay_doubles_up_to_an_hour_until_a_success():
    backoff = Backoff()
    assert backoff.allows(0.0)
    assert [backoff.fail(0.0) for _ in range(8)] == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert [backoff.allows(now) for now in (3599, 3600)] == [False, True]
    backoff.succeed()
    assert backoff.fail(1000) == 60
