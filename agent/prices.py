"""What services charge: the list prices in prices.toml, and what stands in where they are not known."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Region:
    """What is known of the prices of one region, as prices.toml has them."""

    date: dt.date
    source: str
    metrics: tuple[float, ...]
    requests: float | None = None
    logs: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A service that charges, as prices.toml has it."""

    service: str
    page: str
    region: str
    tiers: tuple[int, ...]
    free_metrics: int
    free_requests: int
    requests_per_second: int
    regions: Mapping[str, Region]


@dataclass(frozen=True, slots=True)
class Prices:
    """What a service charges, in US dollars, and who says so."""

    service: str
    region: str
    tiers: tuple[tuple[int | None, float], ...]
    """Metrics in a price tier (None: no end), and dollars for each of them and month."""
    requests: float
    """For a thousand."""
    logs: float
    """For a GB ingested."""
    free_metrics: int
    free_requests: int
    requests_per_second: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the flags of `agent plan` say."""

    hosts: int = 1
    price_per_metric: float | None = None
    price_per_1000_requests: float | None = None
    free_tier: bool = False


def read_prices() -> dict[str, Any]:
    """Return prices.toml."""
    return tomllib.loads(Path(__file__).with_name("prices.toml").read_text(encoding="utf-8"))


def find_prices(book: Mapping[str, Any], name: str, region: str | None, wishes: Wishes) -> Prices | None:
    """Return what `name` charges in `region`, as far as `book` knows; None: nothing, or nothing is known."""
    if name not in book or book[name].get("free"):
        return None
    of = msgspec.convert(book[name], Service)
    home, here = of.regions[of.region], of.regions.get(region or of.region)
    notes = []
    if region is None:
        notes.append(f"No region is given (--region, AWS_REGION): {of.region} is assumed.")
    if here is None:
        notes.append(f"No prices of {region} are known here: those of {of.region} stand in.")
        here = home
    notes.append(f"Prices of {here.date}, {here.source}; {of.page} has today's.")
    if here is not home and (here.requests is None or here.logs is None or len(here.metrics) < len(home.metrics)):
        known = f"the first {of.tiers[0]:,} metrics" + ("" if here.logs is None else " and for logs")
        notes.append(f"Known of this region is the price for {known}; the rest is {of.region}'s of {home.date}.")
    metrics = (*here.metrics, *home.metrics[len(here.metrics) :])
    tiers = tuple(zip((*of.tiers, None), metrics, strict=True))
    if wishes.price_per_metric is not None:
        tiers = ((None, wishes.price_per_metric),)
        notes.append("The price of a metric is yours: --price-per-metric.")
    requests = home.requests if here.requests is None else here.requests
    if wishes.price_per_1000_requests is not None:
        requests = wishes.price_per_1000_requests
        notes.append("The price of requests is yours: --price-per-1000-requests.")
    logs = home.logs if here.logs is None else here.logs
    free = (of.free_metrics, of.free_requests)
    return Prices(
        of.service,
        region or of.region,
        tiers,
        requests or 0.0,
        logs or 0.0,
        *free,
        of.requests_per_second,
        tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the bill: `count` / `per` x `price` = `dollars`."""

    item: str
    count: float
    per: int
    price: float
    dollars: float


def bill(
    prices: Prices | None, series: int, requests: float, gigabytes: float | None = None, *, free_tier: bool = False
) -> tuple[Line, ...]:
    """
    Return the lines for a month, one for each price tier; none where nothing is charged.

    `gigabytes`: of logs, which are then what is paid for, and not requests.
    """
    if prices is None:
        return ()
    lines, left, begun = [], max(0, series - prices.free_metrics * free_tier), 0
    for size, price in prices.tiers:
        count = left if size is None else min(left, size)
        which = f"beyond {begun:,}" if size is None else f"{'next' if begun else 'first'} {size:,}"
        lines.append(_line(f"metrics, {which}" if begun or size else "metrics", count, 1, price))
        left, begun = left - count, begun + (size or 0)
    if gigabytes is not None:
        return (*lines, _line("GB of logs ingested, about", gigabytes, 1, prices.logs))
    requests = max(0.0, requests - prices.free_requests * free_tier)
    return (*lines, _line("requests, each thousand", requests, 1000, prices.requests))


def _line(item: str, count: float, per: int, price: float) -> Line:
    return Line(item, count, per, price, round(count / per * price, 2))
