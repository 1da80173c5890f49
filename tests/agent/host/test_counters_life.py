"""Counters of a driver, whose beginning nobody tells."""

import pytest

from chipwatch.host.counters import Life

S = 10**9
START = 1_000 * S


@pytest.mark.parametrize(
    ("readings", "refused", "start", "value"),
    [
        ([5, 7, 9], [], 1, 9),
        ([0, 3], [], 1, 3),  # a first reading of zero is to be trusted
        ([5, 5, 5], [], 1, 5),
        ([500, 0, 501], [1], 1, 501),  # a fall to zero for one reading is ignored
        ([500, 600, 3, 4], [], 2, 4),  # a lower value is a start after the last reading
        ([500, 0, 0, 5], [1], 2, 5),  # two zeros in a row mean a restart
        ([500, 0, 5], [1], 2, 5),  # so do a zero and then little, and nothing is lost
        ([500, 0, 501, 0, 502], [1, 3], 1, 502),  # each zero is ignored once
        ([500, 0, 9e15, 501], [1, 2], 1, 501),  # a leap after a zero is ignored as well
        ([500, 9e15, 0, 501], [1, 2], 1, 501),
        ([5, 9e9, 3e9, 3e9 + 7], [1, 2], 4, 3e9 + 7),  # leaps count where one goes on from the other
    ],
)
def test_a_life_trusts_what_a_counter_can_do_and_starts_where_it_fell(readings, refused, start, value):
    life = Life()
    assert (life.start_time, life.value) == (None, 0)
    taken = [life.take(reading, START + at * S, most=1000) for at, reading in enumerate(readings, 1)]
    assert [n for n, trusted in enumerate(taken) if not trusted] == refused
    assert (life.start_time, life.value) == (START + start * S, value)


def test_a_counter_of_a_known_start_gets_another_when_it_falls():
    life = Life(start_time=-9)
    life.take(500, START + S)
    assert life.start_time == -9
    life.take(3, START + 7 * S)
    assert life.start_time == START + S


@pytest.mark.parametrize(("at", "start"), [(5 * S, 1_000_100), (50, 50)])
def test_a_fall_has_a_start_after_the_first_reading_and_not_after_its_own(at, start):
    """By a millisecond, which is what sinks show; `at` 50 is a clock that was set back."""
    life = Life()
    life.take(500, 100)
    life.take(3, at)
    assert life.start_time == start
