"""Counters of a driver, whose beginning nobody tells."""

from __future__ import annotations

from chipwatch.host.counters import Life


def taken(life: Life, *readings: float) -> list[bool]:
    """Take readings, one a nanosecond from 1 on; return which of them are to be trusted."""
    return [life.take(value, at) for at, value in enumerate(readings, 1)]


def test_a_life_begins_with_its_first_reading():
    life = Life()
    assert life.start_time is None
    assert taken(life, 5.0, 7.0, 9.0) == [True, True, True]
    assert life.start_time == 1


def test_a_first_reading_of_zero_is_to_be_trusted():
    life = Life()
    assert life.value == 0
    assert taken(life, 0.0, 3.0) == [True, True]
    assert (life.start_time, life.value) == (1, 3.0)


def test_an_equal_value_is_no_fall():
    life = Life()
    assert taken(life, 5.0, 5.0, 5.0) == [True, True, True]
    assert life.start_time == 1


def test_a_value_that_fell_for_one_reading_is_ignored():
    life = Life()
    assert taken(life, 500.0, 0.0, 501.0) == [True, False, True]
    assert life.start_time == 1


def test_two_lower_values_in_a_row_mean_a_restart():
    life = Life()
    assert taken(life, 500.0, 3.0, 4.0, 5.0) == [True, False, True, True]
    assert life.start_time == 3


def test_each_fall_is_ignored_once():
    life = Life()
    assert taken(life, 500.0, 0.0, 501.0, 0.0, 502.0) == [True, False, True, False, True]
    assert life.start_time == 1
    assert taken(life, 0.0, 1.0) == [False, True]
    assert life.start_time == 2


def test_after_a_restart_the_next_fall_is_ignored_again():
    assert taken(Life(), 500.0, 3.0, 4.0, 1.0, 5.0) == [True, False, True, False, True]
