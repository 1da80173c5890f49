import copy
import dataclasses
import gc
import pickle
import subprocess
import sys
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.contract import datapoint
from chipwatch.contract.datapoint import NO_DIMENSIONS, Dimensions, Kind, Level, counter, gauge

PAIRS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=6)


@given(PAIRS)
def test_dimensions_are_the_mapping_they_were_made_of(pairs):
    dims = Dimensions(pairs)
    assert dict(dims) == pairs
    assert len(dims) == len(pairs)
    assert list(dims) == sorted(pairs)
    assert all(dims[key] == value for key, value in pairs.items())


@given(PAIRS)
def test_dimensions_are_equal_and_hash_alike_whatever_the_order_they_came_in(pairs):
    backwards = dict(reversed(list(pairs.items())))
    assert Dimensions(pairs) == Dimensions(backwards)
    assert hash(Dimensions(pairs)) == hash(Dimensions(backwards))
    assert {Dimensions(pairs): 1}[Dimensions(backwards)] == 1


@given(PAIRS, PAIRS)
def test_laying_one_over_another_keeps_both_and_the_upper_wins(under, over):
    assert dict(Dimensions(under) | over) == {**under, **over}
    assert dict(Dimensions(under) | Dimensions(over)) == {**under, **over}


def test_keywords_win_over_the_mapping():
    assert dict(Dimensions({"a": "1", "b": "2"}, b="3")) == {"a": "1", "b": "3"}


def test_a_key_that_is_not_there_is_a_key_error_and_get_gives_the_default():
    with pytest.raises(KeyError):
        Dimensions(a="1")["b"]
    assert Dimensions(a="1").get("b") is None


def test_dimensions_differ_from_other_things_and_show_how_they_are_made():
    dims = Dimensions(a="1")
    assert dims != {"a": "1"}
    assert dims != Dimensions(a="2")
    assert eval(repr(dims)) == dims


def test_a_metric_makes_points_of_itself():
    load = gauge("cpu.load", "1", "The load.", Level.DETAILED, ("core",))
    dims = Dimensions(core="0")
    point = load.point(7, 1.5, dims)
    assert (point.metric, point.value, point.dims, point.at) == (load, 1.5, dims, 7)
    assert (point.start_time, point.window_start, point.summary, point.increase) == (None, None, None, None)
    assert load.point(7, 1.5).dims is NO_DIMENSIONS
    assert (load.kind, load.level, load.dims) == (Kind.GAUGE, Level.DETAILED, ("core",))


def test_a_counter_says_since_when_it_counts():
    sent = counter("net.sent", "By", "Bytes sent.")
    assert sent.kind is Kind.COUNTER
    assert sent.level is Level.BASIC
    assert sent.point(9, 3, start_time=2).start_time == 2


def test_a_metric_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        gauge("a", "1", "A.").name = "b"


def test_levels_are_ordered():
    assert Level.BASIC < Level.DETAILED < Level.ALL


def test_the_data_model_loads_nothing_else_of_the_project():
    program = "import sys, chipwatch.contract.datapoint; print(*sorted(m for m in sys.modules if m.split('.')[0] in ('chipwatch', 'chipwatch_sinks')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["chipwatch", "chipwatch.contract", "chipwatch.contract.datapoint"]


def test_equal_pairs_are_one_object_wherever_they_are_made():
    made = []
    threads = [
        Thread(target=lambda: made.append([Dimensions(n=str(n), of="race") for n in range(500)])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(dims) for dims in made[0]} == {id(dims) for of in made for dims in of}
    assert Dimensions({"b": "2"}, a="1") is Dimensions(a="1", b="2")


def test_a_copy_of_dimensions_is_themselves():
    dims = Dimensions(a="1")
    assert copy.copy(dims) is copy.deepcopy(dims) is pickle.loads(pickle.dumps(dims)) is dims


def test_a_text_that_only_looks_like_another_never_takes_its_place():
    class Odd(str):
        __slots__ = ()

    odd = Dimensions({"a": Odd("never seen before")})
    plain = Dimensions({"a": "never seen before"})
    assert type(plain["a"]) is str
    assert odd is not plain
    assert Dimensions(a="never seen before") is plain


def test_dimensions_that_nobody_holds_are_forgotten():
    before = len(datapoint._interned)
    kept = [Dimensions(n=str(n), of="forgotten") for n in range(100)]
    assert len(datapoint._interned) == before + 100
    del kept
    gc.collect()
    assert len(datapoint._interned) <= before


@pytest.mark.parametrize("declare", [gauge, counter])
@pytest.mark.parametrize("level", ["detailed", 2, None])
def test_a_level_of_another_type_is_refused_where_the_metric_is_declared(declare, level):
    with pytest.raises(TypeError, match=r"x.load: expected a Level, such as Level.DETAILED, got "):
        declare("x.load", "1", "The load.", level=level)


@pytest.mark.parametrize("declare", [gauge, counter])
def test_a_metric_is_declared_with_the_names_of_its_fields(declare):
    metric = declare(name="x.load", unit="1", help="The load.", level=Level.ALL, dims=("a",))
    assert (metric.help, metric.level, metric.dims) == ("The load.", Level.ALL, ("a",))
