"""What a run's system metrics weigh; nothing is charged for them here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agent.advice import Advisor, Cost, Load, Terms
from agent.datapoint import Datapoint


class MlflowAdvisor(Advisor):
    """Counts the rows that a run of a month would have."""

    def __init__(self, config: Any, terms: Terms) -> None:
        """Take the Config of MlflowSink."""
        del config, terms

    def measure(self, window: Sequence[Datapoint]) -> int | None:
        """Return None: bytes are not charged."""
        del window
        return None

    def costs(self, load: Load) -> Iterable[Cost]:
        """Return nothing: the server is the user's own, or charged by the hour."""
        del load
        return ()

    def notes(self) -> Iterable[str]:
        """Say what is stored."""
        yield "The tracking server stores a row for each point, only while the run runs: --window makes fewer of them."
