import pytest

from chipwatch.contract.datapoint import counter, gauge
from chipwatch.engine.window import Window
from chipwatch.host.counters import Life
from chipwatch_sinks.google.history import MOMENT, NOT_NEWER, TOO_SOON, Last, SentHistory

S = 10**9
BOOT = 1_000_000 * S
BEGUN = 2_000_000 * S
HEAT = gauge("gpu.temperature", "Cel", "Of the core.")
SENT = counter("network.sent", "By", "Bytes sent.")
NAME = b"a series"


def follow(history, *readings, start_time=BOOT):
    """Send counter readings (seconds after BEGUN, value[, since]); return what each became."""
    told = []
    for second, value, *life in readings:
        last = history.follow(
            NAME, SENT.point(BEGUN + int(second * S), value, start_time=life[0] if life else start_time)
        )
        told.append(last)
        if isinstance(last, Last):
            history.keep(NAME, last)
    return told


def shown(told):
    """Return start and end in seconds after BEGUN (the start of BOOT as it is), and the value that is sent."""
    return [(last.start, (last.end - BEGUN) / S, last.value - last.base) for last in told]


def test_a_counter_counts_from_the_moment_at_which_it_was_zero():
    assert shown(follow(SentHistory(), (0, 500.0), (60, 800.0))) == [(BOOT, 0, 500.0), (BOOT, 60, 800.0)]


def test_the_increase_before_a_reset_in_the_same_window_is_kept():
    history, begun = SentHistory(), BEGUN + 90 * S
    follow(history, (60, 500.0))
    point = SENT.point(BEGUN + 120 * S, 20.0, start_time=begun)._replace(
        window_start=BEGUN + 60 * S, increase=30.0 + 20.0
    )
    last = history.follow(NAME, point)
    assert (last.start, last.value - last.base) == (begun, 50.0)


def test_a_counter_that_was_zero_less_than_a_millisecond_ago_keeps_what_it_counted():
    (last,) = follow(SentHistory(), (60, 374.0), start_time=BEGUN + 60 * S - 1000)
    assert (last.end - last.start, last.value - last.base) == (MOMENT, 374.0)


def test_a_restart_goes_on_with_the_same_start_though_the_boot_time_jitters():
    before, after = SentHistory(), SentHistory()
    follow(before, (0, 500.0))
    after.load(before.dump())
    assert shown(follow(after, (60, 800.0), start_time=BOOT + S)) == [(BOOT, 60, 800.0)]


def test_a_reboot_begins_a_new_stretch_at_the_new_boot():
    history = SentHistory()
    follow(history, (0, 500.0))
    booted = BEGUN + 30 * S
    assert shown(follow(history, (60, 20.0), start_time=booted)) == [(booted, 60, 20.0)]


def test_a_reset_at_an_unknown_moment_begins_after_the_last_end_and_invents_no_increase():
    history = SentHistory()
    follow(history, (0, 500.0))
    told = follow(history, (60, 20.0), (120, 50.0))
    begin = BEGUN + MOMENT
    assert shown(told) == [(begin, 60, 0.0), (begin, 120, 30.0)]


def test_a_counter_of_unknown_beginning_counts_from_its_first_reading():
    told = follow(SentHistory(), (0, 7000.0), (60, 7100.0), start_time=None)
    begin = BEGUN - MOMENT
    assert shown(told) == [(begin, 0, 0.0), (begin, 60, 100.0)]


def test_a_counter_that_is_zero_at_its_own_moment_counts_from_there():
    told = follow(SentHistory(), (0, 40.0, BEGUN), (60, 100.0, BEGUN))
    assert shown(told) == [(BEGUN - MOMENT, 0, 0.0), (BEGUN - MOMENT, 60, 60.0)]


def test_a_start_lies_after_the_last_end_and_before_its_own():
    history = SentHistory()
    follow(history, (0, 500.0))
    (told,) = follow(history, (60, 5.0, BEGUN + 60 * S))
    assert BEGUN < told.start < told.end
    (told,) = follow(history, (120, 5.0, BEGUN + 60 * S + 1))
    assert told.start >= BEGUN + 60 * S + MOMENT


@pytest.mark.parametrize(
    ("after", "outcome"),
    [(0, NOT_NEWER), (-5, NOT_NEWER), (0.001, TOO_SOON), (8.9, TOO_SOON), (9.1, 10.0), (10, 10.0), (10.5, 10.5)],
)
def test_points_of_a_series_are_ten_seconds_apart(after, outcome):
    history = SentHistory()
    history.keep(NAME, Last(BEGUN))
    told = history.follow(NAME, HEAT.point(BEGUN + int(after * S), 60.0))
    assert (told if isinstance(told, str) else (told.end - BEGUN) / S) == outcome


def test_a_point_that_did_not_arrive_changes_nothing():
    history = SentHistory()
    history.follow(NAME, HEAT.point(BEGUN, 60.0))
    assert history.follow(NAME, HEAT.point(BEGUN, 60.0)) == Last(BEGUN)


def test_what_comes_too_soon_counts_with_the_next():
    history = SentHistory()
    assert shown([told for told in follow(history, (0, 100.0), (5, 150.0), (60, 200.0)) if told != TOO_SOON]) == [
        (BOOT, 0, 100.0),
        (BOOT, 60, 200.0),
    ]


def test_series_of_more_than_a_day_ago_are_forgotten():
    history = SentHistory()
    history.keep(b"old", Last(BEGUN))
    history.keep(b"new", Last(BEGUN + 26 * 3600 * S))
    after = SentHistory()
    after.load(history.dump())
    assert after.follow(b"old", HEAT.point(BEGUN, 1.0)) == Last(BEGUN)
    assert after.follow(b"new", HEAT.point(BEGUN, 1.0)) == NOT_NEWER


@pytest.mark.parametrize("state", [b"", b"\x00", b"nonsense", b"\x81\xc4\x01a\x93\x01\x02\x03", b"\x81\x01\x01"])
def test_a_state_that_makes_no_sense_is_as_good_as_none(state):
    history = SentHistory()
    history.load(state)
    assert shown(follow(history, (0, 5.0))) == [(BOOT, 0, 5.0)]


def windows(life, begun):
    """Return the readings of a device's counter in two windows of an agent that began to watch at `begun` (s)."""
    window = Window(60, born=BEGUN + begun * S, spacing=10)
    points = []
    for second in range(begun, begun + 121):
        at, value = BEGUN + second * S, 7_000_000.0 + second
        life.take(value, at)
        points += window.add([SENT.point(at, value, start_time=life.start_time)], at)
    return points


def test_counts_from_before_the_first_reading_add_no_increase_even_after_a_restart():
    history, shown_values = SentHistory(), []
    for begun in (0, 200):
        for point in windows(Life(), begun):
            last = history.follow(NAME, point)
            history.keep(NAME, last)
            shown_values.append((last.value - last.base, (last.end - last.start) / S))
    assert len(shown_values) == 4
    assert all(value == seconds for value, seconds in shown_values)
