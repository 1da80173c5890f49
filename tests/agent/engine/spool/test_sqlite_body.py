import contextlib

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary, counter, gauge
from chipwatch.engine.spool.sqlite import VERSION, decode_points, encode_points
from chipwatch.engine.window import Window

I64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.one_of(st.floats(allow_nan=False), st.integers(-(2**53), 2**53))
DIMS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4).map(Dimensions)
METRICS = st.builds(
    Metric,
    st.text(max_size=12),
    st.sampled_from(Kind),
    st.text(max_size=4),
    st.text(max_size=12),
    st.sampled_from(Level),
    st.lists(st.text(max_size=4), max_size=3).map(tuple),
)
SUMMARIES = st.builds(
    Summary,
    st.integers(0, 2**40),
    VALUES,
    VALUES,
    VALUES,
    st.lists(VALUES, max_size=5).map(tuple),
    st.lists(st.integers(0, 2**40), max_size=5).map(tuple),
    st.one_of(st.none(), VALUES),
)


def maybe(strategy):
    return st.one_of(st.none(), strategy)


@st.composite
def points(draw):
    """Points of a few shared metrics and dimensions, as a window has them."""
    metrics = draw(st.lists(METRICS, min_size=1, max_size=4))
    dims = draw(st.lists(DIMS, min_size=1, max_size=4))
    one = st.builds(
        Datapoint,
        st.sampled_from(metrics),
        VALUES,
        st.sampled_from(dims),
        I64,
        maybe(I64),
        maybe(I64),
        maybe(SUMMARIES),
        maybe(VALUES),
    )
    return draw(st.lists(one, max_size=12))


@settings(max_examples=examples(40))  # to draw one takes longer than to test it
@given(points(), maybe(DIMS))
def test_decode_returns_the_encoded_points(batch, common):
    assert decode_points(encode_points(batch, common), len(batch)) == (batch, common)


def test_empty_dimensions_differ_from_unknown_ones():
    point = gauge("a", "1", "A.").point(7, 1.0)
    assert decode_points(encode_points([point], None), 1)[1] is None
    assert decode_points(encode_points([point], Dimensions()), 1)[1] == Dimensions()


def test_metrics_and_dimensions_are_written_once():
    load, dims = gauge("cpu.load", "1", "x" * 500 + "."), Dimensions(core="y" * 500)
    assert len(encode_points([load.point(at, 1.0, dims) for at in range(100)], None)) < 1000 + 100 * 40


def test_points_of_one_metric_read_back_share_it():
    load = gauge("cpu.load", "1", "The load.")
    batch, _ = decode_points(encode_points([load.point(at, 1.0) for at in range(3)], None), 3)
    assert batch[0].metric is batch[2].metric
    assert batch[0].dims is batch[2].dims


def sample():
    """A chunk as windows make them, with every field in use."""
    window = Window(60, born=0)
    load, sent = gauge("cpu.load", "1", "The load."), counter("net.sent", "By", "Bytes.", Level.DETAILED, ("if",))
    for at in range(5):
        window.add([load.point(at, at / 3), sent.point(at, at, Dimensions(**{"if": "eth0"}), start_time=0)], at)
    window.close()
    window.add([sent.point(9, 10, Dimensions(**{"if": "eth0"}), start_time=0), load.point(9, 1.0)], 9)
    batch = window.close()
    return encode_points(batch, Dimensions(host="h")), len(batch)


BODY, COUNT = sample()


def test_the_sample_of_these_tests_can_be_read():
    assert len(decode_points(BODY, COUNT)[0]) == COUNT


@pytest.mark.parametrize("length", range(len(BODY)))
def test_bytes_cut_short_are_unreadable(length):
    with pytest.raises(LookupError):
        decode_points(BODY[:length], COUNT)


def test_more_bytes_than_were_written_are_unreadable():
    with pytest.raises(LookupError):
        decode_points(BODY + b"\x00", COUNT)


@given(st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_corrupt_bytes_are_decoded_or_unreadable_and_nothing_else(changes):
    body = bytearray(BODY)
    for at, byte in changes:
        body[at] = byte
    with contextlib.suppress(LookupError):
        assert len(decode_points(bytes(body), COUNT)[0]) == COUNT


@given(st.binary(max_size=200), st.integers(0, 5))
@example(b"\xdd\xff\xff\xff\xff", 1)  # says that it is a list of four thousand million things
@example(b"\x94\xc0\xdd\xff\xff\xff\xff", 1)
@example(b"\x94\xc0\x90\x90\xdd\xff\xff\xff\xff", 1)
@example(b"\x91" * 5000, 1)
def test_any_bytes_are_decoded_or_unreadable_and_nothing_else(garbage, count):
    with contextlib.suppress(LookupError):
        decode_points(VERSION + garbage, count)
    with contextlib.suppress(LookupError):
        decode_points(garbage, count)


@pytest.mark.parametrize(
    "body",
    [
        (None, [], [], [(0, 0, 1.0, 1, None, None, None, None)]),
        (None, [("a", "gauge", "1", "A.", 1, ())], [()], [(0, 2**63, 1.0, 1, None, None, None, None)]),
        (None, [("a", "something", "1", "A.", 1, ())], [()], [(0, 0, 1.0, 1, None, None, None, None)]),
        (None, [("a", "gauge", "1", "A.", 9, ())], [()], [(0, 0, 1.0, 1, None, None, None, None)]),
        (None, [("a", "gauge", "1", "A.", 1, ())], [()], [(0, 0, True, 1, None, None, None, None)]),
    ],
    ids=["no metrics", "dimensions too far", "unknown kind", "unknown level", "not a number"],
)
def test_a_body_that_makes_no_sense_is_unreadable(body):
    with pytest.raises(LookupError):
        decode_points(VERSION + msgspec.msgpack.encode(body), 1)


@pytest.mark.parametrize("count", [0, COUNT - 1, COUNT + 1])
def test_another_number_of_points_than_was_written_is_unreadable(count):
    with pytest.raises(LookupError, match="points, expected"):
        decode_points(BODY, count)


@pytest.mark.parametrize("version", [b"", b"\x00", b"\x02", b"\xff"])
def test_an_unknown_version_is_unreadable_and_is_named(version):
    with pytest.raises(LookupError, match=version.hex() or "none"):
        decode_points(version + (BODY[1:] if version else b""), COUNT)
