"""CloudWatch's prices for metrics and requests: list prices (cloudwatch_prices.toml), or the user's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chipwatch.contract.advice import Advisor, Cost, Load, Tariff, Terms
from chipwatch_sinks.common.advice import dated, read_prices, tiers


def read_book() -> dict[str, Any]:
    """Return the content of cloudwatch_prices.toml."""
    return read_prices(Path(__file__).with_suffix(".toml"))


class CloudwatchPrices(Advisor):
    """Prices in the region that `config` or the environment names, or the default region's if it has none."""

    def __init__(self, config: Any, terms: Terms) -> None:
        self._config = config
        book = self.book = read_book()
        region = config.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        default, listed = book["region"], book["regions"]
        home = listed[default]
        own = listed.get(region or default, home)
        here = {**home, **own}
        count = len(own["metrics"])
        first = f"the first {book['tiers'][0]:,} metrics"
        part = own.keys() < home.keys() or count < len(home["metrics"])
        notes = {
            f"No region is set (--region, AWS_REGION): {default} is assumed.": not region,
            f"No prices are known for {region}: prices of {default} are used.": bool(region) and region not in listed,
            f"Only the price for {first} is of this region; the others are {default}'s of {home['date']}.": part,
            "The price of a metric is yours: --price-per-metric.": terms.price_per_metric is not None,
            "The price of requests is yours: --price-per-1000-requests.": terms.price_per_1000_requests is not None,
        }
        self._notes = [note for note, applies in notes.items() if applies]
        self.region = region
        self.tariff = Tariff(f"{book['service']}, {region or default}")
        self.as_of = dated(book | here)
        prices = (*own["metrics"], *home["metrics"][count:])
        self.tiers = tuple(zip((*book["tiers"], None), prices, strict=True))
        if terms.price_per_metric is not None:
            self.tiers = ((None, terms.price_per_metric),)
        self.requests = here["requests"]
        if terms.price_per_1000_requests is not None:
            self.requests = terms.price_per_1000_requests
        self._free = terms.free_tier

    def costs(self, load: Load) -> Iterable[Cost]:
        metrics = max(0, load.series - self.book["free_metrics"] * self._free)
        yield from tiers("metrics", metrics, self.tiers, as_of=self.as_of)
        requests = max(0.0, load.requests - self.book["free_requests"] * self._free)
        yield Cost("requests, each thousand", requests, self.requests, per=1000, as_of=self.as_of)

    def notes(self, load: Load) -> Iterable[str]:
        yield from self._notes
        free = f"{self.book['free_metrics']} metrics and {self.book['free_requests']:,} requests a month"
        yield (
            f"An account's free tier, {free}, is subtracted only with --free-tier. For your own prices:"
            " --price-per-metric, --price-per-1000-requests."
        )
