"""The cost of standard output: none, but for the embedded metric format (EMF) what CloudWatch charges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chipwatch.contract.advice import Cost, Load
from chipwatch.contract.datapoint import Datapoint
from chipwatch_sinks.common.cloudwatch_prices import CloudwatchPrices
from chipwatch_sinks.stdout.emf import events


class StdoutAdvisor(CloudwatchPrices):
    """Counts the bytes of the EMF lines that CloudWatch's agent would read."""

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        if self._config.format != "emf":
            return None
        return len(events(self._config.namespace, 1 if self._config.high_resolution else 60, window, []).encode())

    def costs(self, load: Load) -> Iterable[Cost]:
        return super().costs(load) if self._config.format == "emf" else ()
