import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.contract.advice import Load, Terms
from chipwatch_sinks.google import GoogleSink
from chipwatch_sinks.google.advisor import GoogleAdvisor


def advisor(**terms):
    return GoogleAdvisor(GoogleSink.Config(), Terms(**terms))


GOOGLE = advisor()


def bill(points, of=GOOGLE):
    return tuple(of.costs(Load(points=points, requests=1e9)))


def dollars(lines):
    return round(sum(line.dollars for line in lines), 2)


def points(mebibytes):
    return mebibytes * (1 << 20) / 8


def test_the_list_is_dated_and_more_costs_less():
    book = GOOGLE.book
    assert dt.date(2025, 1, 1) < book["date"] < dt.date(2030, 1, 1)
    assert book["source"]
    assert len(book["mebibytes"]) == len(book["tiers"]) + 1
    assert book["mebibytes"] == sorted(book["mebibytes"], reverse=True)
    assert all(price > 0 for price in book["mebibytes"])
    assert book["free_mebibytes"] < book["tiers"][0]


@pytest.mark.parametrize("terms", [{"price_per_metric": 0.2}, {"price_per_1000_requests": 0.0}])
def test_a_price_of_metrics_does_not_cover_bytes_and_the_plan_says_so(terms):
    found = advisor(**terms)
    assert bill(1e9, found) == bill(1e9)
    note = "Google charges for bytes: --price-per-metric and --price-per-1000-requests change nothing here."
    assert (next(iter(found.notes(Load()))), note in GOOGLE.notes(Load())) == (note, False)


@pytest.mark.parametrize(
    ("mebibytes", "total", "free"),
    [
        (0, 0.0, 0.0),
        (150, 38.7, 0.0),
        (151, 38.96, 0.26),
        (100_000, 25_800.0, 25_761.3),
        (250_000, 25_800.0 + 22_650.0, 25_761.3 + 22_650.0),
        (251_000, 25_800.0 + 22_650.0 + 61.0, 25_761.3 + 22_650.0 + 61.0),
    ],
)
def test_bytes_are_billed_tier_by_tier_and_what_is_free_is_part_of_the_first(mebibytes, total, free):
    assert dollars(bill(points(mebibytes))) == pytest.approx(total)
    assert dollars(bill(points(mebibytes), advisor(free_tier=True))) == pytest.approx(free)


@given(st.floats(0, 1e12), st.booleans())
def test_every_byte_is_in_one_tier(points, free_tier):
    lines = bill(points, advisor(free_tier=free_tier))
    assert sum(line.amount for line in lines) == pytest.approx(points * 8 / (1 << 20))
    for line in lines:
        assert line.dollars == round(line.amount / line.per * line.unit_price, 2)
