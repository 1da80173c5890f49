"""What a run's system metrics weigh; nothing is charged for them here."""

from __future__ import annotations

from collections.abc import Iterable

from chipwatch.advice import Advisor, Cost, Load


class MlflowAdvisor(Advisor):
    """Counts the rows that a run of a month would have."""

    def costs(self, load: Load) -> Iterable[Cost]:
        """Return nothing: the server is the user's own, or charged by the hour."""
        del load
        return ()

    def notes(self) -> Iterable[str]:
        """Say what is stored."""
        yield "The tracking server stores a row for each point, only while the run runs: --window makes fewer of them."
