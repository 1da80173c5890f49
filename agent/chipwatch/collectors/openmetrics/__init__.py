"""
Scrapes endpoints that expose metrics in the text format of Prometheus or OpenMetrics.

Names and labels stay as they are exposed. Labels become dimensions; the dimension `endpoint` is the endpoint's name in
the configuration, and a label of that name becomes `exported_endpoint`, as in Prometheus.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from chipwatch.collectors.openmetrics.endpoint import Endpoint, PageReader
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.blocking_call import BlockingCall
from chipwatch.host.exposition import ScrapeResponse

if TYPE_CHECKING:
    from chipwatch.collectors.openmetrics.fetch import Scraper

TIMEOUT: Final = 0.5
"""Seconds that a reading waits for its scrapes; the next reading yields pages that arrive later."""


class _Source:
    """An endpoint, the thread of its scrapes, and the reader of its pages."""

    def __init__(self, name: str, endpoint: Endpoint, scraper: Scraper, readings: _Answers) -> None:
        self.name, self.endpoint = name, endpoint
        self.reader = PageReader(name, endpoint)
        self.series: int | None = None
        self.is_waiting = False
        self.call = BlockingCall(self._scrape, f"scrape {name}")
        self._scraper, self._readings = scraper, readings
        self._due = self._asked = 0.0

    def ask(self, now: float, tick: float) -> bool:
        """Start a scrape if one is due, without waiting for it; return whether one was due."""
        if now < self._due:
            return False
        # Half a tick of slack: ticks are not exact.
        self._due = now + max(0.0, (self.endpoint.interval or 0.0) - tick / 2)
        if not self.is_waiting:
            self.is_waiting, self._asked = True, now
        with suppress(TimeoutError):
            self.call.ask(0)  # the thread puts the answer into the queue
        return True

    def overdue(self, now: float) -> bool:
        """Return whether a scrape exceeds its timeout, as a DNS lookup may."""
        return self.is_waiting and now > self._asked + self.endpoint.timeout + 1

    def message(self, trouble: str) -> str:
        """Return a message about the endpoint."""
        return f"endpoint {self.name} ({self.endpoint.shown}): {trouble}"

    def _scrape(self) -> None:
        from chipwatch.collectors.openmetrics.fetch import Failed

        try:
            self._readings.put((self, self._scraper.scrape()))
        except Failed as why:
            self._readings.put((self, str(why)))


_Answers = SimpleQueue[tuple[_Source, ScrapeResponse | str]]


class OpenmetricsCollector(Collector):
    """Scrapes each endpoint on a separate thread; a failing endpoint loses only its own points."""

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
        self._readings: _Answers = SimpleQueue()

    def open(self, given: Given) -> None:
        self.close()
        if not self._config.endpoints:
            raise Unavailable("no endpoint is configured: add a table [collectors.openmetrics.endpoints.NAME]")
        from chipwatch.collectors.openmetrics.fetch import Scraper

        self._readings = SimpleQueue()
        endpoints = self._config.endpoints.items()
        self._sources = [_Source(name, endpoint, Scraper(endpoint), self._readings) for name, endpoint in endpoints]

    def yields_others(self) -> bool:
        """Return whether there is a page: it determines the metrics."""
        return bool(self._config.endpoints)

    def collect(self, at: int) -> Iterable[Datapoint]:
        now = time.monotonic()
        asked = {source for source in self._sources if source.ask(now, self._config.interval)}
        problems: list[str] = []
        for source, answer in self._answers(asked, now + min(TIMEOUT, self._config.interval / 2)).items():
            if isinstance(answer, str):
                source.series, troubles = None, [answer]
            else:
                points, troubles = source.reader.read(answer, at)
                source.series = len(points)
                yield from points
            problems += map(source.message, troubles)
        problems += [source.message("a scrape does not return") for source in self._sources if source.overdue(now)]
        if problems:
            raise PartlyCollected(problems)

    def _answers(self, asked: set[_Source], deadline: float) -> dict[_Source, ScrapeResponse | str]:
        """Return the last answer of each endpoint; wait until the deadline for those in `asked`."""
        answers: dict[_Source, ScrapeResponse | str] = {}
        while True:
            try:
                left = deadline - time.monotonic() if asked - answers.keys() else 0
                source, answer = self._readings.get(timeout=max(0, left))
            except Empty:
                return answers
            answers[source], source.is_waiting = answer, False

    def describe(self) -> str:
        series = {source.name: source.series for source in self._sources}
        names = [f"{name} ({'no page' if count is None else f'{count} series'})" for name, count in series.items()]
        return f"{len(names)} endpoint{'s' * (len(names) != 1)}: {', '.join(names)}" if names else ""

    def close(self) -> None:
        for source in self._sources:
            source.call.close()
        self._sources = []
