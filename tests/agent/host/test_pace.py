import pytest

from chipwatch.host.pace import Backoff, Pace


@pytest.mark.parametrize(
    ("tick", "read"),
    [(5.0, [0, 5, 20, 35, 50]), (1.0, [0, 1, 16, 31, 46]), (20.0, [0, 20, 40]), (4.99, [0, 4.99, 19.96, 34.93, 49.9])],
)
def test_after_two_readings_one_is_due_at_the_tick_nearest_to_the_interval(tick, read):
    now = [0.0]
    pace = Pace(15.0, lambda: now[0])
    found = []
    while now[0] < 59:
        if pace.is_due():
            found.append(round(now[0], 2))
        now[0] += tick
    assert found == read


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
    assert [now for now in range(0, 121, 10) if pace.is_due(now)] == [0, 10, 20, 50, 80, 110]
