"""What a scrape of the endpoint weighs, and how it is drawn and watched; nothing is charged for it here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chipwatch.advice import Advisor, Alarm, Chart, Cost, Load, Scope, Terms
from chipwatch.datapoint import Datapoint
from chipwatch_sinks.common.advice import document
from chipwatch_sinks.prometheus import grafana
from chipwatch_sinks.prometheus.page import Format, Page


class PrometheusAdvisor(Advisor):
    """Writes the page of one tick and counts its bytes; a query finds every series of a name."""

    board = "grafana"
    max_lines = 50  # lines of a graph that are still readable
    by_name = True

    def __init__(self, config: Any, terms: Terms) -> None:
        """Take the Config of PrometheusSink."""
        del terms
        self._config = config

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        """Return the bytes of the page, in text and without gzip."""
        page = Page(machine_labels=self._config.machine_labels, timestamps=self._config.timestamps)
        page.take(window)
        return len(page.body(Format.TEXT, zipped=False))

    def costs(self, load: Load) -> Iterable[Cost]:
        """Return nothing: who scrapes pays for the samples that it stores."""
        del load
        return ()

    def notes(self) -> Iterable[str]:
        """Say what decides how much is stored."""
        yield (
            "A scrape has the bytes of one tick, about a tenth of them with gzip. Prometheus stores a sample of each"
            " series for each scrape: its scrape_interval decides, not the interval of the agent."
        )

    def dashboard(self, charts: Sequence[Chart], scope: Scope) -> Iterable[str]:
        """Return a dashboard of Grafana."""
        return document(grafana.dashboard(charts, scope))

    def alarms(self, alarms: Sequence[Alarm], scope: Scope) -> Iterable[str]:
        """Return a file of Prometheus' alerting rules."""
        return document(grafana.rules(alarms, scope))
