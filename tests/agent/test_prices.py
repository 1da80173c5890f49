from __future__ import annotations

import datetime as dt
import importlib.resources
import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.prices import Line, Service, Wishes, bill, find_prices, read_prices

BOOK = read_prices()
CLOUDWATCH = msgspec.convert(BOOK["cloudwatch"], Service)
PRICES = find_prices(BOOK, "cloudwatch", "us-east-1", Wishes())


def dollars(lines):
    return round(sum(line.dollars for line in lines), 2)


# -- the list ---------------------------------------------------------------------------------------------------


def test_the_list_is_part_of_the_package():
    assert tomllib.loads((importlib.resources.files("agent") / "prices.toml").read_text()) == BOOK


def test_the_region_that_stands_in_for_others_has_every_price():
    home = CLOUDWATCH.regions[CLOUDWATCH.region]
    assert len(home.metrics) == len(CLOUDWATCH.tiers) + 1
    assert home.requests
    assert home.logs


@pytest.mark.parametrize("name", CLOUDWATCH.regions)
def test_each_region_says_when_and_from_where_its_prices_are_and_more_costs_less(name):
    region = CLOUDWATCH.regions[name]
    assert dt.date(2025, 1, 1) < region.date < dt.date(2030, 1, 1)
    assert region.source
    assert list(region.metrics) == sorted(region.metrics, reverse=True)
    assert all(price > 0 for price in region.metrics)


# -- whose price ------------------------------------------------------------------------------------------------


def test_a_region_that_is_known_in_part_is_filled_up_and_says_so():
    found = find_prices(BOOK, "cloudwatch", "us-west-1", Wishes())
    assert (found.region, found.tiers[0], found.tiers[1]) == ("us-west-1", (10_000, 0.30), (240_000, 0.10))
    assert (found.requests, found.logs) == (0.01, 0.67)
    assert "Prices of 2026-09-29, AWS Price List API; https://aws.amazon.com/cloudwatch/pricing/" in found.notes[0]
    assert (
        "Known of this region is the price for the first 10,000 metrics and for logs; the rest is us-east-1's"
        in (found.notes[1])
    )


def test_an_unknown_region_has_another_ones_prices_and_says_so():
    found = find_prices(BOOK, "cloudwatch", "mars-north-1", Wishes())
    assert found.tiers == PRICES.tiers
    assert found.region == "mars-north-1"
    assert found.notes[0] == "No prices of mars-north-1 are known here: those of us-east-1 stand in."


def test_where_no_region_is_given_one_is_assumed_and_said():
    found = find_prices(BOOK, "cloudwatch", None, Wishes())
    assert found.region == "us-east-1"
    assert found.notes[0] == "No region is given (--region, AWS_REGION): us-east-1 is assumed."


def test_the_flags_prices_come_before_the_list():
    found = find_prices(BOOK, "cloudwatch", "us-east-1", Wishes(price_per_metric=0.2, price_per_1000_requests=0.0))
    assert (found.tiers, found.requests) == (((None, 0.2),), 0.0)
    assert bill(found, 11_000, 5000.0) == (
        Line("metrics", 11_000, 1, 0.2, 2200.0),
        Line("requests, each thousand", 5000.0, 1000, 0.0, 0.0),
    )


@pytest.mark.parametrize("name", ["stdout", "of_somebody_else"])
def test_what_is_free_or_not_in_the_list_has_no_prices(name):
    assert find_prices(BOOK, name, "us-east-1", Wishes()) is None
    assert bill(None, 100, 100.0) == ()


# -- the bill ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("series", "total"),
    [
        (0, 0.0),
        (160, 48.0),
        (10_000, 3000.0),
        (10_001, 3000.1),
        (160_000, 18_000.0),
        (250_000, 27_000.0),
        (1_000_000, 64_500.0),
        (1_000_050, 64_501.0),
    ],
)
def test_metrics_are_billed_tier_by_tier(series, total):
    assert dollars(bill(PRICES, series, 0.0)) == total


def test_the_lines_name_their_tiers():
    lines = bill(PRICES, 300_000, 43_800.0)
    assert [(line.item, line.count, line.price, line.dollars) for line in lines] == [
        ("metrics, first 10,000", 10_000, 0.30, 3000.0),
        ("metrics, next 240,000", 240_000, 0.10, 24_000.0),
        ("metrics, next 750,000", 50_000, 0.05, 2500.0),
        ("metrics, beyond 1,000,000", 0, 0.02, 0.0),
        ("requests, each thousand", 43_800.0, 0.01, 0.44),
    ]


def test_logs_are_paid_by_the_gigabyte_and_not_by_the_request():
    assert bill(PRICES, 0, 1e9, 10.0)[-1] == Line("GB of logs ingested, about", 10.0, 1, 0.5, 5.0)
    assert dollars(bill(PRICES, 10, 1e9, 10.0)) == 8.0


def test_the_free_tier_is_taken_off_where_that_is_asked_for():
    assert dollars(bill(PRICES, 110, 1_100_000.0)) == 44.0
    assert dollars(bill(PRICES, 110, 1_100_000.0, free_tier=True)) == 31.0
    assert dollars(bill(PRICES, 9, 1000.0, free_tier=True)) == 0.0


@given(st.integers(0, 3_000_000), st.integers(0, 10**9))
def test_every_metric_is_in_one_tier_and_each_line_can_be_checked_by_hand(series, requests):
    *tiers, last = bill(PRICES, series, float(requests))
    assert sum(line.count for line in tiers) == series
    assert last.count == requests
    for line in (*tiers, last):
        assert line.dollars == round(line.count / line.per * line.price, 2)


@given(st.integers(0, 2_000_000), st.integers(0, 100_000))
def test_more_metrics_never_cost_less(series, more):
    assert dollars(bill(PRICES, series, 0.0)) <= dollars(bill(PRICES, series + more, 0.0))
