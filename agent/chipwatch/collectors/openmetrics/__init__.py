"""
Scrapes endpoints that expose metrics in the text format of Prometheus or OpenMetrics.

Names stay as they are, and labels become dimensions. The dimension `endpoint` is added: the endpoint's name in the
configuration. A label of that name becomes `exported_endpoint`, as in Prometheus.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from chipwatch.collectors.openmetrics.endpoint import Endpoint, PageReader, ScrapeFailed
from chipwatch.contract.collector import MOST_POINTS, Collector
from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.blocking_call import BlockingCall
from chipwatch.host.exposition import ScrapeResponse

if TYPE_CHECKING:
    from chipwatch.collectors.openmetrics.fetch import Scraper

TIMEOUT: Final = 0.5
"""Seconds that a reading waits for its scrapes. A page that arrives later counts for the next reading."""


class _Source:
    """One endpoint: its scraping thread, and the reader of its pages."""

    def __init__(self, name: str, endpoint: Endpoint, scraper: Scraper) -> None:
        self.name, self.endpoint = name, endpoint
        self.reader = PageReader(name, endpoint)
        self.series: int | None = None
        self.troubles: list[str] = []
        """The problems of the last page, or why there was none."""
        self.call = BlockingCall(scraper.scrape, f"scrape {name}")
        self._answer: ScrapeResponse | str | None = None
        self._due = self._asked = 0.0

    def ask(self, now: float, tick: float) -> bool:
        """Start a scrape if one is due, without waiting; return True if one was due."""
        self._look(0.0)
        if now < self._due:
            return False
        # It is due half a tick early, because ticks are not exact.
        self._due = now + max(0.0, (self.endpoint.interval or 0.0) - tick / 2)
        if not self.call.is_pending:
            self._asked = now
            self.call.begin()
        return True

    def answer(self, seconds: float) -> ScrapeResponse | str | None:
        """Return a new page, or why there is none, only once; wait at most `seconds` for a running scrape."""
        self._look(seconds)
        answer, self._answer = self._answer, None
        return answer

    def _look(self, seconds: float) -> None:
        if self.call.is_pending and self.call.wait(seconds):
            try:
                self._answer = self.call.take()
            except ScrapeFailed as why:
                self._answer = str(why)

    def overdue(self, now: float) -> bool:
        """Return True if a scrape exceeds its timeout, which a DNS lookup can do."""
        return self.call.is_pending and now > self._asked + self.endpoint.timeout + 1

    def message(self, trouble: str) -> str:
        """Return a message about the endpoint."""
        return f"endpoint {self.name} ({self.endpoint.shown}): {trouble}"


class OpenmetricsCollector(Collector):
    """Scrapes each endpoint on a separate thread; an endpoint that fails loses only its points."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The endpoints."""

        endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
        """Endpoints to scrape: a table [collectors.openmetrics.endpoints.NAME] for each, with at least `url`."""
        interval: float = 5.0
        """Seconds between two readings."""

        def __post_init__(self) -> None:
            """Raise ValueError for an invalid endpoint."""
            for name, endpoint in self.endpoints.items():
                try:
                    endpoint.check()
                except ValueError as problem:
                    raise ValueError(f"endpoints.{name}: {problem}") from None

    metrics = ()

    def __init__(self, config: Config) -> None:
        self._config = config
        self._sources: list[_Source] = []

    def open(self, given: Given) -> None:
        self.close()
        if not self._config.endpoints:
            raise Unavailable("no endpoint is configured: add a table [collectors.openmetrics.endpoints.NAME]")
        from chipwatch.collectors.openmetrics.fetch import Scraper

        endpoints = self._config.endpoints.items()
        self._sources = [_Source(name, endpoint, Scraper(endpoint)) for name, endpoint in endpoints]

    def yields_others(self) -> bool:
        """Return True if there are endpoints: their pages determine the metrics."""
        return bool(self._config.endpoints)

    def collect(self, at: int) -> Iterable[Datapoint]:
        now = time.monotonic()
        deadline = now + min(TIMEOUT, self._config.interval / 2)
        asked = {source for source in self._sources if source.ask(now, self._config.interval)}
        problems: list[str] = []
        room = MOST_POINTS
        for source in self._sources:
            answer = source.answer(deadline - time.monotonic() if source in asked else 0.0)
            if isinstance(answer, str):
                source.series, source.troubles = None, [answer]
            elif answer:
                points, source.troubles = source.reader.read(answer, at, room)
                source.series = len(points)
                room -= len(points)
                yield from points
            problems += map(source.message, source.troubles)
        problems += [source.message("a scrape does not return") for source in self._sources if source.overdue(now)]
        if problems:
            raise PartlyCollected(problems)

    def describe(self) -> str:
        series = {source.name: source.series for source in self._sources}
        names = [f"{name} ({'no page' if count is None else f'{count} series'})" for name, count in series.items()]
        return f"{len(names)} endpoint{'s' * (len(names) != 1)}: {', '.join(names)}" if names else ""

    def close(self) -> None:
        for source in self._sources:
            source.call.close()
        self._sources = []
