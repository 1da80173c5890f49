import logging

from hypothesis import given
from hypothesis import strategies as st

from chipwatch.contract.datapoint import Dimensions, gauge
from chipwatch.pipeline.route import FORGET, Admission

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

    (record,) = caplog.records
    assert "cloudwatch: more than 3 series" in record.message
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
