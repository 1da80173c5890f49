"""Counts the rows that a run's system metrics take in the tracking server; there is no price for them."""

from __future__ import annotations

from collections.abc import Iterable

from chipwatch.contract.advice import Advisor, Cost, Load


class MlflowAdvisor(Advisor):
    """Counts the rows of a run that lasts a month."""

    def costs(self, load: Load) -> Iterable[Cost]:
        return ()  # the user runs the server, or pays for its hours

    def notes(self, load: Load) -> Iterable[str]:
        yield "The tracking server stores a row for each point, only while the run runs: --window makes fewer of them."
