"""Counts the bytes of a scrape, and writes dashboards for Grafana and alarms for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chipwatch.contract.advice import Advisor, Board, Cost, Load, Terms
from chipwatch.contract.datapoint import Datapoint
from chipwatch_sinks.prometheus import grafana
from chipwatch_sinks.prometheus.page import Format, Page


class PrometheusAdvisor(Advisor):
    """Advises on the page: bytes of a scrape, dashboards and alarms; a query finds all series of a name."""

    board = Board(50, program="grafana", by_name=True)  # more lines in a graph cannot be read

    def __init__(self, config: Any, terms: Terms) -> None:
        self._config = config

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        page = Page(machine_labels=self._config.machine_labels, timestamps=self._config.timestamps)
        page.take(window)
        return len(page.body(Format.TEXT, zipped=False))

    def costs(self, load: Load) -> Iterable[Cost]:
        return ()  # the scraper's owner pays for the samples that it stores

    def notes(self, load: Load) -> Iterable[str]:
        yield (
            "A scrape has the bytes of one tick, about a tenth of them with gzip. Prometheus stores a sample of each"
            " series for each scrape: its scrape_interval decides, not the interval of the agent."
        )

    dashboard = staticmethod(grafana.dashboard)
    alarms = staticmethod(grafana.rules)
    records = staticmethod(grafana.records)
