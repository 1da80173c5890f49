import enum
import itertools
import logging
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary, counter, gauge
from chipwatch.contract.errors import PartlyCollected
from chipwatch.engine.notices import Notices
from chipwatch.engine.spool.sqlite import decode_points, encode_points
from chipwatch.engine.validation import LATEST, MOST_METRICS, MOST_POINTS, Validation

NOW = 1_800_000_000_000_000_000
LOAD = gauge("x.load", "1", "The load.")
SENT = counter("x.sent", "By", "Bytes.")
DIMS = Dimensions(a="b")
GOOD = LOAD.point(NOW, 1.0, DIMS)


class Word(str):
    __slots__ = ()


class State(enum.StrEnum):
    UP = "up"


class Array:
    """A number of another library, of which there are two."""

    def __float__(self):
        raise RuntimeError("more than one element")

    def __eq__(self, other):
        raise RuntimeError("more than one answer")

    __hash__ = None


def take(*points, level=Level.ALL, declared=None):
    logger = Notices(logging.getLogger("chipwatch.test"), "collector", "collector x")
    made, taken = Validation(level, logger, declared=lambda: declared), []
    for _ in range(2):  # what is remembered of the first reading must not let anything pass in the second
        taken.clear()
        made.take(points, NOW, taken)
    return taken, made


BAD = {
    "a tuple": ("point", tuple(GOOD)),
    "None": ("point", None),
    "text": ("point", "x.load 1"),
    "with a summary": ("point", GOOD._replace(summary=Summary(1, 1, 1, 1, (1,), (1,)))),
    "with an array": ("point", GOOD._replace(summary=Array())),
    "with an increase": ("point", GOOD._replace(increase=1.0)),
    "with a start": ("point", GOOD._replace(window_start="now")),
    "no metric": ("metric", GOOD._replace(metric="x.load")),
    "a name that is no text": ("metric", GOOD._replace(metric=replace(LOAD, name=b"x.load"))),
    "a name that is not UTF-8": ("metric", GOOD._replace(metric=replace(LOAD, name="x.\ud800"))),
    "a name of another class": ("metric", GOOD._replace(metric=replace(LOAD, name=Word("x")))),
    "no unit": ("metric", GOOD._replace(metric=replace(LOAD, unit=None))),
    "no help": ("metric", GOOD._replace(metric=replace(LOAD, help=None))),
    "a kind that is a text": ("metric", GOOD._replace(metric=replace(LOAD, kind="gauge"))),
    "keys in a list": ("metric", GOOD._replace(metric=replace(LOAD, dims=["a"]))),
    "keys that are numbers": ("metric", GOOD._replace(metric=replace(LOAD, dims=(1,)))),
    "no value": ("value", GOOD._replace(value=None)),
    "a text for a value": ("value", GOOD._replace(value="1")),
    "bytes for a value": ("value", GOOD._replace(value=b"1")),
    "a signaling NaN": ("value", GOOD._replace(value=Decimal("sNaN"))),
    "a complex value": ("value", GOOD._replace(value=1j)),
    "a value too large": ("value", GOOD._replace(value=10**400)),
    "an array for a value": ("value", GOOD._replace(value=Array())),
    "a dict for dims": ("dims", GOOD._replace(dims={"a": "b"})),
    "None for dims": ("dims", GOOD._replace(dims=None)),
    "an int in dims": ("dims", GOOD._replace(dims=Dimensions({"a": 1}))),
    "None in dims": ("dims", GOOD._replace(dims=Dimensions({"a": None}))),
    "bytes in dims": ("dims", GOOD._replace(dims=Dimensions({"a": b"b"}))),
    "a key that is an int": ("dims", GOOD._replace(dims=Dimensions({1: "b"}))),
    "dims that are not UTF-8": ("dims", GOOD._replace(dims=Dimensions({"a": "\udcff"}))),
    "a float for at": ("at", GOOD._replace(at=1.5)),
    "a bool for at": ("at", GOOD._replace(at=True)),
    "None for at": ("at", GOOD._replace(at=None)),
    "a late at": ("at", GOOD._replace(at=2**63)),
    "a negative at": ("at", GOOD._replace(at=-1)),
    "a float start_time": ("start_time", SENT.point(NOW, 1, DIMS, start_time=1e18)),
    "a text since": ("start_time", SENT.point(NOW, 1, DIMS, start_time="boot")),
    "a late since": ("start_time", SENT.point(NOW, 1, DIMS, start_time=2**63)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_point_is_left_out_alone_and_counted_by_its_part(name, caplog):
    part, bad = BAD[name]
    taken, made = take(GOOD, bad, GOOD._replace(value=2.0))
    assert [point.value for point in taken] == [1.0, 2.0]
    assert made._notices.counts == {f"malformed:{part}": 2}
    (record,) = caplog.records
    assert record.getMessage().startswith("collector x: malformed points are left out: ")
    assert f"{part}: " in record.getMessage()
    assert list(made.problems) == [part]


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (True, 1.0),
        (Decimal("1.5"), 1.5),
        (Fraction(1, 4), 0.25),
        (7, 7),
        (2**64, 2.0**64),
        (-1e300, -1e300),
        (1e19, 1e19),
    ],
)
def test_numbers_of_other_kinds_become_plain_ones(given, plain):
    (point,), made = take(GOOD._replace(value=given))
    assert point.value == plain
    assert type(point.value) in (float, int)
    assert not made._notices.counts


def test_texts_of_other_kinds_in_dimensions_become_plain_ones():
    (point,), made = take(GOOD._replace(dims=Dimensions({"a": Word("b"), "state": State.UP})))
    assert point.dims == Dimensions(a="b", state="up")
    assert {type(text) for pair in point.dims.items() for text in pair} == {str}
    assert not made._notices.counts


def test_what_is_not_finite_is_counted_apart():
    taken, made = take(GOOD._replace(value=float("nan")), GOOD._replace(value=float("-inf")))
    assert (taken, made._notices.counts) == ([], {"not finite": 4})


def test_what_is_not_finite_is_named_once_with_its_value(caplog):
    _, made = take(GOOD._replace(value=float("nan")))
    assert [record.getMessage() for record in caplog.records] == [
        "collector x: x.load is nan: what is not finite is left out"
    ]
    assert [*made.problems.values()] == ["x.load is nan: what is not finite is left out"]


def test_a_metric_that_is_not_declared_is_taken_with_one_warning(caplog):
    other = gauge("x.other", "1", "Other.")
    taken, made = take(GOOD, other.point(NOW, 1), replace(LOAD, unit="s").point(NOW, 2), declared=(LOAD,))
    assert [point.value for point in taken] == [1.0, 1, 2]
    line = "`metrics` does not declare x.other so: `list` and `plan` do not know it"
    assert [record.getMessage() for record in caplog.records] == [f"collector x: {line}"]
    assert made.breaches == {"metrics": line}
    assert not made.problems


def test_a_counter_without_a_start_is_taken_with_one_warning(caplog):
    taken, made = take(SENT.point(NOW, 1), SENT.point(NOW, 2, DIMS, start_time=1), declared=(SENT,))
    assert len(taken) == 2
    line = "the counter x.sent has no start_time: nobody knows since when it counts"
    assert [record.getMessage() for record in caplog.records] == [f"collector x: {line}"]
    assert made.breaches == {"start_time": line}


def test_what_is_declared_or_cannot_be_listed_gives_no_warning(caplog):
    take(GOOD, SENT.point(NOW, 1, start_time=1), declared=(replace(LOAD), SENT))
    take(gauge("x.other", "1", "Other.").point(NOW, 1), declared=None)
    assert not caplog.records


def test_what_is_above_the_level_is_left_out_without_a_word(caplog):
    taken, made = take(gauge("x.detail", "1", "A detail.", Level.ALL).point(NOW, None), level=Level.BASIC)
    assert (taken, made._notices.counts, caplog.records) == ([], {}, [])


def test_a_collector_that_makes_new_metrics_for_ever_takes_no_more_memory():
    taken, made = take(*(gauge(f"x.m{n}", "1", "M.").point(NOW, 1.0) for n in range(MOST_METRICS + 10)))
    assert len(taken) == MOST_METRICS + 10
    assert len(made._wanted) == len(made._metrics) <= MOST_METRICS


@pytest.mark.parametrize("endless", [GOOD, None, gauge("x.other", "1", "O.", Level.ALL).point(NOW, 1.0)])
def test_a_reading_without_an_end_is_cut_and_logged(endless):
    made, taken = Validation(Level.BASIC, Notices(logging.getLogger("chipwatch.test"), "collector", "x")), []
    with pytest.raises(PartlyCollected, match=f"more than {MOST_POINTS} points in one reading"):
        made.take(itertools.repeat(endless), NOW, taken)
    assert len(taken) <= MOST_POINTS


def test_a_reading_of_exactly_as_many_points_as_are_taken_is_whole():
    made, taken = Validation(Level.ALL, Notices(logging.getLogger("chipwatch.test"), "collector", "x")), []
    made.take([GOOD] * MOST_POINTS, NOW, taken)
    assert len(taken) == MOST_POINTS


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**65), 2**65), st.floats(), st.text(), st.binary(max_size=3),
    st.text(st.characters(codec=None), max_size=3), st.sampled_from([Kind.GAUGE, Level.ALL, Word("x"), State.UP, Array(), 2**63]),
    st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2), st.tuples(st.text(max_size=2)), st.decimals(),
)  # fmt: skip


def is_hashable(thing):
    """Return whether Dimensions take `thing`: they raise TypeError in the plugin for a dict or a signaling NaN."""
    try:
        hash(thing)
    except TypeError:
        return False
    return True


GOOD_OR = {
    "metric": st.one_of(
        st.sampled_from([LOAD, SENT]),
        st.builds(
            Metric, *(ANYTHING | st.just(good) for good in ("x", Kind.GAUGE, "1", "X.")), st.sampled_from(Level),
            ANYTHING | st.just(("a",)),
        ),
        ANYTHING,
    ),
    "value": st.floats() | ANYTHING,
    "dims": st.builds(Dimensions, st.dictionaries(st.text(max_size=2), ANYTHING.filter(is_hashable), max_size=2)) | ANYTHING,
    "at": st.just(NOW) | ANYTHING,
    "start_time": st.none() | st.integers(0, LATEST) | ANYTHING,
}  # fmt: skip


@given(st.lists(st.builds(Datapoint, **GOOD_OR), max_size=5))
def test_what_is_taken_can_be_written_and_is_read_back_as_it_was(points):
    taken, _ = take(*points)
    if taken:
        found, _ = decode_points(encode_points(taken, DIMS), len(taken))
        assert found == taken


def test_a_metric_that_is_always_wanted_is_taken_above_the_level_and_its_neighbour_is_not():
    made, taken = (
        Validation(Level.BASIC, Notices(logging.getLogger("agent.test"), "collector", "x"), frozenset({"x.a"})),
        [],
    )
    made.take((gauge(name, "1", "M.", Level.ALL).point(NOW, 1.0) for name in ("x.a", "x.b")), NOW, taken)
    assert [point.metric.name for point in taken] == ["x.a"]
