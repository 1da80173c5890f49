"""Counters of a driver, whose beginning nobody tells."""

from __future__ import annotations

from chipwatch.host.counters import Life

S = 10**9
START = 1_000 * S


def taken(life: Life, *readings: float) -> list[bool]:
    """Take readings, one a second after START; return which of them are to be trusted."""
    return [life.take(value, START + at * S) for at, value in enumerate(readings, 1)]


def test_a_life_begins_with_its_first_reading():
    life = Life()
    assert life.start_time is None
    assert taken(life, 5.0, 7.0, 9.0) == [True, True, True]
    assert life.start_time == START + S


def test_a_first_reading_of_zero_is_to_be_trusted():
    life = Life()
    assert life.value == 0
    assert taken(life, 0.0, 3.0) == [True, True]
    assert (life.start_time, life.value) == (START + S, 3.0)


def test_an_equal_value_is_not_a_fall():
    life = Life()
    assert taken(life, 5.0, 5.0, 5.0) == [True, True, True]
    assert life.start_time == START + S


def test_a_value_that_fell_for_one_reading_is_ignored():
    life = Life()
    assert taken(life, 500.0, 0.0, 501.0) == [True, False, True]
    assert life.start_time == START + S


def test_a_lower_value_is_a_start_after_the_last_reading():
    life = Life()
    assert taken(life, 500.0, 600.0, 3.0, 4.0) == [True, True, True, True]
    assert (life.start_time, life.value) == (START + 2 * S, 4.0)


def test_a_counter_of_a_known_start_gets_another_when_it_falls():
    life = Life(start_time=-9)
    taken(life, 500.0)
    assert life.start_time == -9
    life.take(3.0, START + 7 * S)
    assert life.start_time == START + S


def test_a_fall_after_the_very_first_reading_has_a_newer_start():
    """By a millisecond, which is what sinks show."""
    life = Life()
    life.take(500.0, 100)
    life.take(3.0, 5_000_000_000)
    assert life.start_time == 1_000_100


def test_two_zeros_in_a_row_mean_a_restart():
    life = Life()
    assert taken(life, 500.0, 0.0, 0.0, 5.0) == [True, False, True, True]
    assert (life.start_time, life.value) == (START + 2 * S, 5.0)


def test_a_zero_and_then_little_mean_a_restart_that_loses_nothing():
    life = Life()
    assert taken(life, 500.0, 0.0, 5.0) == [True, False, True]
    assert (life.start_time, life.value) == (START + 2 * S, 5.0)


def test_each_zero_is_ignored_once():
    life = Life()
    assert taken(life, 500.0, 0.0, 501.0, 0.0, 502.0) == [True, False, True, False, True]
    assert life.start_time == START + S


def test_a_clock_that_was_set_back_gives_no_start_after_the_reading():
    life = Life()
    life.take(500.0, 100)
    life.take(3.0, 50)
    assert life.start_time == 50


def test_a_leap_after_a_zero_is_ignored_as_well():
    life = Life()
    assert [life.take(value, at, most=100) for at, value in enumerate([500, 0, 9e15, 501])] == [
        True,
        False,
        False,
        True,
    ]
    assert (life.start_time, life.value) == (0, 501)


def test_a_zero_after_a_leap_is_ignored_as_well():
    life = Life()
    assert [life.take(value, at, most=100) for at, value in enumerate([500, 9e15, 0, 501])] == [
        True,
        False,
        False,
        True,
    ]
    assert (life.start_time, life.value) == (0, 501)


def test_leaps_count_only_where_one_goes_on_from_the_other():
    life = Life()
    assert [life.take(value, at, most=100) for at, value in enumerate([5, 9e9, 3e9, 3e9 + 7])] == [
        True,
        False,
        False,
        True,
    ]
    assert (life.start_time, life.value) == (3, 3e9 + 7)
