from __future__ import annotations

import datetime as dt
import importlib.resources
import tomllib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.commands.plan.prices import Line, Service, Usage, Volume, Wishes, bill, find_prices, read_prices

BOOK = read_prices()
CLOUDWATCH = msgspec.convert(BOOK["cloudwatch"], Service)
PRICES = find_prices(BOOK, "cloudwatch", "us-east-1", Wishes())
GOOGLE = find_prices(BOOK, "google", None, Wishes())


def dollars(lines):
    return round(sum(line.dollars for line in lines), 2)


# -- the list ---------------------------------------------------------------------------------------------------


def test_the_list_is_part_of_the_package():
    assert tomllib.loads((importlib.resources.files("agent.commands.plan") / "prices.toml").read_text()) == BOOK


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


@pytest.mark.parametrize(
    ("lacks", "known"),
    [
        ({}, None),
        ({"requests": None}, "the first 10,000 metrics and for logs"),
        ({"logs": None}, "the first 10,000 metrics"),
        ({"metrics": [0.5]}, "the first 10,000 metrics and for logs"),
    ],
)
def test_only_what_is_not_known_of_a_region_is_another_ones(lacks, known):
    home = BOOK["cloudwatch"]["regions"][CLOUDWATCH.region]
    own = {"date": home["date"], "source": "a list", "metrics": [0.5, 0.4, 0.3, 0.2], "requests": 0.7, "logs": 0.9}
    book = {"cloudwatch": {**BOOK["cloudwatch"], "regions": {CLOUDWATCH.region: home, "mars-1": own | lacks}}}
    found = find_prices(book, "cloudwatch", "mars-1", Wishes())
    said = [note for note in found.notes if note.startswith("Known of this region")]
    assert [f"is the price for {known};" in note for note in said] == [True] * bool(known)
    assert found.requests == (home["requests"] if "requests" in lacks else 0.7)
    assert found.logs == (home["logs"] if "logs" in lacks else 0.9)
    assert [price for _, price in found.tiers] == (
        [0.5, *home["metrics"][1:]] if "metrics" in lacks else own["metrics"]
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
    assert bill(found, Usage(series=11_000, requests=5000.0)) == (
        Line("metrics", 11_000, 1, 0.2, 2200.0),
        Line("requests, each thousand", 5000.0, 1000, 0.0, 0.0),
    )


@pytest.mark.parametrize("name", ["stdout", "of_somebody_else"])
def test_what_is_free_or_not_in_the_list_has_no_prices(name):
    assert find_prices(BOOK, name, "us-east-1", Wishes()) is None
    assert bill(None, Usage(series=100, requests=100.0)) == ()


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
    assert dollars(bill(PRICES, Usage(series=series, requests=0.0))) == total


def test_the_lines_name_their_tiers():
    lines = bill(PRICES, Usage(series=300_000, requests=43_800.0))
    assert [(line.item, line.count, line.price, line.dollars) for line in lines] == [
        ("metrics, first 10,000", 10_000, 0.30, 3000.0),
        ("metrics, next 240,000", 240_000, 0.10, 24_000.0),
        ("metrics, next 750,000", 50_000, 0.05, 2500.0),
        ("metrics, beyond 1,000,000", 0, 0.02, 0.0),
        ("requests, each thousand", 43_800.0, 0.01, 0.44),
    ]


def test_logs_are_paid_by_the_gigabyte_and_not_by_the_request():
    lines = bill(PRICES, Usage(requests=1e9, gigabytes=10.0))
    assert lines[-1] == Line("GB of logs ingested, about", 10.0, 1, 0.5, 5.0)
    assert dollars(bill(PRICES, Usage(series=10, requests=1e9, gigabytes=10.0))) == 8.0


def test_the_free_tier_is_taken_off_where_that_is_asked_for():
    assert dollars(bill(PRICES, Usage(series=110, requests=1_100_000.0))) == 44.0
    assert dollars(bill(PRICES, Usage(series=110, requests=1_100_000.0), free_tier=True)) == 31.0
    assert dollars(bill(PRICES, Usage(series=9, requests=1000.0), free_tier=True)) == 0.0


@given(st.integers(0, 3_000_000), st.integers(0, 10**9))
def test_every_metric_is_in_one_tier_and_each_line_can_be_checked_by_hand(series, requests):
    *tiers, last = bill(PRICES, Usage(series=series, requests=float(requests)))
    assert sum(line.count for line in tiers) == series
    assert last.count == requests
    for line in (*tiers, last):
        assert line.dollars == round(line.count / line.per * line.price, 2)


@given(st.integers(0, 2_000_000), st.integers(0, 100_000))
def test_more_metrics_never_cost_less(series, more):
    assert dollars(bill(PRICES, Usage(series=series))) <= dollars(bill(PRICES, Usage(series=series + more)))


# -- Google: bytes are what is charged --------------------------------------------------------------------------


def points(mebibytes):
    return mebibytes * (1 << 20) / 8


def test_the_list_of_volumes_is_dated_and_more_costs_less():
    google = msgspec.convert(BOOK["google"], Volume)
    assert dt.date(2025, 1, 1) < google.date < dt.date(2030, 1, 1)
    assert google.source
    assert len(google.mebibytes) == len(google.tiers) + 1
    assert list(google.mebibytes) == sorted(google.mebibytes, reverse=True)
    assert all(price > 0 for price in google.mebibytes)
    assert google.free_mebibytes < google.tiers[0]


def test_googles_prices_are_the_same_in_every_region():
    assert find_prices(BOOK, "google", "mars-north-1", Wishes()) == GOOGLE
    assert GOOGLE.heading == "Google Cloud Monitoring"
    assert GOOGLE.notes == (
        "Prices of 2026-08-29, Google's price list; https://cloud.google.com/products/observability/pricing has today's.",
    )


@pytest.mark.parametrize("wishes", [Wishes(price_per_metric=0.2), Wishes(price_per_1000_requests=0.0)])
def test_a_price_of_metrics_says_nothing_of_bytes_and_that_is_said(wishes):
    found = find_prices(BOOK, "google", None, wishes)
    assert found.tiers == GOOGLE.tiers
    assert found.notes[1] == "Prices of metrics and of requests say nothing here: bytes are what is charged."


@pytest.mark.parametrize(
    ("series", "window", "mebibytes", "total"),
    [(1, 60, 0.334, 0.09), (1, 10, 2.005, 0.52), (500, 60, 167.084, 43.11), (500, 10, 1002.502, 258.65)],
)
def test_a_series_costs_what_its_points_count_as(series, window, mebibytes, total):
    usage = Usage(series=series, points=series * 730 * 3600 / window, requests=1e9)
    assert GOOGLE.mebibytes(usage.points) == pytest.approx(mebibytes, abs=0.001)
    assert dollars(bill(GOOGLE, usage)) == total


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
    usage = Usage(points=points(mebibytes))
    assert dollars(bill(GOOGLE, usage)) == pytest.approx(total)
    assert dollars(bill(GOOGLE, usage, free_tier=True)) == pytest.approx(free)


def test_the_lines_of_bytes_name_their_tiers():
    usage = Usage(points=points(100_001))
    assert [(line.item, line.count, line.price, line.dollars) for line in bill(GOOGLE, usage)] == [
        ("MiB of points, first 100,000", 100_000, 0.258, 25_800.0),
        ("MiB of points, next 150,000", 1.0, 0.151, 0.15),
        ("MiB of points, beyond 250,000", 0.0, 0.061, 0.0),
    ]
    assert [(line.item, line.count, line.price) for line in bill(GOOGLE, usage, free_tier=True)] == [
        ("MiB of points, first 150", 150, 0.0),
        ("MiB of points, next 99,850", 99_850, 0.258),
        ("MiB of points, next 150,000", 1.0, 0.151),
        ("MiB of points, beyond 250,000", 0.0, 0.061),
    ]


@given(st.floats(0, 1e12), st.booleans())
def test_every_byte_is_in_one_tier(points, free_tier):
    lines = bill(GOOGLE, Usage(points=points), free_tier=free_tier)
    assert sum(line.count for line in lines) == pytest.approx(GOOGLE.mebibytes(points))
    for line in lines:
        assert line.dollars == round(line.count / line.per * line.price, 2)
