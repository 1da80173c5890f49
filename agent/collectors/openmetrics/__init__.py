"""
Any number of endpoints that speak the text format of Prometheus or OpenMetrics.

The names and labels of a page are kept as they are; labels are dimensions, beside `endpoint`, the name that the
configuration gives to the address. A label that is itself called endpoint becomes `exported_endpoint`, as Prometheus
has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from agent.collector import Collector
from agent.collectors.openmetrics.endpoint import Answer, Endpoint
from agent.collectors.openmetrics.page import Reader
from agent.datapoint import Datapoint
from agent.errors import PartlyCollected, Unavailable
from agent.host.blocking_call import BlockingCall

if TYPE_CHECKING:
    from agent.collectors.openmetrics.fetch import Scraper

PATIENCE: Final = 0.5
"""Seconds that a reading waits for the pages that it asked for; one that comes later is yielded by the next reading."""


class _Source:
    """An endpoint: its lane, where one scrape at a time may take its time, and what is known of its pages."""

    def __init__(self, name: str, endpoint: Endpoint, scraper: Scraper, readings: _Tray) -> None:
        self.name, self.endpoint = name, endpoint
        self.reader = Reader(name, endpoint)
        self.series: int | None = None
        self._scraper, self._readings = scraper, readings
        self._lane = BlockingCall(self._call, f"scrape {name}")
        self._due = self._asked = 0.0
        self._waiting = False

    def ask(self, now: float, tick: float) -> bool:
        """Start a scrape if one is due, without waiting for it; tell whether one was due."""
        if now < self._due:
            return False
        interval = self.endpoint.interval or 0.0
        self._due = now + max(0.0, interval - tick / 2)  # half a tick of slack: ticks are not exact
        if not self._waiting:
            self._waiting, self._asked = True, now
        with suppress(TimeoutError):
            self._lane.ask(0)  # it lays the answer on the tray, where a late one is not lost
        return True

    def overdue(self, now: float) -> bool:
        """Tell whether a scrape takes longer than it can, as a look-up of a name may."""
        return self._waiting and now > self._asked + self.endpoint.timeout + 1

    def answered(self) -> None:
        """Note that the scrape is over."""
        self._waiting = False

    def close(self) -> None:
        """Let the lane end."""
        self._lane.close()

    def _call(self) -> None:
        from agent.collectors.openmetrics.fetch import Failed  # noqa: PLC0415  http.client is for who scrapes

        try:
            self._readings.put((self, self._scraper.scrape()))
        except Failed as why:
            self._readings.put((self, str(why)))


_Tray = SimpleQueue[tuple[_Source, Answer | str]]


class OpenmetricsCollector(Collector):
    """Scrapes pages of metrics, each on a thread of its own; an endpoint that fails costs its own points."""

    dynamic = True
    """What it yields is what the pages hold; `metrics` declares nothing."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The endpoints."""

        endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
        """What to scrape: a table [collectors.openmetrics.endpoints.NAME] each, with at least its url."""
        interval: float = 5.0
        """Seconds between two readings."""

        def __post_init__(self) -> None:
            """Raise ValueError for what no endpoint can be."""
            for name, endpoint in self.endpoints.items():
                try:
                    endpoint.check()
                except ValueError as problem:
                    raise ValueError(f"endpoints.{name}: {problem}") from None

    metrics = ()

    def __init__(self, config: Config) -> None:
        """Take the configuration."""
        self._config = config
        self._sources: list[_Source] = []
        self._readings: _Tray = SimpleQueue()

    def open(self) -> None:
        """Make ready to scrape; raise Unavailable where no endpoint is configured."""
        self.close()
        if not self._config.endpoints:
            raise Unavailable("no endpoint is configured: there is no table [collectors.openmetrics.endpoints.NAME]")
        from agent.collectors.openmetrics.fetch import Scraper  # noqa: PLC0415  http.client is for who scrapes

        self._readings = SimpleQueue()
        self._sources = [_Source(name, of, Scraper(of), self._readings) for name, of in self._config.endpoints.items()]

    def collect(self, at: int) -> Iterable[Datapoint]:
        """Yield what the pages say that have come; raise PartlyCollected for those that failed."""
        now = time.monotonic()
        asked = {source for source in self._sources if source.ask(now, self._config.interval)}
        problems = []
        for source, answer in self._answers(asked, now + min(PATIENCE, self._config.interval / 2)).items():
            troubles = [answer] if isinstance(answer, str) else []
            source.series = None
            if not isinstance(answer, str):
                points, troubles = source.reader.read(answer, at)
                source.series = len(points)
                yield from points
            problems += [f"endpoint {source.name} ({source.endpoint.shown}): {trouble}" for trouble in troubles]
        problems += [
            f"endpoint {source.name} ({source.endpoint.shown}): a scrape does not come back"
            for source in self._sources
            if source.overdue(now)
        ]
        if problems:
            raise PartlyCollected(problems)

    def _answers(self, asked: set[_Source], deadline: float) -> dict[_Source, Answer | str]:
        """Return the last answer of each endpoint that gave one, waiting until the deadline for those just asked."""
        answers: dict[_Source, Answer | str] = {}
        while True:
            try:
                left = deadline - time.monotonic() if asked - answers.keys() else 0
                source, answer = self._readings.get(timeout=max(0, left))
            except Empty:
                return answers
            answers[source] = answer
            source.answered()

    def describe(self) -> str:
        """Say which endpoints there are, and how many series each gave."""
        told = [f"{of.name} ({'no page' if of.series is None else f'{of.series} series'})" for of in self._sources]
        return f"{len(told)} endpoint{'s' * (len(told) != 1)}: {', '.join(told)}" if told else ""

    def close(self) -> None:
        """Let the threads end when their scrapes do."""
        for source in self._sources:
            source.close()
        self._sources = []
