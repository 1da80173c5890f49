"""The rows that a run's system metrics take; nothing is charged for them here."""

from __future__ import annotations

from collections.abc import Iterable

from chipwatch.contract.advice import Advisor, Cost, Load


class MlflowAdvisor(Advisor):
    """Counts the rows that a run of a month would have."""

    def costs(self, load: Load) -> Iterable[Cost]:
        return ()  # the server is the user's, or charged by the hour

    def notes(self, load: Load) -> Iterable[str]:
        yield "The tracking server stores a row for each point, only while the run runs: --window makes fewer of them."
