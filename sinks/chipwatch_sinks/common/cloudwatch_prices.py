"""CloudWatch's prices of metrics, requests and logs: the list prices of cloudwatch_prices.toml, or the user's."""

from __future__ import annotations

import datetime as dt
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from chipwatch.advice import Advisor, Cost, Load, Tariff, Terms
from chipwatch_sinks.common.advice import tiers


@dataclass(frozen=True, slots=True)
class RegionPrices:
    """The known prices of one region, in dollars."""

    date: dt.date
    source: str
    metrics: tuple[float, ...]
    requests: float | None = None
    logs: float | None = None


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The content of cloudwatch_prices.toml."""

    service: str
    page: str
    region: str
    tiers: tuple[int, ...]
    free_metrics: int
    free_requests: int
    requests_per_second: int
    regions: Mapping[str, RegionPrices]


def read_book() -> PriceBook:
    """Read cloudwatch_prices.toml."""
    return msgspec.convert(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")), PriceBook)


class CloudwatchPrices(Advisor):
    """Prices of the region of `config` or the environment; of the default region if none are known."""

    def __init__(self, config: Any, terms: Terms) -> None:
        self._config = config
        book = self.book = read_book()
        region = config.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        home = book.regions[book.region]
        here = book.regions.get(region or book.region, home)
        priced = f"the first {book.tiers[0]:,} metrics" + ("" if here.logs is None else " and for logs")
        part = None in (here.requests, here.logs) or len(here.metrics) < len(home.metrics)
        notes = {
            f"No region is set (--region, AWS_REGION): {book.region} is assumed.": not region,
            f"No prices are known for {region}: prices of {book.region} are used.": bool(region)
            and region not in book.regions,
            f"Only the price for {priced} is of this region; the others are {book.region}'s of {home.date}.": part,
            "The price of a metric is yours: --price-per-metric.": terms.price_per_metric is not None,
            "The price of requests is yours: --price-per-1000-requests.": terms.price_per_1000_requests is not None,
        }
        self._notes = [note for note, applies in notes.items() if applies]
        self.region = region
        self.tariff = Tariff(f"{book.service}, {region or book.region}")
        self.as_of = f"{here.date}, {here.source}; {book.page} has today's"
        prices = (*here.metrics, *home.metrics[len(here.metrics) :])
        self.tiers = tuple(zip((*book.tiers, None), prices, strict=True))
        if terms.price_per_metric is not None:
            self.tiers = ((None, terms.price_per_metric),)
        self.requests = home.requests if here.requests is None else here.requests
        if terms.price_per_1000_requests is not None:
            self.requests = terms.price_per_1000_requests
        self.logs = home.logs if here.logs is None else here.logs
        self._free = terms.free_tier

    def costs(self, load: Load) -> Iterable[Cost]:
        metrics = max(0, load.series - self.book.free_metrics * self._free)
        yield from tiers("metrics", metrics, self.tiers, as_of=self.as_of)
        if load.bytes is not None:
            yield Cost("GB of logs ingested, about", load.bytes / 1e9, self.logs, unit="GB", as_of=self.as_of)
        else:
            requests = max(0.0, load.requests - self.book.free_requests * self._free)
            yield Cost("requests, each thousand", requests, self.requests, per=1000, as_of=self.as_of)

    def notes(self, load: Load) -> Iterable[str]:
        del load
        yield from self._notes
        free = f"{self.book.free_metrics} metrics and {self.book.free_requests:,} requests a month"
        yield (
            f"An account's free tier, {free}, is subtracted only with --free-tier. For your own prices:"
            " --price-per-metric, --price-per-1000-requests."
        )
