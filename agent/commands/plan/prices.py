"""What services charge: the list prices in prices.toml, and what stands in where they are not known."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

MEBIBYTE: Final = 1 << 20


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
class Volume:
    """A service that charges for bytes, as prices.toml has it; the same everywhere."""

    service: str
    page: str
    date: dt.date
    source: str
    bytes_per_point: int
    tiers: tuple[int, ...]
    mebibytes: tuple[float, ...]
    free_mebibytes: int
    requests_per_minute: int
    active_series: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Prices:
    """What a service that charges for metrics charges, in US dollars, and who says so."""

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

    @property
    def heading(self) -> str:
        """Whose prices these are."""
        return f"{self.service}, {self.region}"


@dataclass(frozen=True, slots=True)
class VolumePrices:
    """What a service that charges for bytes charges, in US dollars, and who says so."""

    service: str
    tiers: tuple[tuple[int | None, float], ...]
    """MiB in a price tier (None: no end), and dollars for each of them."""
    bytes_per_point: int
    free_mebibytes: int
    requests_per_second: int
    active_series: int
    """That one host may have."""
    descriptors: int
    """Metrics by name that all hosts together may have."""
    notes: tuple[str, ...]

    @property
    def heading(self) -> str:
        """Whose prices these are."""
        return self.service

    def mebibytes(self, points: float) -> float:
        """Return the MiB that so many points count as."""
        return points * self.bytes_per_point / MEBIBYTE


@dataclass(frozen=True, slots=True)
class Usage:
    """What is sent in a month."""

    series: int = 0
    points: float = 0.0
    requests: float = 0.0
    gigabytes: float | None = None
    """Of logs, which are then what is paid for, and not requests."""


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


def find_prices(book: Mapping[str, Any], name: str, region: str | None, wishes: Wishes) -> Prices | VolumePrices | None:
    """Return what `name` charges in `region`, as far as `book` knows; None: nothing, or nothing is known."""
    if name not in book or book[name].get("free"):
        return None
    if "bytes_per_point" in book[name]:
        return _by_volume(msgspec.convert(book[name], Volume), wishes)
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


def _by_volume(of: Volume, wishes: Wishes) -> VolumePrices:
    notes = [f"Prices of {of.date}, {of.source}; {of.page} has today's."]
    if (wishes.price_per_metric, wishes.price_per_1000_requests) != (None, None):
        notes.append("Prices of metrics and of requests say nothing here: bytes are what is charged.")
    return VolumePrices(
        of.service,
        tuple(zip((*of.tiers, None), of.mebibytes, strict=True)),
        of.bytes_per_point,
        of.free_mebibytes,
        of.requests_per_minute // 60,
        of.active_series,
        of.descriptors,
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


def bill(prices: Prices | VolumePrices | None, usage: Usage, *, free_tier: bool = False) -> tuple[Line, ...]:
    """Return the lines for a month, one for each price tier; none where nothing is charged."""
    if prices is None:
        return ()
    if isinstance(prices, VolumePrices):
        tiers, free = prices.tiers, prices.free_mebibytes
        if free_tier and tiers[0][0] is not None:
            tiers = ((free, 0.0), (tiers[0][0] - free, tiers[0][1]), *tiers[1:])
        return tuple(_tiers("MiB of points", prices.mebibytes(usage.points), tiers))
    lines = tuple(_tiers("metrics", max(0, usage.series - prices.free_metrics * free_tier), prices.tiers))
    if usage.gigabytes is not None:
        return (*lines, _line("GB of logs ingested, about", usage.gigabytes, 1, prices.logs))
    requests = max(0.0, usage.requests - prices.free_requests * free_tier)
    return (*lines, _line("requests, each thousand", requests, 1000, prices.requests))


def _tiers(item: str, left: float, tiers: Iterable[tuple[int | None, float]]) -> Iterator[Line]:
    begun = 0
    for size, price in tiers:
        count = left if size is None else min(left, size)
        which = f"beyond {begun:,}" if size is None else f"{'next' if begun else 'first'} {size:,}"
        yield _line(f"{item}, {which}" if begun or size else item, count, 1, price)
        left, begun = left - count, begun + (size or 0)


def _line(item: str, count: float, per: int, price: float) -> Line:
    return Line(item, count, per, price, round(count / per * price, 2))
