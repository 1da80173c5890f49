import datetime as dt
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.contract.advice import Cost, Load, Terms
from chipwatch_sinks.common import cloudwatch_prices
from chipwatch_sinks.common.cloudwatch_prices import CloudwatchPrices, read_book

BOOK = read_book()


def prices(region="us-east-1", **terms):
    return CloudwatchPrices(SimpleNamespace(region=region), Terms(**terms))


PRICES = prices()


def bill(of, *, series=0, requests=0.0, size=None):
    return tuple(of.costs(Load(series=series, requests=requests, bytes=size)))


def dollars(lines):
    return round(sum(line.dollars for line in lines), 2)


@pytest.fixture(autouse=True)
def _no_region(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def test_the_region_that_stands_in_for_others_has_every_price():
    home = BOOK["regions"][BOOK["region"]]
    assert len(home["metrics"]) == len(BOOK["tiers"]) + 1
    assert home["requests"]


@pytest.mark.parametrize("name", BOOK["regions"])
def test_each_region_says_when_and_from_where_its_prices_are_and_more_costs_less(name):
    region = BOOK["regions"][name]
    assert dt.date(2025, 1, 1) < region["date"] < dt.date(2030, 1, 1)
    assert region["source"]
    assert list(region["metrics"]) == sorted(region["metrics"], reverse=True)
    assert all(price > 0 for price in region["metrics"])


# -- whose price ------------------------------------------------------------------------------------------------


def test_a_region_that_is_known_in_part_is_filled_up_and_says_so():
    found = prices("us-west-1")
    assert found.tariff.service == "Amazon CloudWatch, us-west-1"
    assert found.tiers[:2] == ((10_000, 0.30), (240_000, 0.10))
    assert found.requests == 0.01
    assert found.as_of == "2026-09-29, AWS Price List API; https://aws.amazon.com/cloudwatch/pricing/ has today's"
    message = next(iter(found.notes(Load())))
    assert "Only the price for the first 10,000 metrics is of this region; the others are us-east" in message


@pytest.mark.parametrize(
    ("lacks", "known"),
    [({}, None), ({"requests": None}, "the first 10,000 metrics"), ({"metrics": (0.5,)}, "the first 10,000 metrics")],
)
def test_only_what_is_not_known_of_a_region_is_another_ones(lacks, known, monkeypatch):
    home = BOOK["regions"][BOOK["region"]]
    own = home | {"source": "a list", "metrics": (0.5, 0.4, 0.3, 0.2), "requests": 0.7}
    mars = {key: value for key, value in (own | lacks).items() if value is not None}
    book = BOOK | {"regions": {BOOK["region"]: home, "mars-1": mars}}
    monkeypatch.setattr(cloudwatch_prices, "read_book", lambda: book)
    found = prices("mars-1")
    message = [note for note in found.notes(Load()) if note.startswith("Only the price")]
    assert [f"Only the price for {known} is of this region;" in note for note in message] == [True] * bool(known)
    assert found.requests == (home["requests"] if "requests" in lacks else 0.7)
    assert [price for _, price in found.tiers] == [0.5, *(home if "metrics" in lacks else own)["metrics"][1:]]


def test_the_flags_prices_come_before_the_list():
    found = prices(price_per_metric=0.2, price_per_1000_requests=0.0)
    assert (found.tiers, found.requests) == (((None, 0.2),), 0.0)
    assert bill(found, series=11_000, requests=5000.0) == (
        Cost("metrics", 11_000, 0.2, as_of=found.as_of),
        Cost("requests, each thousand", 5000.0, 0.0, per=1000, as_of=found.as_of),
    )


# -- the bill ---------------------------------------------------------------------------------------------------


def test_metrics_are_billed_tier_by_tier():
    series = (0, 160, 10_000, 10_001, 160_000, 250_000, 1_000_000, 1_000_050)
    bills = [dollars(bill(PRICES, series=n, requests=0.0)) for n in series]
    assert bills == [0.0, 48.0, 3000.0, 3000.1, 18_000.0, 27_000.0, 64_500.0, 64_501.0]


def test_the_free_tier_is_taken_off_where_that_is_asked_for():
    assert dollars(bill(PRICES, series=110, requests=1_100_000.0)) == 44.0
    assert dollars(bill(prices(free_tier=True), series=110, requests=1_100_000.0)) == 31.0
    assert dollars(bill(prices(free_tier=True), series=9, requests=1000.0)) == 0.0


@given(st.integers(0, 3_000_000), st.integers(0, 10**9))
def test_every_metric_is_in_one_tier_and_each_line_can_be_checked_by_hand(series, requests):
    *tiers, last = bill(PRICES, series=series, requests=float(requests))
    assert sum(line.amount for line in tiers) == series
    assert last.amount == requests
    for line in (*tiers, last):
        assert line.dollars == round(line.amount / line.per * line.unit_price, 2)
