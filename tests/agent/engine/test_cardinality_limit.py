import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.engine import route, window
from chipwatch.engine.route import FORGET, Admission
from chipwatch.engine.window import Window

A, B = gauge("a.thing", "1", "A.", dims=("pod",)), gauge("b.thing", "1", "B.")


def points(metric, *values, at=0):
    return [metric.point(at, 1.0, Dimensions(pod=value, zone="z")) for value in values]


def test_the_first_series_are_admitted_and_go_on_being_so():
    budget = Admission("sink", 2)

    assert budget.admit(points(A, "x", "y")) == points(A, "x", "y")
    assert budget.admit(points(A, "y", "x")) == points(A, "y", "x")


def test_what_is_beyond_is_kept_back_and_its_neighbours_pass():
    budget = Admission("sink", 2)

    assert budget.admit([*points(A, "x", "y", "z"), *points(A, "x", at=1)]) == [
        *points(A, "x", "y"),
        *points(A, "x", at=1),
    ]


def test_the_metric_and_the_dimension_that_grew_are_named_once(caplog):
    budget = Admission("cloudwatch", 3)

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            budget.admit([B.point(0, 1.0), *points(A, "p", "q", "r", "s")])

    assert budget.left_out == 2
    (record,) = caplog.records
    assert "cloudwatch: 3 series are sent, 2 are left out" in record.message
    assert "a.thing alone has 4 by its dimension pod" in record.message


def test_a_series_that_is_gone_for_an_hour_makes_room():
    budget = Admission("sink", 1)
    budget.admit(points(A, "old"))

    assert budget.admit(points(A, "new", at=FORGET)) == []
    assert budget.admit(points(A, "new", at=FORGET + 1)) == points(A, "new", at=FORGET + 1)


@given(st.lists(st.lists(st.text("abc", max_size=2), max_size=20), max_size=20), st.integers(1, 9))
def test_never_more_series_than_the_budget(ticks, most):
    budget = Admission("sink", most)
    sent = {point.dims for tick in ticks for point in budget.admit(points(A, *tick))}

    assert len(sent) == min(most, len({value for tick in ticks for value in tick}))


def test_a_series_that_is_still_sent_never_grows_old():
    budget = Admission("sink", 2)
    budget.admit(points(A, "busy", "idle"))
    assert budget.admit(points(A, "busy", at=FORGET // 2)) == points(A, "busy", at=FORGET // 2)

    late = points(A, "new", "another", "busy", at=FORGET + 1)
    assert budget.admit(late) == [late[0], late[2]]


@pytest.fixture
def most_gone(monkeypatch):
    """A smaller number of series that are gone and remembered all the same."""
    for module in (route, window):
        monkeypatch.setattr(module, "MOST_GONE", 2000)
    return 2000


def crowds(ticks, each, alive=3):
    """Yield ticks of counters: `alive` that rise by 1, and `each` that nothing reads again; each has a time in ns."""
    events = counter("c.events", "{event}", "Events.", dims=("n",))
    for at in range(2, 2 * ticks + 1, 2):
        lasting = [events.point(at, at, Dimensions(n=f"alive {n}"), start_time=0) for n in range(alive)]
        yield at, [*lasting, *(events.point(at, 1, Dimensions(n=f"{at}.{n}"), start_time=at - 1) for n in range(each))]


def test_counters_that_nothing_reads_again_are_forgotten_once_they_are_many_and_the_others_go_on(most_gone):
    window, each = Window(0, born=1), most_gone // 4
    for at, tick in crowds(12, each):
        done = window.add(tick, at)
        assert len(done) == len(tick)
        assert [point.increase for point in done[:3]] == [None if at == 2 else 2] * 3
        assert len(window._counters) <= most_gone + len(tick)


def test_a_counter_that_returns_after_it_was_forgotten_has_no_known_increase(most_gone):
    window = Window(0, born=1)
    (_, first), (_, second) = crowds(2, most_gone + 1)
    assert [point.increase for point in window.add(first, 2)][-2:] == [1, 1]
    assert window.add(second, 4)
    (back,) = window.add([first[-1]._replace(at=6)], 6)
    assert back.increase is None


def test_without_a_limit_series_that_are_gone_are_forgotten_once_they_are_many(most_gone):
    admission = Admission("sink", None, zeros=False)
    for _, tick in crowds(12, most_gone // 4):
        assert admission.admit(tick) == tick
        assert len(admission._series) <= most_gone + 2 * len(tick)
